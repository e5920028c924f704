"""Where a pod goes and why not elsewhere: table tests, then the property that nothing overfills."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.resources import Amounts, add
from livesize.scheduler.plan import (
    AssignedNode,
    NodeView,
    Unschedulable,
    WaitingPod,
    balanced,
    charge_node,
    least_allocated,
    opens_up,
    plan_placement,
    plan_turn,
)

GIB = 2**30


def pod(cpu: int = 100, memory: int = GIB, name: str = "p", **rest: Any) -> WaitingPod:
    return WaitingPod("default", name, name, Amounts(cpu, memory), **rest)


def node(name: str, cpu: int = 1000, memory: int = 4 * GIB, **rest: Any) -> NodeView:
    return NodeView(name, Amounts(cpu, memory), **rest)


def taint(effect: str) -> dict[str, str]:
    return {"key": "dedicated", "value": "db", "effect": effect}


amounts = st.builds(Amounts, st.integers(0, 1200), st.integers(0, 1200))
pods = st.lists(st.tuples(amounts, st.integers(0, 2)), max_size=12).map(
    lambda items: [
        WaitingPod("default", f"p{i}", f"p{i}", requests, priority=priority)
        for i, (requests, priority) in enumerate(items)
    ]
)
nodes = st.lists(
    st.builds(
        lambda allocatable, used, maximum: (allocatable, used, maximum),
        amounts,
        amounts,
        st.none() | st.integers(0, 3),
    ),
    max_size=4,
).map(
    lambda items: [
        NodeView(f"n{i}", allocatable, used, maximum_pods=maximum)
        for i, (allocatable, used, maximum) in enumerate(items)
    ]
)


@pytest.mark.parametrize(
    ("asked", "nodes", "chosen"),
    [
        pytest.param(pod(), [node("a")], "a", id="the only node"),
        pytest.param(pod(1000, 4 * GIB), [node("a")], "a", id="an exact fit fits"),
        pytest.param(pod(), [node("b"), node("a")], "a", id="ties go by name"),
        pytest.param(
            pod(),
            [node("a", used=Amounts(500, 2 * GIB)), node("b", used=Amounts(100, GIB))],
            "b",
            id="the emptier node",
        ),
        pytest.param(
            pod(),
            [node("a", used=Amounts(700, 0)), node("b", used=Amounts(200, 2 * GIB))],
            "b",
            id="the better balanced of two equally empty nodes",
        ),
        pytest.param(
            pod(), [node("a", is_unschedulable=True), node("b")], "b", id="a closed node is out"
        ),
        pytest.param(
            pod(), [node("a", is_ready=False), node("b")], "b", id="a node not ready is out"
        ),
        pytest.param(
            pod(), [node("a", taints=(taint("NoSchedule"),)), node("b")], "b", id="tainted"
        ),
        pytest.param(
            pod(tolerations=({"operator": "Exists"},)),
            [node("a", taints=(taint("NoSchedule"),)), node("b")],
            "a",
            id="tainted and tolerated",
        ),
        pytest.param(
            pod(),
            [node("a", taints=(taint("PreferNoSchedule"),)), node("b", used=Amounts(800, 0))],
            "b",
            id="better not there",
        ),
        pytest.param(
            pod(), [node("a", taints=(taint("PreferNoSchedule"),))], "a", id="nowhere else"
        ),
        pytest.param(
            pod(affinity=({"matchExpressions": [{"key": "disk", "operator": "Exists"}]},)),
            [node("a"), node("b", labels={"disk": "slow"})],
            "b",
            id="by affinity",
        ),
        pytest.param(
            pod(node_selector=(("disk", "fast"),)),
            [node("a"), node("b", labels={"disk": "slow"}), node("c", labels={"disk": "fast"})],
            "c",
            id="labels must match the selector",
        ),
        pytest.param(
            pod(0, 0), [node("a", used=Amounts(2000, 9 * GIB))], "a", id="nothing always fits"
        ),
        pytest.param(
            pod(0, 0),
            [node("a", pod_count=1), node("b")],
            "b",
            id="pods that ask for nothing are spread",
        ),
        pytest.param(
            pod(), [node("a", maximum_pods=3, pod_count=3), node("b")], "b", id="too many pods"
        ),
        pytest.param(pod(0, GIB), [node("a", cpu=0)], "a", id="no CPU needed, none there"),
    ],
)
def test_choice(asked: WaitingPod, nodes: list[NodeView], chosen: str) -> None:
    assert plan_placement(asked, nodes) == AssignedNode(chosen)


@pytest.mark.parametrize(
    ("used", "empty", "even"),
    [
        pytest.param(Amounts(0, 0), 825, 850, id="a quarter of the memory, a tenth of the CPU"),
        pytest.param(Amounts(400, GIB), 500, 1000, id="half of both"),
        pytest.param(Amounts(900, 0), 375, 250, id="no CPU left"),
        pytest.param(Amounts(900, 3 * GIB), 0, 1000, id="full"),
        pytest.param(Amounts(5000, 9 * GIB), 0, 1000, id="fuller than full is full"),
    ],
)
def test_scores(used: Amounts, empty: int, even: int) -> None:
    of = (pod(100, GIB), node("a", used=used))
    assert (least_allocated(*of), balanced(*of)) == (empty, even)


OPEN = node("a", labels={"disk": "slow"}, taints=(taint("NoSchedule"),), maximum_pods=3)


@pytest.mark.parametrize(
    ("changes", "helps"),
    [
        pytest.param({}, False, id="nothing changed"),
        pytest.param({"allocatable": Amounts(1001, 4 * GIB)}, True, id="more CPU"),
        pytest.param({"allocatable": Amounts(1, 5 * GIB)}, True, id="more memory, less CPU"),
        pytest.param({"allocatable": Amounts(999, 4 * GIB)}, False, id="less CPU"),
        pytest.param({"labels": {"disk": "fast"}}, True, id="another label"),
        pytest.param({"taints": ()}, True, id="the taint is gone"),
        pytest.param({"taints": (taint("PreferNoSchedule"),)}, True, id="the taint is softer"),
        pytest.param(
            {"taints": (taint("NoSchedule"), taint("NoExecute"))}, False, id="one more taint"
        ),
        pytest.param({"maximum_pods": 4}, True, id="more pods"),
        pytest.param({"maximum_pods": None}, True, id="as many pods as fit"),
        pytest.param({"maximum_pods": 2}, False, id="fewer pods"),
        pytest.param({"is_ready": False}, False, id="not ready any more"),
        pytest.param({"is_unschedulable": True}, False, id="closed"),
        pytest.param(
            {"is_unschedulable": True, "labels": {}}, False, id="closed, whatever else changed"
        ),
    ],
)
def test_what_of_a_node_could_help(changes: dict[str, Any], helps: bool) -> None:
    assert opens_up(OPEN, msgspec.structs.replace(OPEN, **changes)) is helps


def test_a_node_that_opens_could_help() -> None:
    closed = msgspec.structs.replace(OPEN, is_unschedulable=True)
    silent = msgspec.structs.replace(OPEN, is_ready=False)
    assert all(opens_up(before, OPEN) for before in (None, closed, silent))


@given(pods, nodes, nodes)
def test_what_does_not_open_up_helps_nobody(
    pods: list[WaitingPod], before: list[NodeView], after: list[NodeView]
) -> None:
    for one in pods:
        for old, changed in zip(before, after, strict=False):
            new = msgspec.structs.replace(changed, used=old.used)
            finds = isinstance(plan_placement(one, [new]), AssignedNode)
            found = isinstance(plan_placement(one, [old]), AssignedNode)
            assert found or not finds or opens_up(old, new)


@pytest.mark.parametrize(
    ("asked", "nodes", "sentence"),
    [
        pytest.param(pod(), [], "no nodes available to schedule pods", id="no nodes"),
        pytest.param(
            pod(1001),
            [node("a"), node("b", is_unschedulable=True)],
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.",
            id="each node has its own reason",
        ),
        pytest.param(
            pod(600, 3 * GIB),
            [node("a", used=Amounts(600, 2 * GIB)), node("b", used=Amounts(600, 0))],
            "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.",
            id="one node may have two reasons",
        ),
        pytest.param(
            pod(node_selector=(("disk", "fast"),)),
            [node("a"), node("b", is_ready=False), node("c", maximum_pods=0)],
            "0/3 nodes are available: 1 node(s) were not ready,"
            " 2 node(s) didn't match Pod's node affinity/selector.",
            id="a node that is not to be used says only that",
        ),
        pytest.param(
            pod(),
            [node("a", maximum_pods=1, pod_count=1)],
            "0/1 nodes are available: 1 Too many pods.",
            id="too many pods",
        ),
    ],
)
def test_refusal(asked: WaitingPod, nodes: list[NodeView], sentence: str) -> None:
    verdict = plan_placement(asked, nodes)
    assert isinstance(verdict, Unschedulable)
    assert verdict.sentence() == sentence


def test_a_turn_counts_what_it_has_placed() -> None:
    pods = [pod(600, name=name) for name in "xyz"]
    verdicts = [placement.verdict for placement in plan_turn(pods, [node("a"), node("b")])]
    assert verdicts[:2] == [AssignedNode("a"), AssignedNode("b")]
    assert isinstance(verdicts[2], Unschedulable)


def test_a_turn_takes_the_important_and_then_the_old_first() -> None:
    pods = [
        pod(name="young", created_at="2026-01-02T00:00:00Z"),
        pod(name="old", created_at="2026-01-01T00:00:00Z"),
        pod(name="important", created_at="2026-01-03T00:00:00Z", priority=10),
    ]
    order = [placement.pod.name for placement in plan_turn(pods, [node("a")])]
    assert order == ["important", "old", "young"]


def _exceeds(used: Amounts, allocatable: Amounts) -> set[str]:
    pairs = {
        "cpu": (used.cpu_milli, allocatable.cpu_milli),
        "memory": (used.memory_bytes, allocatable.memory_bytes),
    }
    return {name for name, (left, right) in pairs.items() if (left or 0) > (right or 0)}


@given(pods, nodes)
def test_a_turn_never_overfills_a_node(pods: list[WaitingPod], nodes: list[NodeView]) -> None:
    placements = plan_turn(pods, nodes)
    assert {placement.pod.name for placement in placements} == {one.name for one in pods}

    used: dict[str, Amounts] = {one.name: one.used for one in nodes}
    counts: dict[str, int] = defaultdict(int)
    before = {one.name: _exceeds(one.used, one.allocatable) for one in nodes}
    for placement in placements:
        if isinstance(placement.verdict, AssignedNode):
            name = placement.verdict.node
            used[name] = add(used[name], placement.pod.requests)
            counts[name] += 1
    for one in nodes:
        assert _exceeds(used[one.name], one.allocatable) == before[one.name]
        assert one.maximum_pods is None or counts[one.name] <= one.maximum_pods


@given(pods, nodes)
def test_who_gets_no_node_would_fit_nowhere_afterwards(
    pods: list[WaitingPod], nodes: list[NodeView]
) -> None:
    full = {one.name: one for one in nodes}
    placements = plan_turn(pods, nodes)
    for placement in placements:
        if isinstance(placement.verdict, AssignedNode):
            name = placement.verdict.node
            full[name] = charge_node(full[name], placement.pod)
    for placement in placements:
        if isinstance(placement.verdict, Unschedulable):
            again = plan_placement(placement.pod, list(full.values()))
            assert isinstance(again, Unschedulable)
