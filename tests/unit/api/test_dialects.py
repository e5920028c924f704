"""Every dialect is derived from the stored state, and can be taken off again without a trace."""

from __future__ import annotations

import copy
import timeit
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.dialects import (
    check_derived,
    derive_dialects,
    node_allocation,
    strip_dialects,
)
from livesize.api.objects import Object, evolve, lookup
from livesize.api.resize_phase import ResizePhase

NOW = "2026-08-01T10:00:00Z"
OLD = {"cpu": "500m", "memory": "64Mi"}
NEW = {"cpu": "1", "memory": "64Mi"}
PENDING, PROGRESS, RESIZED = "PodResizePending", "PodResizeInProgress", "PodResized"


def stored(phase: str = "Requested", **extra: Any) -> Object:
    state = {
        "generation": 2,
        "desired": [{"name": "a", "requests": NEW}],
        "allocated": [{"name": "a", "requests": OLD}],
        "phase": phase,
        "message": "why",
        "transitionTime": NOW,
        **extra,
    }
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "generation": 3},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "resources": {"requests": NEW}}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "a", "resources": {"requests": OLD}}],
            "resizeState": state,
        },
    }


def unbound() -> Object:
    return {
        "kind": "Pod",
        "spec": {"containers": [{"name": "a", "resources": {"requests": NEW}}, {"name": "b"}]},
    }


@pytest.mark.parametrize(
    ("phase", "request_status", "conditions"),
    [
        ("None", "None", []),
        ("Requested", "Requested", [(RESIZED, "Requested", None)]),
        (
            "Infeasible",
            "Rejected",
            [(RESIZED, "Rejected", "Unresizable"), (PENDING, "True", "Infeasible")],
        ),
        (
            "Deferred",
            "Rejected",
            [(RESIZED, "Rejected", "Unresizable"), (PENDING, "True", "Deferred")],
        ),
        ("Accepted", "Accepted", [(RESIZED, "Accepted", None)]),
        ("InProgress", "Accepted", [(RESIZED, "Accepted", None), (PROGRESS, "True", None)]),
        (
            "Error",
            "Accepted",
            [(RESIZED, "Accepted", "ResizerFailed"), (PROGRESS, "True", "Error")],
        ),
        ("Done", "Done", [(RESIZED, "Done", None)]),
    ],
)
def test_the_table_of_design_5_1(phase: str, request_status: str, conditions: list) -> None:
    served = derive_dialects(stored(phase))
    assert served["spec"]["resizeRequest"]["requestStatus"] == request_status
    derived = served["status"]["conditions"][1:]
    assert [(one["type"], one["status"], one.get("reason")) for one in derived] == conditions
    assert all(one["observedGeneration"] == 2 for one in derived)
    assert all(one["lastTransitionTime"] == NOW and one["message"] == "why" for one in derived)


def test_a_verdict_stands_when_the_node_has_seen_a_later_generation() -> None:
    """Of a pod whose policies have changed meanwhile: no new request, and no new verdict."""
    pod = stored("Infeasible")
    pod["status"] = {**pod["status"], "observedGeneration": 5}
    derived = derive_dialects(pod)["status"]["conditions"]
    assert [one["observedGeneration"] for one in derived if one["type"] == PENDING] == [5]


def test_allocated_is_shown_in_both_dialects() -> None:
    served = derive_dialects(stored())
    assert served["spec"]["containers"][0]["resourcesAllocated"] == OLD
    assert served["status"]["containerStatuses"][0]["allocatedResources"] == OLD
    assert served["spec"]["resizeRequest"]["newResources"] == [{"name": "a", "requests": NEW}]


def test_older_clients_have_their_one_word() -> None:
    """status.resize of Kubernetes before 1.33; kubectl of then counts a node's pods by it."""
    words = {
        phase.value: derive_dialects(stored(phase.value))["status"].get("resize")
        for phase in ResizePhase
    }
    assert words == {
        "None": None,
        "Requested": "Proposed",
        "Accepted": "InProgress",
        "InProgress": "InProgress",
        "Error": "InProgress",
        "Deferred": "Deferred",
        "Infeasible": "Infeasible",
        "Done": None,
    }
    served = derive_dialects(stored("Deferred"))
    for word, fields in (("", []), ("Deferred", []), ("Infeasible", ["status.resize"])):
        sent = evolve(served, ("status", "resize"), word)
        errors = check_derived(sent, served, from_own_node=False)
        assert [error.field for error in errors] == fields


def test_the_policy_that_holds_is_shown_and_is_nobodys_to_write() -> None:
    """ARK's default, NoRestart, is shown, and is not written into the spec (decisions 2)."""
    served = derive_dialects(stored())
    live = {"name": "a", "cpu": "NoRestart", "memory": "NoRestart"}
    assert served["status"]["resizeState"]["resizePolicy"] == [live]
    assert "resizePolicy" not in served["spec"]["containers"][0]
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    other = derive_dialects(evolve(stored(), (*CONTAINER, "resizePolicy"), policy))
    restarts = {**live, "memory": "RestartContainer"}
    assert other["status"]["resizeState"]["resizePolicy"] == [restarts]
    path = ("status", "resizeState", "resizePolicy")
    changed = evolve(served, path, [restarts])
    [error] = check_derived(changed, served, from_own_node=False)
    assert error.field == "status.resizeState"


def test_until_bound_allocated_follows_the_requests() -> None:
    served = derive_dialects(unbound())
    assert served["spec"]["containers"][0]["resourcesAllocated"] == NEW
    assert "resourcesAllocated" not in served["spec"]["containers"][1]
    assert served["spec"]["resizeRequest"] == {"requestStatus": "None"}
    assert "status" not in served


def test_other_kinds_are_left_alone() -> None:
    node = {"kind": "Node", "spec": {"containers": []}, "status": {"conditions": []}}
    assert derive_dialects(node) is node
    assert strip_dialects(node) is node


texts = st.sampled_from(["a", "b", "c"])
quantities = st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.just("1"))
resources = st.fixed_dictionaries({}, optional={"requests": quantities, "limits": quantities})
size_lists = st.lists(
    st.builds(lambda name, size: {"name": name, **size}, texts, resources), max_size=3
)
states = st.fixed_dictionaries(
    {"phase": st.sampled_from([phase.value for phase in ResizePhase]), "allocated": size_lists},
    optional={"desired": size_lists, "generation": st.integers(), "message": st.text(max_size=5)},
)
containers = st.dictionaries(texts, resources).map(
    lambda sizes: [{"name": name, "resources": size} for name, size in sizes.items()]
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "resizeState": states,
        "conditions": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["Ready", "Mine"])}), min_size=1
        ),
        "containerStatuses": containers,
    },
)
stored_pods = st.fixed_dictionaries(
    {
        "kind": st.just("Pod"),
        "spec": st.fixed_dictionaries({"containers": containers}),
    },
    optional={"status": statuses},
)


@given(stored_pods)
def test_stripping_what_was_derived_gives_back_what_is_stored(pod: Object) -> None:
    before = copy.deepcopy(pod)
    served = derive_dialects(pod)
    assert pod == before, "deriving writes nothing"
    assert strip_dialects(served) == pod
    assert derive_dialects(served) == served
    assert check_derived(served, served, from_own_node=False) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "status", "containers", "conditions", "name", "type", "resourcesAllocated"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), json_values))
def test_any_json_can_be_stripped_and_checked(body: Object) -> None:
    pod = {**body, "kind": "Pod"}
    strip_dialects(pod)
    check_derived(pod, derive_dialects(stored()), from_own_node=True)


CONTAINER = ("spec", "containers", 0)
STATUS = ("status", "containerStatuses", 0)


@pytest.mark.parametrize(
    ("path", "value", "fields"),
    [
        pytest.param((*CONTAINER, "resourcesAllocated"), None, [], id="null is restored"),
        pytest.param(
            (*CONTAINER, "resourcesAllocated"),
            {"cpu": "0.5", "memory": "65536Ki"},
            [],
            id="equal in another spelling",
        ),
        pytest.param(
            (*CONTAINER, "resourcesAllocated"),
            {"cpu": "2", "memory": "64Mi"},
            ["spec.containers[0].resourcesAllocated"],
            id="a user may not allocate",
        ),
        pytest.param(
            (*CONTAINER, "resourcesAllocated"),
            "much",
            ["spec.containers[0].resourcesAllocated"],
            id="of the wrong type",
        ),
        pytest.param(("spec", "resizeRequest"), None, [], id="no resizeRequest"),
        pytest.param(
            ("spec", "resizeRequest"),
            {"requestStatus": "Accepted"},
            ["spec.resizeRequest"],
            id="a user may not accept",
        ),
        pytest.param(
            (*STATUS, "allocatedResources"),
            {"cpu": "2"},
            ["status.containerStatuses[0].allocatedResources"],
            id="nor in the other dialect",
        ),
        pytest.param(
            ("status", "conditions", 1, "status"),
            "Done",
            ["status.conditions[1]"],
            id="nor say that it is done",
        ),
        pytest.param(
            ("status", "resizeState", "phase"),
            "Done",
            ["status.resizeState"],
            id="nor write the state itself",
        ),
    ],
)
def test_derived_fields_on_input(path: tuple, value: Any, fields: list[str]) -> None:
    served = derive_dialects(stored())
    incoming = evolve(served, path, value)
    errors = check_derived(incoming, served, from_own_node=False)
    assert [error.field for error in errors] == fields


def test_a_pod_without_any_derived_field_is_fine() -> None:
    served = derive_dialects(stored())
    assert check_derived(strip_dialects(served), served, from_own_node=False) == []


def test_the_own_node_may_write_cpu_and_memory_of_allocated_only() -> None:
    served = derive_dialects(stored())
    path = (*CONTAINER, "resourcesAllocated")
    assert check_derived(evolve(served, path, NEW), served, from_own_node=True) == []
    other = evolve(served, path, {**OLD, "example.com/gpu": "1"})
    assert check_derived(other, served, from_own_node=True)


def test_what_a_node_allocates_by_patch_becomes_a_resizing() -> None:
    served = derive_dialects(stored())
    incoming = evolve(served, (*CONTAINER, "resourcesAllocated"), NEW)
    assert node_allocation(incoming, served) == [{"name": "a", "requests": NEW}]
    assert node_allocation(served, served) is None
    assert lookup(served, *CONTAINER, "resourcesAllocated") == OLD


def test_deriving_is_cheap() -> None:
    """It runs on every GET, LIST and WATCH: 30 µs, with room here for a busy machine."""
    pod = stored("Error")
    best = min(timeit.repeat(lambda: derive_dialects(pod), number=200, repeat=5)) / 200
    assert best < 100e-6


def with_sidecar() -> Object:
    """A sidecar that is being resized, and an init container that cannot be."""
    pod = stored("InProgress", allocated=[{"name": "a"}, {"name": "s", "requests": OLD}])
    pod["spec"]["initContainers"] = [
        {"name": "i", "resources": {"requests": NEW}},
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": NEW}},
    ]
    pod["status"]["initContainerStatuses"] = [{"name": "i"}, {"name": "s"}]
    return pod


def test_sidecars_have_every_dialect_and_init_containers_what_they_were_made_with() -> None:
    served = derive_dialects(with_sidecar())
    init, side = served["spec"]["initContainers"]
    assert "resourcesAllocated" not in init
    assert side["resourcesAllocated"] == OLD
    told = served["status"]["initContainerStatuses"]
    assert [one["allocatedResources"] for one in told] == [NEW, OLD]
    assert strip_dialects(served) == with_sidecar()


@pytest.mark.parametrize("from_own_node", [False, True])
@pytest.mark.parametrize("index", [0, 1])
def test_only_its_node_writes_what_a_sidecar_was_allocated(index: int, from_own_node: bool) -> None:
    served = derive_dialects(with_sidecar())
    path = ("spec", "initContainers", index, "resourcesAllocated")
    incoming = evolve(served, path, {"cpu": "2", "memory": "64Mi"})
    errors = check_derived(incoming, served, from_own_node=from_own_node)
    refused = [f"spec.initContainers[{index}].resourcesAllocated"]
    assert [one.field for one in errors] == ([] if from_own_node and index == 1 else refused)
    if not errors:
        allocated = node_allocation(incoming, served)
        assert allocated is not None
        assert allocated[1] == {"name": "s", "requests": {"cpu": "2", "memory": "64Mi"}}
