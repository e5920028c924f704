"""Nodes that are not heard any more: what is said of them, when, and what goes with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.objects import Object, evolve, lookup
from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.node_lifecycle.plan import (
    NOT_READY,
    OURS,
    UNREACHABLE,
    UNSCHEDULABLE,
    plan_node,
)
from livesize.controllers.node_lifecycle.reconcile import node_lifecycle_controller
from unit.apiserver.conftest import IDENTITIES, Rig
from unit.controllers.at_work import at_work

NOW = "2026-01-31T12:00:00Z"
OTHER = {"key": "example.com/gpu", "value": "a", "effect": "NoExecute"}


def taint(key: str) -> Object:
    return {"key": key, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def node(ready: str | None = "True", *taints: Object, unschedulable: bool = False) -> Object:
    conditions = [{"type": "DiskPressure", "status": "False", "lastTransitionTime": "before"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready, "lastTransitionTime": "before"})
    spec: Object = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}


def keys(taints: list[Object] | None) -> list[str] | None:
    return None if taints is None else [one["key"] for one in taints]


@pytest.mark.parametrize(
    ("seen", "silent", "taints"),
    [
        pytest.param(node(), False, None, id="a node that is well stays as it is"),
        pytest.param(node(), True, [UNREACHABLE], id="silent"),
        pytest.param(node("Unknown", taint(UNREACHABLE)), True, None, id="still silent"),
        pytest.param(node("True", taint(UNREACHABLE)), False, [], id="back"),
        pytest.param(node("False"), False, [NOT_READY], id="says it is not ready"),
        pytest.param(node("False", taint(NOT_READY)), True, [UNREACHABLE], id="then silent"),
        pytest.param(node(None), False, None, id="has said nothing yet"),
        pytest.param(node(unschedulable=True), False, [UNSCHEDULABLE], id="cordoned"),
        pytest.param(node("True", taint(UNSCHEDULABLE)), False, [], id="uncordoned"),
        pytest.param(
            node("True", OTHER, taint(UNREACHABLE)), False, ["example.com/gpu"], id="others stay"
        ),
    ],
)
def test_taints_follow_what_the_node_says(
    seen: Object, silent: bool, taints: list[str] | None
) -> None:
    assert keys(plan_node(seen, is_silent=silent, now=NOW).taints) == taints


def test_every_condition_of_a_silent_node_is_unknown() -> None:
    plan = plan_node(node(), is_silent=True, now=NOW)
    assert plan.conditions == [
        {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": NOW,
        }
        for kind in ("DiskPressure", "Ready")
    ]


def test_a_node_that_never_said_anything_is_unknown_too() -> None:
    plan = plan_node({"metadata": {"name": "n1"}}, is_silent=True, now=NOW)
    assert plan.conditions is not None
    assert [one["reason"] for one in plan.conditions] == ["NodeStatusNeverUpdated"]


@given(
    ready=st.sampled_from(["True", "False", "Unknown", None]),
    taints=st.lists(st.sampled_from([*OURS, "example.com/gpu"]), unique=True),
    unschedulable=st.booleans(),
    silent=st.booleans(),
)
def test_what_is_planned_is_planned_again_to_nothing(
    ready: str | None, taints: list[str], unschedulable: bool, silent: bool
) -> None:
    seen = node(ready, *map(taint, taints), unschedulable=unschedulable)
    plan = plan_node(seen, is_silent=silent, now=NOW)
    if plan.taints is not None:
        seen = evolve(seen, ("spec", "taints"), plan.taints)
    if plan.conditions is not None:
        seen = evolve(seen, ("status", "conditions"), plan.conditions)
    again = plan_node(seen, is_silent=silent, now="2026-02-01T00:00:00Z")
    assert (again.conditions, again.taints) == (None, None)
    left = {one["key"] for one in lookup(seen, "spec", "taints", default=[])}
    assert ("example.com/gpu" in left) == ("example.com/gpu" in taints)
    assert left <= {"example.com/gpu", NOT_READY, UNREACHABLE, UNSCHEDULABLE}
    assert not {NOT_READY, UNREACHABLE} <= left


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, node_lifecycle_controller))
    yield rig
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(8):
        while not await condition():
            await asyncio.sleep(0.02)


READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": NOW}


async def test_a_node_goes_silent_and_comes_back(rig: Rig) -> None:
    path = "/api/v1/nodes/n9"
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    await rig.request("POST", "/api/v1/nodes", {"metadata": {"name": "n9"}})
    lease = {"metadata": {"name": "n9"}, "spec": {"leaseDurationSeconds": 2}}
    await rig.request("POST", leases, lease)
    await rig.patch(f"{path}/status", {"status": {"conditions": [READY]}})

    async def state() -> tuple[Any, Any]:
        seen = (await rig.get(path)).json
        ready = [c for c in seen["status"]["conditions"] if c["type"] == "Ready"]
        return ready[0]["status"], keys(lookup(seen, "spec", "taints"))

    async def silent() -> bool:
        return await state() == ("Unknown", [UNREACHABLE])

    for number in range(11):  # a heart that beats: longer than the lease lasts, all in all
        await asyncio.sleep(0.2)
        spec = {"renewTime": f"2026-01-31T12:00:{number:02}.000000Z"}
        await rig.patch(f"{leases}/n9", {"spec": spec})
        assert await state() == ("True", None)
    await until(silent)

    async def told() -> bool:
        events = (await rig.get("/api/v1/namespaces/default/events")).json["items"]
        return [event["reason"] for event in events] == ["NodeNotReady"]

    await until(told)
    back = {**READY, "lastHeartbeatTime": "2026-01-31T12:10:00Z"}
    await rig.patch(f"{path}/status", {"status": {"conditions": [back]}})

    async def well() -> bool:
        return await state() == ("True", None)

    await until(well)
    await rig.patch(path, {"spec": {"unschedulable": True}})

    async def cordoned() -> bool:
        return UNSCHEDULABLE in ((await state())[1] or [])

    await until(cordoned)
