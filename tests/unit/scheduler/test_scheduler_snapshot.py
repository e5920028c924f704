"""The snapshot: the same picture whatever the way there, and whether a change makes room."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.objects import Object
from livesize.api.resources import Amounts
from livesize.scheduler.snapshot import ClusterSnapshot, node_view, pod_view

MIB = 2**20


def pod(name: str = "p", cpu: str = "100m", node: str = "", **rest: Any) -> Object:
    spec: Object = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
        **rest.pop("spec", {}),
    }
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "uid": name, **rest.pop("metadata", {})}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {}, **rest}


def node(name: str = "n", cpu: str = "1", **rest: Any) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": rest.pop("labels", {})},
        "spec": rest.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": rest.pop("ready", "True")}],
        },
    }


def test_views_say_what_the_objects_say() -> None:
    viewed = node_view(node(cpu="1500m", labels={"a": "b"}, spec={"unschedulable": True}))
    assert viewed.allocatable == Amounts(1500, 1024 * MIB)
    assert viewed.maximum_pods == 110
    assert viewed.labels == {"a": "b"}
    assert viewed.is_ready
    assert viewed.is_unschedulable
    assert not node_view(node(ready="Unknown")).is_ready
    assert not node_view({"metadata": {"name": "bare"}}).is_ready

    asked = pod_view(pod(spec={"nodeSelector": {"b": "1", "a": "2"}, "overhead": {"cpu": "50m"}}))
    assert asked.requests == Amounts(150, MIB)
    assert asked.node_selector == (("a", "2"), ("b", "1"))


@pytest.mark.parametrize(
    ("changed", "waits"),
    [
        pytest.param({}, True, id="an ordinary pod"),
        pytest.param({"node": "n"}, False, id="bound"),
        pytest.param({"metadata": {"deletionTimestamp": "t"}}, False, id="being deleted"),
        pytest.param({"status": {"phase": "Failed"}}, False, id="ended"),
        pytest.param({"spec": {"schedulingGates": [{"name": "g"}]}}, False, id="gated"),
        pytest.param({"spec": {"schedulerName": "other"}}, False, id="somebody else's"),
        pytest.param({"spec": {"schedulerName": "default-scheduler"}}, True, id="ours"),
    ],
)
def test_which_pods_wait(changed: dict[str, Any], waits: bool) -> None:
    snapshot = ClusterSnapshot.of([], [pod(**changed)])
    assert (snapshot.waiting("p") is not None) is waits


def test_bound_pods_count_with_their_footprint_until_they_end() -> None:
    allocated = [{"name": "c", "requests": {"cpu": "300m", "memory": "2Mi"}}]
    deferred = pod("p", "900m", "n")
    deferred["status"] = {"resizeState": {"phase": "Deferred", "allocated": allocated}}
    ended = pod("q", "500m", "n")
    ended["status"] = {"phase": "Succeeded"}
    [viewed] = ClusterSnapshot.of([node()], [deferred, ended]).nodes()
    assert viewed.used == Amounts(300, 2 * MIB)
    assert viewed.pod_count == 1


def test_an_assumed_pod_counts_and_does_not_wait() -> None:
    snapshot = ClusterSnapshot.of([node()], [pod()])
    waiting = snapshot.waiting("p")
    assert waiting is not None
    snapshot.assume(waiting, "n")
    assert snapshot.waiting("p") is None
    assert snapshot.nodes()[0].used == Amounts(100, MIB)
    snapshot.set_pod(pod())  # an old state of it arrives
    assert snapshot.waiting("p") is None

    assert snapshot.forget_assumed("p")
    assert snapshot.waiting("p") == waiting
    assert snapshot.nodes()[0].used == Amounts(0, 0)


def test_an_assumption_ends_with_the_truth() -> None:
    snapshot = ClusterSnapshot.of([node("a"), node("b")], [pod()])
    waiting = snapshot.waiting("p")
    assert waiting is not None
    snapshot.assume(waiting, "a")
    snapshot.set_pod(pod(node="b"))
    assert [viewed.pod_count for viewed in snapshot.nodes()] == [0, 1]
    assert not snapshot.forget_assumed("p")
    assert [viewed.pod_count for viewed in snapshot.nodes()] == [0, 1]


def test_what_could_make_room() -> None:
    snapshot = ClusterSnapshot()
    assert snapshot.set_node(node())
    assert not snapshot.set_node(node())  # a heartbeat
    assert snapshot.set_node(node(cpu="2"))
    assert not snapshot.set_node(node(cpu="2", ready="False"))
    assert snapshot.set_node(node(cpu="2"))
    assert not snapshot.set_pod(pod(node="n"))  # takes room
    assert not snapshot.set_pod(pod(node="n"))  # says nothing new
    assert not snapshot.set_pod(pod(cpu="200m", node="n"))  # takes more
    assert snapshot.set_pod(pod(cpu="50m", node="n"))  # gives back
    assert snapshot.set_pod(pod(node="n", status={"phase": "Succeeded"}))
    assert not snapshot.drop_pod(pod(node="n"))  # had given everything back
    assert not snapshot.set_pod(pod("q", node="n"))
    assert snapshot.drop_pod(pod("q", node="n"))
    assert not snapshot.drop_node(node())
    assert snapshot.nodes() == []


names = st.sampled_from(["p", "q", "r"])
states = st.builds(
    pod,
    names,
    st.sampled_from(["100m", "250m"]),
    st.sampled_from(["", "a", "b"]),
    status=st.sampled_from([{}, {"phase": "Running"}, {"phase": "Failed"}]),
)


@given(st.lists(st.tuples(states, st.booleans()), max_size=12))
def test_the_picture_does_not_depend_on_the_way_there(changes: list[tuple[Object, bool]]) -> None:
    snapshot = ClusterSnapshot.of([node("a"), node("b")], [])
    present: dict[str, Object] = {}
    for state, is_deleted in changes:
        name = state["metadata"]["name"]
        if is_deleted:
            snapshot.drop_pod(state)
            present.pop(name, None)
        else:
            # The API never takes a pod off its node: such a pod is another one of that name.
            was_bound = "nodeName" in present.get(name, {}).get("spec", {})
            if was_bound and "nodeName" not in state["spec"]:
                snapshot.drop_pod(present[name])
            snapshot.set_pod(state)
            present[name] = state
    fresh = ClusterSnapshot.of([node("b"), node("a")], present.values())
    assert snapshot.nodes() == fresh.nodes()
    for name in ("p", "q", "r"):
        assert snapshot.waiting(name) == fresh.waiting(name)
