"""The loop against a small API server in memory: who is bound where, and what is written why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from livesize.api.conditions import find_condition
from livesize.api.errors import StatusError, conflict, not_found
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, evolve, lookup, name_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.patch.strategic import strategic_merge
from livesize.client.interface import Client
from livesize.machinery.context import seeded_context
from livesize.scheduler.loop import Scheduler


class Server:
    """Objects of all kinds; tells watchers of every change. ``refuse_binding`` may raise."""

    def __init__(self) -> None:
        self.objects: dict[Resource, dict[str, Object]] = {one: {} for one in REGISTRY.stored()}
        self.revision = 0
        self.watchers: dict[Resource, list[asyncio.Queue[WatchEvent]]] = {}
        self.bindings: list[tuple[str, str]] = []
        self.status_patches: list[tuple[str, Object]] = []
        self.refuse_binding: Callable[[str, str], None] = lambda pod, node: None

    def put(self, resource: Resource, obj: Object) -> None:
        self.revision += 1
        is_new = name_of(obj) not in self.objects[resource]
        obj = evolve(obj, ("metadata", "resourceVersion"), str(self.revision))
        self.objects[resource][name_of(obj)] = obj
        self._tell(resource, WatchEventType.ADDED if is_new else WatchEventType.MODIFIED, obj)

    def remove(self, resource: Resource, name: str) -> None:
        self.revision += 1
        gone = self.objects[resource].pop(name)
        gone = evolve(gone, ("metadata", "resourceVersion"), str(self.revision))
        self._tell(resource, WatchEventType.DELETED, gone)

    def node_of(self, pod: str) -> str:
        return str(lookup(self.objects[PODS][pod], "spec", "nodeName", default=""))

    def message_of(self, pod: str) -> str | None:
        condition = find_condition(self.objects[PODS][pod], "PodScheduled")
        return None if condition is None else condition["message"]

    def _tell(self, resource: Resource, kind: WatchEventType, obj: Object) -> None:
        for queue in self.watchers.get(resource, []):
            queue.put_nowait(WatchEvent(kind, obj))

    async def list(
        self, resource: Resource, selection: Selection = EVERYTHING, **_: Any
    ) -> ObjectList:
        return ObjectList(tuple(self.objects[resource].values()), str(self.revision))

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        if initial_events:
            raise StatusError(422, "Invalid", "this small server does not offer initial events")
        assert resource_version == str(self.revision), "this small server keeps no history"
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.watchers.setdefault(resource, []).append(queue)
        while True:
            yield await queue.get()

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        self.put(resource, obj)
        return obj

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Object:
        assert (patch_type, subresource) == (PatchType.STRATEGIC, "status")
        self.status_patches.append((name, patch))
        old = self.objects[resource][name]
        self.put(resource, strategic_merge(old, patch, kind_of(resource).schema.root))
        return self.objects[resource][name]

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        assert (resource, subresource, body["kind"]) == (PODS, "binding", "Binding")
        node = body["target"]["name"]
        self.bindings.append((name, node))
        self.refuse_binding(name, node)
        pod = self.objects[PODS].get(name)
        if pod is None:
            raise not_found(PODS, name)
        if lookup(pod, "spec", "nodeName") or uid_of(pod) != body["metadata"]["uid"]:
            raise conflict(PODS, name)
        self.put(PODS, evolve(pod, ("spec", "nodeName"), node))
        return {}


class JumpingClock:
    """Sleeping takes a turn of the loop, and the clock jumps, as long as it may."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0
        self.may_jump = asyncio.Event()
        self.may_jump.set()
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)
        await self.may_jump.wait()
        self.seconds += seconds


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
    """Let everything run that can: nothing here waits for real time."""
    for _ in range(60):
        await asyncio.sleep(0)


@asynccontextmanager
async def scheduling(server: Server, clock: JumpingClock | None = None) -> AsyncIterator[None]:
    scheduler = Scheduler(
        cast("Client", server), context=seeded_context(1, clock or JumpingClock())
    )
    running = asyncio.create_task(scheduler.run())
    await settle()
    try:
        yield
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_a_pod_that_was_there_and_one_that_comes_are_bound(server: Server) -> None:
    server.put(NODES, node("n"))
    server.put(PODS, pod("early"))
    async with scheduling(server):
        assert server.node_of("early") == "n"
        server.put(PODS, pod("late"))
        await settle()
        assert server.node_of("late") == "n"
    reasons = [(e["reason"], e["message"]) for e in server.objects[EVENTS].values()]
    assert ("Scheduled", "Successfully assigned default/late to n") in reasons


async def test_pods_of_one_turn_do_not_overfill_a_node(server: Server) -> None:
    server.put(NODES, node("n"))
    async with scheduling(server):
        for name in ("a", "b", "c"):
            server.put(PODS, pod(name, "400m"))
        await settle()
        assert [server.node_of(name) for name in ("a", "b", "c")] == ["n", "n", ""]
        assert server.message_of("c") == "0/1 nodes are available: 1 Insufficient cpu."


async def test_no_node_is_said_once_and_in_full(server: Server) -> None:
    server.put(NODES, node("n"))
    async with scheduling(server):
        server.put(PODS, evolve(pod("big", "2"), ("metadata", "generation"), 3))
        await settle()
        condition = find_condition(server.objects[PODS]["big"], "PodScheduled")
        assert condition == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
            "observedGeneration": 3,
        }
        server.put(NODES, node("closed", unschedulable=True))
        await settle()
        changed = find_condition(server.objects[PODS]["big"], "PodScheduled")
        assert changed is not None
        assert changed["message"] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        )
        assert changed["lastTransitionTime"] == condition["lastTransitionTime"]
        server.put(NODES, {**node("n"), "metadata": {"name": "n", "labels": {"x": "y"}}})
        await settle()
        assert len(server.status_patches) == 2
    assert [e["reason"] for e in server.objects[EVENTS].values()] == ["FailedScheduling"] * 2


async def test_without_nodes_a_pod_waits_for_the_first_one(server: Server) -> None:
    async with scheduling(server):
        server.put(PODS, pod("a"))
        await settle()
        assert server.message_of("a") == "no nodes available to schedule pods"
        server.put(NODES, node("n"))
        await settle()
        assert server.node_of("a") == "n"


def _grow_node(server: Server) -> None:
    server.put(NODES, node("n", "2"))


def _delete_other(server: Server) -> None:
    server.remove(PODS, "other")


def _end_other(server: Server) -> None:
    server.put(PODS, evolve(server.objects[PODS]["other"], ("status", "phase"), "Succeeded"))


def _shrink_other(server: Server) -> None:
    allocated = [{"name": "c", "requests": {"cpu": "100m", "memory": "1Mi"}}]
    state = {"phase": "Done", "allocated": allocated}
    server.put(PODS, evolve(server.objects[PODS]["other"], ("status", "resizeState"), state))


def _shrink_itself(server: Server) -> None:
    requests = ("spec", "containers", 0, "resources", "requests", "cpu")
    server.put(PODS, evolve(server.objects[PODS]["big"], requests, "50m"))


@pytest.mark.parametrize(
    "help_it", [_grow_node, _delete_other, _end_other, _shrink_other, _shrink_itself]
)
async def test_what_helps_leads_to_a_new_try(
    server: Server, help_it: Callable[[Server], None]
) -> None:
    server.put(NODES, node("n"))
    server.put(PODS, pod("other", "900m", nodeName="n"))
    server.put(PODS, pod("big", "800m"))
    async with scheduling(server):
        assert server.node_of("big") == ""
        help_it(server)
        await settle()
        assert server.node_of("big") == "n"


def _with_node(**changes: Any) -> Callable[[Server], None]:
    def change(server: Server) -> None:
        """The whole node as it is afterwards."""
        found = server.objects[NODES]["n"]
        server.put(NODES, {**found, **changes})

    return change


def _with_pod(**spec: Any) -> Callable[[Server], None]:
    def change(server: Server) -> None:
        found = server.objects[PODS]["lost"]
        server.put(PODS, {**found, "spec": {**found["spec"], **spec}})

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
async def test_what_opens_a_node_leads_to_a_new_try(
    server: Server, before: Object, spec: Object, help_it: Callable[[Server], None]
) -> None:
    clock = JumpingClock()
    server.put(NODES, {**node("n"), **before})
    server.put(PODS, pod("lost", **spec))
    async with scheduling(server, clock):
        assert server.node_of("lost") == ""
        help_it(server)
        await settle()
        assert server.node_of("lost") == "n"
    assert clock.slept == [], "nothing is looked at by the clock"


async def test_what_closes_a_node_leads_to_no_try(server: Server) -> None:
    server.put(NODES, node("n"))
    server.put(PODS, pod("big", "2"))
    async with scheduling(server):
        told = server.message_of("big")
        server.put(NODES, node("n", unschedulable=True))
        await settle()
        assert server.message_of("big") == told


@pytest.mark.parametrize(
    ("cpu", "phase", "is_bound"),
    [("100m", "Running", True), ("950m", "Running", False), ("950m", "Succeeded", True)],
    ids=["smaller", "larger", "ended"],
)
async def test_who_comes_later_meets_the_newest_sizes(
    server: Server, cpu: str, phase: str, is_bound: bool
) -> None:
    server.put(NODES, node("n"))
    server.put(PODS, pod("other", "500m", nodeName="n"))
    async with scheduling(server):
        for size in ("700m", cpu):
            allocated = [{"name": "c", "requests": {"cpu": size, "memory": "1Mi"}}]
            status = {"phase": phase, "resizeState": {"phase": "Done", "allocated": allocated}}
            server.put(PODS, {**server.objects[PODS]["other"], "status": status})
            await settle()
        server.put(PODS, pod("later", "400m"))
        await settle()
        assert server.node_of("later") == ("n" if is_bound else "")


async def test_what_cannot_help_leads_to_nothing(server: Server) -> None:
    clock = JumpingClock()
    server.put(NODES, node("n"))
    server.put(PODS, pod("big", "2"))
    async with scheduling(server, clock):
        written = server.revision
        server.put(NODES, node("n"))  # a heartbeat
        server.put(PODS, pod("small", nodeName="n"))
        server.remove(PODS, "big")
        await settle()
        assert server.revision == written + 3
        assert server.bindings == []
        assert clock.slept == []


@pytest.mark.parametrize(
    "failure", [conflict(PODS, "a"), StatusError(500, "InternalError", "x"), ConnectionError("cut")]
)
async def test_a_failed_binding_is_tried_again_after_a_wait(
    server: Server, failure: Exception
) -> None:
    clock = JumpingClock()
    server.put(NODES, node("n"))

    def refuse_twice(pod: str, node: str) -> None:
        if len(server.bindings) <= 2:
            raise failure

    server.refuse_binding = refuse_twice
    async with scheduling(server, clock):
        server.put(PODS, pod("a"))
        await settle()
        assert server.node_of("a") == "n"
    assert server.bindings == [("a", "n")] * 3
    assert len(clock.slept) == 2


async def test_a_forbidden_binding_is_said_in_the_pod(server: Server) -> None:
    server.put(NODES, node("n"))

    def forbid_once(pod: str, node: str) -> None:
        if len(server.bindings) == 1:
            raise StatusError(403, "Forbidden", "only an admin brings programs there")

    server.refuse_binding = forbid_once
    clock = JumpingClock()
    clock.may_jump.clear()
    async with scheduling(server, clock):
        server.put(PODS, pod("a"))
        await settle()
        assert server.message_of("a") == "only an admin brings programs there"
        clock.may_jump.set()
        await settle()
        assert server.node_of("a") == "n"


async def test_the_place_is_kept_while_nobody_knows_whether_the_binding_was_taken(
    server: Server,
) -> None:
    clock = JumpingClock()
    clock.may_jump.clear()
    server.put(NODES, node("n"))

    def cut_once(pod: str, node: str) -> None:
        if server.bindings == [("a", "n")]:
            raise ConnectionError("cut")

    server.refuse_binding = cut_once
    async with scheduling(server, clock):
        server.put(PODS, pod("a", "600m"))
        await settle()
        server.put(PODS, pod("b", "600m"))
        await settle()
        assert server.message_of("b") == "0/1 nodes are available: 1 Insufficient cpu."
        clock.may_jump.set()
        await settle()
        assert [server.node_of(name) for name in ("a", "b")] == ["n", ""]


async def test_the_place_is_kept_until_the_watch_tells_of_the_binding(server: Server) -> None:
    server.put(NODES, node("n"))
    async with scheduling(server):
        delayed = server.watchers.pop(PODS)
        server.put(PODS, pod("a", "600m"))
        delayed[0].put_nowait(WatchEvent(WatchEventType.ADDED, server.objects[PODS]["a"]))
        await settle()
        assert server.node_of("a") == "n"
        server.put(PODS, pod("b", "600m"))
        delayed[0].put_nowait(WatchEvent(WatchEventType.ADDED, server.objects[PODS]["b"]))
        await settle()
        assert server.bindings == [("a", "n")]


async def test_a_pod_that_vanished_before_it_was_bound_is_forgotten(server: Server) -> None:
    server.put(NODES, node("n"))

    def vanish(pod: str, node: str) -> None:
        if pod == "a":
            server.remove(PODS, "a")

    server.refuse_binding = vanish
    async with scheduling(server):
        server.put(PODS, pod("a", "800m"))
        await settle()
        server.put(PODS, pod("b", "800m"))
        await settle()
        assert server.node_of("b") == "n"
    assert server.bindings == [("a", "n"), ("b", "n")]


async def test_a_hundred_pods_at_once(server: Server) -> None:
    for name in ("n1", "n2", "n3"):
        server.put(NODES, node(name, "3"))
    async with scheduling(server):
        for number in range(100):
            server.put(PODS, pod(f"p{number:03}"))
        for _ in range(10):
            await settle()
    placed = [server.node_of(name) for name in server.objects[PODS]]
    assert [placed.count(name) for name in ("n1", "n2", "n3", "")] == [30, 30, 30, 10]
