"""The loop against the real API service, on virtual time: who is bound where, and what is written
why. Tests write objects straight into the store, as they are to be found there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from livesize.api.conditions import find_condition
from livesize.api.errors import StatusError, conflict
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import WatchEvent
from livesize.api.objects import Object, evolve, lookup, name_of, namespace_of
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.keys import key_of
from livesize.apiserver.records import stored_bytes
from livesize.scheduler.loop import Scheduler
from livesize.store.interface import Delete, Put
from memory_service import MemoryService
from virtual_time import CLOCK, virtual_context, virtual_time

SCHEDULER = Identity("system:kube-scheduler", Role.SCHEDULER)


async def _take(_pod: str, _node: str) -> None:
    """No binding is refused."""


class Server(MemoryService):
    """``refuse_binding`` may raise; ``hides`` says which watch events do not come through."""

    def __init__(self) -> None:
        super().__init__(virtual_context())
        self.bindings: list[tuple[str, str]] = []
        self.bound_at: list[float] = []
        self.status_patches: list[tuple[str, Object]] = []
        self.refuse_binding: Callable[[str, str], Awaitable[None]] = _take
        self.hides: Callable[[WatchEvent], bool] = lambda _: False

    async def put(self, resource: Resource, obj: Object) -> None:
        metadata = {"creationTimestamp": "2027-01-15T08:00:00Z", **obj["metadata"]}
        key = key_of(resource, namespace_of(obj), name_of(obj))
        await self.store.commit([], [Put(key, stored_bytes({**obj, "metadata": metadata}))])

    async def remove(self, resource: Resource, name: str) -> None:
        key = key_of(resource, namespace_of(self.get(resource, name)), name)
        await self.store.commit([], [Delete(key)])

    def get(self, resource: Resource, name: str) -> Object:
        return next(obj for obj in self.all(resource) if name_of(obj) == name)

    def all(self, resource: Resource) -> list[Object]:
        return [record.stored for record in self.cache.records(resource)]

    def node_of(self, pod: str) -> str:
        return str(lookup(self.get(PODS, pod), "spec", "nodeName", default=""))

    def message_of(self, pod: str) -> str | None:
        condition = find_condition(self.get(PODS, pod), "PodScheduled")
        return None if condition is None else condition["message"]


class SchedulerClient(DirectClient):
    """The scheduler's, with what a test wants to know of its requests."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.service, SCHEDULER)
        self._server = server

    async def watch(self, *parts: Any, **more: Any) -> AsyncGenerator[WatchEvent, None]:
        async for event in super().watch(*parts, **more):
            if not self._server.hides(event):
                yield event

    async def patch(self, resource: Resource, name: str, patch: Any, **more: Any) -> Object:
        self._server.status_patches.append((name, patch))
        return await super().patch(resource, name, patch, **more)

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        assert (resource, subresource, body["kind"]) == (PODS, "binding", "Binding")
        self._server.bindings.append((name, body["target"]["name"]))
        self._server.bound_at.append(CLOCK.monotonic())
        await self._server.refuse_binding(name, body["target"]["name"])
        return await super().post(resource, name, namespace, subresource, body)


def pod(name: str, cpu: str = "100m", **spec: Any) -> Object:
    requests = {"cpu": cpu, "memory": "1Mi"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str, cpu: str = "1", **spec: Any) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


async def settle() -> None:
    """Let everything run that can at this instant; no time passes."""
    for _ in range(200):
        await asyncio.sleep(0)


@asynccontextmanager
async def scheduling(server: Server) -> AsyncIterator[None]:
    """What was put before is there when the scheduler begins."""
    await server.start()
    running = asyncio.create_task(
        Scheduler(SchedulerClient(server), context=virtual_context()).run()
    )
    await settle()
    try:
        yield
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.wait([running])
        await server.stop()


@pytest.fixture
def server() -> Server:
    return Server()


@virtual_time
async def test_a_pod_that_was_there_and_one_that_comes_are_bound(server: Server) -> None:
    await server.put(NODES, node("n"))
    await server.put(PODS, pod("early"))
    async with scheduling(server):
        assert server.node_of("early") == "n"
        await server.put(PODS, pod("late"))
        await settle()
        assert server.node_of("late") == "n"
    reasons = [(e["reason"], e["message"]) for e in server.all(EVENTS)]
    assert ("Scheduled", "Successfully assigned default/late to n") in reasons


@virtual_time
async def test_pods_of_one_turn_do_not_overfill_a_node(server: Server) -> None:
    await server.put(NODES, node("n"))
    async with scheduling(server):
        for name in ("a", "b", "c"):
            await server.put(PODS, pod(name, "400m"))
        await settle()
        assert [server.node_of(name) for name in ("a", "b", "c")] == ["n", "n", ""]
        assert server.message_of("c") == "0/1 nodes are available: 1 Insufficient cpu."


@virtual_time
async def test_no_node_is_said_once_and_in_full(server: Server) -> None:
    await server.put(NODES, node("n"))
    async with scheduling(server):
        await server.put(PODS, evolve(pod("big", "2"), ("metadata", "generation"), 3))
        await settle()
        condition = find_condition(server.get(PODS, "big"), "PodScheduled")
        assert condition == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
            "observedGeneration": 3,
        }
        await server.put(NODES, node("closed", unschedulable=True))
        await settle()
        changed = find_condition(server.get(PODS, "big"), "PodScheduled")
        assert changed is not None
        assert changed["message"] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )
        assert changed["lastTransitionTime"] == condition["lastTransitionTime"]
        await server.put(NODES, {**node("n"), "metadata": {"name": "n", "labels": {"x": "y"}}})
        await settle()
        assert len(server.status_patches) == 2
    assert [e["reason"] for e in server.all(EVENTS)] == ["FailedScheduling"] * 2


@virtual_time
async def test_without_nodes_a_pod_waits_for_the_first_one(server: Server) -> None:
    async with scheduling(server):
        await server.put(PODS, pod("a"))
        await settle()
        assert server.message_of("a") == "no nodes available to schedule pods"
        await server.put(NODES, node("n"))
        await settle()
        assert server.node_of("a") == "n"


async def _grow_node(server: Server) -> None:
    await server.put(NODES, node("n", "2"))


async def _delete_other(server: Server) -> None:
    await server.remove(PODS, "other")


async def _end_other(server: Server) -> None:
    await server.put(PODS, evolve(server.get(PODS, "other"), ("status", "phase"), "Succeeded"))


async def _shrink_other(server: Server) -> None:
    allocated = [{"name": "c", "requests": {"cpu": "100m", "memory": "1Mi"}}]
    state = {"phase": "Done", "allocated": allocated}
    await server.put(PODS, evolve(server.get(PODS, "other"), ("status", "resizeState"), state))


async def _shrink_itself(server: Server) -> None:
    requests = ("spec", "containers", 0, "resources", "requests", "cpu")
    await server.put(PODS, evolve(server.get(PODS, "big"), requests, "50m"))


@pytest.mark.parametrize(
    "help_it", [_grow_node, _delete_other, _end_other, _shrink_other, _shrink_itself]
)
@virtual_time
async def test_what_helps_leads_to_a_new_try(
    server: Server, help_it: Callable[[Server], Awaitable[None]]
) -> None:
    await server.put(NODES, node("n"))
    await server.put(PODS, pod("other", "900m", nodeName="n"))
    await server.put(PODS, pod("big", "800m"))
    async with scheduling(server):
        assert server.node_of("big") == ""
        await help_it(server)
        await settle()
        assert server.node_of("big") == "n"


def _with_node(**changes: Any) -> Callable[[Server], Awaitable[None]]:
    async def change(server: Server) -> None:
        """The whole node as it is afterwards."""
        found = server.get(NODES, "n")
        await server.put(NODES, {**found, **changes})

    return change


def _with_pod(**spec: Any) -> Callable[[Server], Awaitable[None]]:
    async def change(server: Server) -> None:
        found = server.get(PODS, "lost")
        await server.put(PODS, {**found, "spec": {**found["spec"], **spec}})

    return change


TAINTED = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
NOT_READY = {**node("n")["status"], "conditions": [{"type": "Ready", "status": "False"}]}
LABELLED = {"name": "n", "uid": "uid-n", "labels": {"disk": "fast"}}


@pytest.mark.parametrize(
    ("before", "spec", "help_it"),
    [
        pytest.param({"spec": TAINTED}, {}, _with_node(spec={}), id="the taint is removed"),
        pytest.param(
            {"spec": {"unschedulable": True}}, {}, _with_node(spec={}), id="the node is opened"
        ),
        pytest.param(
            {"status": NOT_READY}, {}, _with_node(status=node("n")["status"]), id="it is ready"
        ),
        pytest.param(
            {}, {"nodeSelector": {"disk": "fast"}}, _with_node(metadata=LABELLED), id="a label"
        ),
        pytest.param(
            {"spec": TAINTED},
            {},
            _with_pod(tolerations=[{"operator": "Exists"}]),
            id="the pod tolerates it now",
        ),
        pytest.param(
            {}, {"schedulingGates": [{"name": "g"}]}, _with_pod(schedulingGates=[]), id="no gate"
        ),
    ],
)
@virtual_time
async def test_what_opens_a_node_leads_to_a_new_try(
    server: Server, before: Object, spec: Object, help_it: Callable[[Server], Awaitable[None]]
) -> None:
    await server.put(NODES, {**node("n"), **before})
    await server.put(PODS, pod("lost", **spec))
    async with scheduling(server):
        assert server.node_of("lost") == ""
        await help_it(server)
        await settle()
        assert server.node_of("lost") == "n", "and no time has passed"


@virtual_time
async def test_what_closes_a_node_leads_to_no_try(server: Server) -> None:
    await server.put(NODES, node("n"))
    await server.put(PODS, pod("big", "2"))
    async with scheduling(server):
        told = server.message_of("big")
        await server.put(NODES, node("n", unschedulable=True))
        await settle()
        assert server.message_of("big") == told


@pytest.mark.parametrize(
    ("cpu", "phase", "is_bound"),
    [("100m", "Running", True), ("950m", "Running", False), ("950m", "Succeeded", True)],
    ids=["smaller", "larger", "ended"],
)
@virtual_time
async def test_who_comes_later_meets_the_newest_sizes(
    server: Server, cpu: str, phase: str, is_bound: bool
) -> None:
    await server.put(NODES, node("n"))
    await server.put(PODS, pod("other", "500m", nodeName="n"))
    async with scheduling(server):
        for size in ("700m", cpu):
            allocated = [{"name": "c", "requests": {"cpu": size, "memory": "1Mi"}}]
            status = {"phase": phase, "resizeState": {"phase": "Done", "allocated": allocated}}
            await server.put(PODS, {**server.get(PODS, "other"), "status": status})
            await settle()
        await server.put(PODS, pod("later", "400m"))
        await settle()
        assert server.node_of("later") == ("n" if is_bound else "")


@virtual_time
async def test_what_cannot_help_leads_to_nothing(server: Server) -> None:
    await server.put(NODES, node("n"))
    await server.put(PODS, pod("big", "2"))
    async with scheduling(server):
        written = await server.store.revision()
        await server.put(NODES, node("n"))  # a heartbeat
        await server.put(PODS, pod("small", nodeName="n"))
        await server.remove(PODS, "big")
        await settle()
        assert await server.store.revision() == written + 3
        await CLOCK.sleep(3600)
        assert await server.store.revision() == written + 3
        assert server.bindings == []


@pytest.mark.parametrize(
    "failure", [conflict(PODS, "a"), StatusError(500, "InternalError", "x"), ConnectionError("cut")]
)
@virtual_time
async def test_a_failed_binding_is_tried_again_after_a_wait(
    server: Server, failure: Exception
) -> None:
    await server.put(NODES, node("n"))

    async def refuse_twice(pod: str, node: str) -> None:
        if len(server.bindings) <= 2:
            raise failure

    server.refuse_binding = refuse_twice
    async with scheduling(server):
        await server.put(PODS, pod("a"))
        await CLOCK.sleep(60)
        assert server.node_of("a") == "n"
    assert server.bindings == [("a", "n")] * 3
    assert len(set(server.bound_at)) == 3, "it waits between two tries"


@virtual_time
async def test_a_forbidden_binding_is_said_in_the_pod(server: Server) -> None:
    await server.put(NODES, node("n"))

    async def forbid_once(pod: str, node: str) -> None:
        if len(server.bindings) == 1:
            raise StatusError(403, "Forbidden", "only an admin brings programs there")

    server.refuse_binding = forbid_once
    async with scheduling(server):
        await server.put(PODS, pod("a"))
        await settle()
        assert server.message_of("a") == "only an admin brings programs there"
        await CLOCK.sleep(60)
        assert server.node_of("a") == "n"


@virtual_time
async def test_the_place_is_kept_while_nobody_knows_whether_the_binding_was_taken(
    server: Server,
) -> None:
    await server.put(NODES, node("n"))

    async def cut_once(pod: str, node: str) -> None:
        if server.bindings == [("a", "n")]:
            raise ConnectionError("cut")

    server.refuse_binding = cut_once
    async with scheduling(server):
        await server.put(PODS, pod("a", "600m"))
        await settle()
        await server.put(PODS, pod("b", "600m"))
        await settle()
        assert server.message_of("b") == "0/1 nodes are available: 1 Insufficient cpu."
        await CLOCK.sleep(60)
        assert [server.node_of(name) for name in ("a", "b")] == ["n", ""]


@virtual_time
async def test_the_place_is_kept_until_the_watch_tells_of_the_binding(server: Server) -> None:
    await server.put(NODES, node("n"))
    server.hides = lambda event: bool(lookup(event.object, "spec", "nodeName"))
    async with scheduling(server):
        await server.put(PODS, pod("a", "600m"))
        await settle()
        assert server.node_of("a") == "n"
        await server.put(PODS, pod("b", "600m"))
        await settle()
        assert server.bindings == [("a", "n")]


@virtual_time
async def test_a_pod_that_vanished_before_it_was_bound_is_forgotten(server: Server) -> None:
    await server.put(NODES, node("n"))

    async def vanish(pod: str, node: str) -> None:
        if pod == "a":
            await server.remove(PODS, "a")

    server.refuse_binding = vanish
    async with scheduling(server):
        await server.put(PODS, pod("a", "800m"))
        await settle()
        await server.put(PODS, pod("b", "800m"))
        await settle()
        assert server.node_of("b") == "n"
    assert server.bindings == [("a", "n"), ("b", "n")]


@virtual_time
async def test_a_hundred_pods_at_once(server: Server) -> None:
    for name in ("n1", "n2", "n3"):
        await server.put(NODES, node(name, "3"))
    async with scheduling(server):
        for number in range(100):
            await server.put(PODS, pod(f"p{number:03}"))
        for _ in range(10):
            await settle()
    placed = [server.node_of(name_of(one)) for one in server.all(PODS)]
    assert [placed.count(name) for name in ("n1", "n2", "n3", "")] == [30, 30, 30, 10]
