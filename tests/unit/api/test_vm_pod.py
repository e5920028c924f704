"""One verb and one state machine (B1): what is generic treats a VM pod as one container "vm"."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.accounting import actual_resources, charge, footprint
from livesize.api.defaults import default_object
from livesize.api.dialects import (
    check_derived,
    derive_dialects,
    node_allocation,
    strip_dialects,
)
from livesize.api.errors import StatusError
from livesize.api.hashes import container_hash, container_hash_without_resources
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import kind_of
from livesize.api.objects import Object, evolve, lookup
from livesize.api.patch.strategic import strategic_merge
from livesize.api.pod_summary import pod_status_text
from livesize.api.resize_policy import ResizeAction, action_for
from livesize.api.resize_state import apply_resizing, bind_allocated, request_resize
from livesize.api.resources import Amounts, container_resources, containers_of, parse_resources
from livesize.api.table import table_for
from livesize.api.vm_status import VmState, statuses_of, vm_container_status, vm_status_of

NOW = "2026-08-01T10:00:00Z"
SMALL = {"cpu": "1", "memory": "512Mi"}
LARGE = {"cpu": "4", "memory": "2Gi"}
OVERHEAD = 232 * 2**20
RESOURCES = ("spec", "virtualMachine", "resources")


def both(size: Object) -> Object:
    return {"requests": size, "limits": size}


def stored_pod(**vm: Any) -> Object:
    machine = {"kernel": {"image": "guest"}, "resources": {"limits": SMALL}, **vm}
    metadata = {"name": "vm1", "namespace": "default", "uid": "u", "generation": 1}
    spec = {"nodeName": "n1", "virtualMachine": machine}
    return bind_allocated(default_object(PODS, {"metadata": metadata, "spec": spec}))


def with_status(pod: Object, **status: Any) -> Object:
    return evolve(pod, ("status", "virtualMachineStatus"), status)


def asked(pod: Object, size: Object) -> Object:
    new = request_resize(pod, evolve(pod, RESOURCES, both(size)), requested_by="ann", now=NOW)
    return evolve(new, ("metadata", "generation"), 2)


def answer(pod: Object, word: str, **more: Any) -> Object:
    return apply_resizing(pod, {"request": {"requestStatus": word}, **more}, now=NOW)


def test_the_vm_is_the_one_container_of_its_pod() -> None:
    pod = stored_pod()
    (container,) = containers_of(pod)
    assert container["name"] == "vm"
    assert container["resources"] == both(SMALL)
    assert list(container_resources(pod)) == ["vm"]
    assert len(containers_of(derive_dialects(pod))) == 1, "what is served counts once"


def test_a_resize_goes_the_same_way_as_that_of_a_container() -> None:
    pod = asked(stored_pod(), LARGE)
    state = pod["status"]["resizeState"]
    assert state["phase"] == "Requested"
    assert state["desired"] == [{"name": "vm", **both(LARGE)}]
    assert state["allocated"] == [{"name": "vm", **both(SMALL)}]

    pod = answer(pod, "Accepted")
    assert pod["status"]["resizeState"]["allocated"] == [{"name": "vm", **both(LARGE)}]
    served = derive_dialects(pod)
    assert served["spec"]["virtualMachine"]["resourcesAllocated"] == LARGE

    reported = {"state": "Running", "resources": both(LARGE), "allocatedResources": {"cpu": "9"}}
    pod = answer(pod, "Done", status={"virtualMachineStatus": reported})
    assert "allocatedResources" not in pod["status"]["virtualMachineStatus"]
    served = derive_dialects(pod)
    assert served["status"]["virtualMachineStatus"]["allocatedResources"] == LARGE
    assert served["spec"]["resizeRequest"]["requestStatus"] == "Done"


@pytest.mark.parametrize(
    ("status", "field"),
    [
        (5, "status.virtualMachineStatus"),
        ({"resources": []}, "status.virtualMachineStatus.resources"),
        ({"resources": {"limits": {"cpu": "x"}}}, "status.virtualMachineStatus.resources"),
    ],
)
def test_an_unreadable_status_is_refused(status: Any, field: str) -> None:
    with pytest.raises(StatusError) as refused:
        answer(asked(stored_pod(), LARGE), "Done", status={"virtualMachineStatus": status})
    assert [cause.field for cause in refused.value.causes] == [field]


def test_what_is_derived_comes_and_goes_without_a_trace() -> None:
    for stored in (
        stored_pod(),
        with_status(stored_pod(), state="Running", resources=both(SMALL)),
        asked(stored_pod(), LARGE),
        default_object(PODS, {"spec": {"virtualMachine": {"resources": {"limits": SMALL}}}}),
    ):
        served = derive_dialects(stored)
        assert [one["name"] for one in served["spec"]["containers"]] == ["vm"]
        assert served["spec"]["virtualMachine"]["resourcesAllocated"] == SMALL
        assert strip_dialects(served) == stored
        assert check_derived(served, served, from_own_node=False) == []
        assert check_derived(stored, served, from_own_node=False) == []


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "virtualMachine", "resourcesAllocated"),
        ("status", "virtualMachineStatus", "allocatedResources"),
    ],
)
def test_derived_fields_are_not_the_users_to_write(path: tuple[str, ...]) -> None:
    served = derive_dialects(with_status(stored_pod(), state="Running", resources=both(SMALL)))
    (error,) = check_derived(evolve(served, path, LARGE), served, from_own_node=False)
    assert error.field == ".".join(path)


def test_the_node_may_write_what_it_allocates() -> None:
    served = derive_dialects(asked(stored_pod(), LARGE))
    given = evolve(served, ("spec", "virtualMachine", "resourcesAllocated"), LARGE)
    assert check_derived(given, served, from_own_node=True) == []
    assert node_allocation(given, served) == [{"name": "vm", **both(LARGE)}]
    assert node_allocation(served, served) is None


def test_the_overhead_is_part_of_every_account_and_a_shrink_counts_until_it_is_done() -> None:
    pod = with_status(stored_pod(), state="Running", resources=both(SMALL))
    assert footprint(pod) == Amounts(1000, 512 * 2**20 + OVERHEAD)
    assert charge(pod).limits == Amounts(1000, 512 * 2**20 + OVERHEAD)
    grown = answer(asked(pod, LARGE), "Accepted")
    assert footprint(grown) == Amounts(4000, 2 * 2**30 + OVERHEAD)
    large = with_status(grown, state="Running", resources=both(LARGE))
    shrinking = answer(asked(answer(large, "Done"), SMALL), "Accepted")
    assert footprint(shrinking) == Amounts(4000, 2 * 2**30 + OVERHEAD)
    assert actual_resources(shrinking)["vm"] == parse_resources(both(LARGE))
    done = answer(with_status(shrinking, state="Running", resources=both(SMALL)), "Done")
    assert footprint(done) == footprint(pod)


def test_only_what_is_not_about_size_needs_a_new_start() -> None:
    (small,) = containers_of(stored_pod())
    (large,) = containers_of(evolve(stored_pod(), RESOURCES, both(LARGE)))
    (other,) = containers_of(stored_pod(kernel={"image": "other"}))
    assert container_hash(small) != container_hash(large)
    assert container_hash_without_resources(small) == container_hash_without_resources(large)
    assert container_hash_without_resources(small) != container_hash_without_resources(other)
    (served,) = containers_of(derive_dialects(stored_pod()))
    assert container_hash(served) == container_hash(small)


def test_the_memory_of_a_cell_needs_no_new_start() -> None:
    def vm(memory: str) -> Object:
        cells = [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": memory}]
        return {"name": "vm", "numa": {"cells": cells}}

    small, large = vm("256Mi"), vm("1Gi")
    assert container_hash(large) != container_hash(small)
    assert container_hash_without_resources(large) == container_hash_without_resources(small)


def test_the_policy_of_a_vm() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    (vm,) = containers_of(stored_pod(resizePolicy=policy))
    small, large = parse_resources(both(SMALL)), parse_resources(both(LARGE))
    more_cpu = parse_resources(both({**SMALL, "cpu": "4"}))
    assert action_for(vm, small, large) is ResizeAction.RESTART_CONTAINER
    assert action_for(vm, small, more_cpu) is ResizeAction.LIVE


def test_a_strategic_merge_changes_only_what_it_names() -> None:
    pod = stored_pod()
    patch = {"spec": {"virtualMachine": {"resources": {"limits": {"cpu": "2"}}}}}
    patched = strategic_merge(pod, patch, kind_of(PODS).schema.root)
    assert patched == evolve(pod, (*RESOURCES, "limits", "cpu"), "2")


def cells(pod: Object) -> dict[str, str]:
    table = table_for(PODS, [pod], now=1_785_578_400.0)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def test_the_table_shows_a_vm_like_any_pod() -> None:
    pod = with_status(
        asked(stored_pod(), LARGE), state="Running", resources=both(SMALL), restartCount=2
    )
    row = cells(evolve(pod, ("status", "phase"), "Running"))
    assert (row["Ready"], row["Status"], row["Restarts"]) == ("1/1", "Running", "2")
    assert row["Desired"] == "cpu 4/4 memory 2Gi/2Gi"
    assert row["Allocated"] == row["Actual"] == "cpu 1/1 memory 512Mi/512Mi"
    assert cells(stored_pod())["Ready"] == "0/1"


@pytest.mark.parametrize(
    ("status", "word", "ready"),
    [
        ({"state": "Waiting", "reason": "CrashLoopBackOff"}, "CrashLoopBackOff", False),
        ({"state": "Waiting"}, "Running", False),
        ({"state": "Starting", "startedAt": NOW}, "Running", False),
        ({"state": "Running", "startedAt": NOW}, "Running", True),
        ({"state": "Stopped", "reason": "Error", "exitCode": 1}, "Error", False),
        ({}, "Running", False),
    ],
)
def test_the_words_for_a_vm(status: Object, word: str, ready: bool) -> None:
    pod = evolve(with_status(stored_pod(), **status), ("status", "phase"), "Running")
    assert pod_status_text(pod) == word
    assert [one["ready"] for one in statuses_of(pod)] == [ready]


vm_statuses = st.fixed_dictionaries(
    {"state": st.sampled_from([word.value for word in VmState])},
    optional={
        "reason": st.text(),
        "message": st.text(),
        "exitCode": st.integers(0, 255),
        "startedAt": st.just(NOW),
        "finishedAt": st.just(NOW),
        "lastState": st.just({"terminated": {"exitCode": 1}}),
        "restartCount": st.integers(0, 9),
        "virtualMachineID": st.text(),
        "resources": st.just(both(SMALL)),
        "allocatedResources": st.just(SMALL),
    },
)


@given(vm_statuses)
def test_a_vm_status_said_as_a_containers_says_the_same(status: Object) -> None:
    said = vm_container_status(status)
    assert vm_status_of(said) == status
    assert lookup(said, "state", "running") is None or said["started"]
