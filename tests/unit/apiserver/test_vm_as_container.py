"""A VM pod for clients that know only containers: one named "vm", derived and counted once."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.accounting import footprint
from livesize.api.dialects import derive_dialects
from livesize.api.kinds import pod as pod_kind
from livesize.api.resources import container_resources
from unit.apiserver.test_vm_requests import LARGE, PODS, SMALL, VM1, sized, vm1, vm_pod

__all__ = ["vm1"]
GROWN = {"cpu": "2", "memory": "1Gi"}
OTHER = {"cpu": "3", "memory": "768Mi"}


def both(size: dict[str, str]) -> dict[str, Any]:
    return {"requests": size, "limits": size}


def in_container(size: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "vm", "resources": both(size), **more}]}}


def kept_of(rig: Any) -> Any:
    """The pod as it is stored."""
    (record,) = rig.cache.records(pod_kind.PODS)
    return record.stored


@pytest.mark.parametrize("path", [f"{VM1}/resize", VM1], ids=["resize", "pod"])
@pytest.mark.parametrize("kind", ["strategic", "merge"])
async def test_its_resources_are_the_vms(rig: Any, vm1: Any, path: str, kind: str) -> None:
    answer = await rig.patch(path, in_container(GROWN), kind, token="editor")
    assert answer.status == 200, answer.json
    served = answer.json
    assert served["spec"]["virtualMachine"]["resources"] == both(GROWN)
    assert served["spec"]["containers"][0]["resources"] == both(GROWN)
    assert served["metadata"]["generation"] == vm1["metadata"]["generation"] + 1
    assert served["status"]["resizeState"]["desired"] == [{"name": "vm", **both(GROWN)}]


async def test_one_amount_is_enough_for_a_strategic_patch(rig: Any, vm1: Any) -> None:
    part = {"name": "vm", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}
    answer = await rig.patch(f"{VM1}/resize", {"spec": {"containers": [part]}}, "strategic")
    assert answer.json["spec"]["virtualMachine"]["resources"] == both({**SMALL, "cpu": "2"})


async def test_a_json_patch_of_it(rig: Any, vm1: Any) -> None:
    path = "/spec/containers/0/resources"
    patch = [{"op": "replace", "path": path, "value": both(GROWN)}]
    answer = await rig.patch(VM1, patch, "json")
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["virtualMachine"]["resources"] == both(GROWN)


async def test_a_put_of_what_was_read_with_another_size(rig: Any, vm1: Any) -> None:
    vm1["spec"]["containers"][0]["resources"] = both(GROWN)
    answer = await rig.request("PUT", VM1, vm1)
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["virtualMachine"]["resources"] == both(GROWN)


@pytest.mark.parametrize("containers", [None, [], "same", "absent"])
async def test_equal_or_absent_changes_nothing(rig: Any, vm1: Any, containers: Any) -> None:
    if containers == "absent":
        del vm1["spec"]["containers"]
    elif containers != "same":
        vm1["spec"]["containers"] = containers
    answer = await rig.request("PUT", VM1, vm1)
    assert answer.status == 200, answer.json
    assert answer.json["metadata"]["resourceVersion"] == vm1["metadata"]["resourceVersion"]


async def test_the_same_in_another_spelling_changes_nothing(rig: Any, vm1: Any) -> None:
    size = {"cpu": "1000m", "memory": "524288Ki"}
    answer = await rig.patch(f"{VM1}/resize", in_container(size), "strategic")
    assert answer.json["metadata"]["resourceVersion"] == vm1["metadata"]["resourceVersion"]


async def test_another_spelling_does_not_contradict_the_vms_own_place(rig: Any, vm1: Any) -> None:
    size = {"cpu": "1000m", "memory": "524288Ki"}
    patch = {"spec": {**in_container(size)["spec"], **sized(GROWN)["spec"]}}
    answer = await rig.patch(f"{VM1}/resize", patch, "strategic")
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["virtualMachine"]["resources"] == both(GROWN)


@pytest.mark.parametrize("path", [f"{VM1}/resize", VM1], ids=["resize", "pod"])
async def test_both_places_changed_differently_are_refused(rig: Any, vm1: Any, path: str) -> None:
    patch = {"spec": {**in_container(GROWN)["spec"], **sized(OTHER)["spec"]}}
    answer = await rig.patch(path, patch, "strategic")
    assert answer.status == 422
    (cause,) = answer.json["details"]["causes"]
    assert cause["field"] == "spec.containers[0].resources"
    assert "change one of the two" in cause["message"]
    assert (await rig.get(VM1)).json == vm1, "nothing has changed"


async def test_both_places_changed_alike_are_one_change(rig: Any, vm1: Any) -> None:
    patch = {"spec": {**in_container(GROWN)["spec"], **sized(GROWN)["spec"]}}
    answer = await rig.patch(VM1, patch, "strategic")
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["virtualMachine"]["resources"] == both(GROWN)


async def test_the_vms_own_place_still_works_on_what_was_read(rig: Any, vm1: Any) -> None:
    vm1["spec"]["virtualMachine"]["resources"] = both(GROWN)
    answer = await rig.request("PUT", VM1, vm1)
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["containers"][0]["resources"] == both(GROWN)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"image": "another"}, "spec.containers[0].image", id="image"),
        pytest.param({"env": [{"name": "A"}]}, "spec.containers[0].env", id="variables"),
    ],
)
async def test_nothing_else_of_it_can_be_changed(
    rig: Any, vm1: Any, changes: dict[str, Any], field: str
) -> None:
    answer = await rig.patch(VM1, in_container(SMALL, **changes), "strategic")
    assert answer.status == 422
    assert field in [cause["field"] for cause in answer.json["details"]["causes"]]


async def test_another_container_is_refused(rig: Any, vm1: Any) -> None:
    added = {"name": "sidecar", "image": "busybox"}
    answer = await rig.patch(VM1, {"spec": {"containers": [added]}}, "strategic")
    assert answer.status == 422
    assert "either containers or a virtual machine" in answer.json["message"]


async def test_it_is_never_stored(rig: Any, vm1: Any) -> None:
    await rig.patch(f"{VM1}/resize", in_container(GROWN), "strategic")
    kept = kept_of(rig)
    assert "containers" not in kept["spec"]
    assert "containerStatuses" not in kept["status"]


async def test_a_copy_of_what_was_read_can_be_created(rig: Any, vm1: Any) -> None:
    copy = {key: vm1[key] for key in ("apiVersion", "kind", "spec")}
    copy["spec"].pop("nodeName")
    answer = await rig.request("POST", PODS, {**copy, "metadata": {"name": "vm2"}})
    assert answer.status == 201, answer.json
    assert len(answer.json["spec"]["containers"]) == 1


@pytest.mark.parametrize(
    ("own", "status"),
    [pytest.param(None, 201, id="said once"), pytest.param({"limits": LARGE}, 422, id="twice")],
)
async def test_a_new_vm_says_its_size_in_either_place(rig: Any, own: Any, status: int) -> None:
    pod = vm_pod(resources=own)
    pod["spec"]["containers"] = [{"name": "vm", "resources": {"limits": SMALL}}]
    answer = await rig.request("POST", PODS, pod)
    assert answer.status == status, answer.json
    if status == 201:
        assert answer.json["spec"]["virtualMachine"]["resources"]["limits"] == SMALL
    else:
        assert answer.json["details"]["causes"][0]["field"] == "spec.containers[0].resources"


async def apply(rig: Any, part: dict[str, Any], manager: str, **more: str) -> Any:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm1"}, **part}
    return await rig.patch(VM1, body, "apply", fieldManager=manager, **more)


async def test_server_side_apply_of_it_owns_the_vms_resources(rig: Any, vm1: Any) -> None:
    answer = await apply(rig, in_container(GROWN), "sizer", force="true")
    assert answer.status == 200, answer.json
    assert answer.json["spec"]["virtualMachine"]["resources"] == both(GROWN)
    owned = {one["manager"]: one["fieldsV1"] for one in answer.json["metadata"]["managedFields"]}
    amounts = {"f:cpu": {}, "f:memory": {}}
    resources = {"f:limits": amounts, "f:requests": amounts}
    assert owned["sizer"]["f:spec"] == {"f:virtualMachine": {"f:resources": resources}}
    again = await apply(rig, in_container(GROWN), "sizer")
    assert again.status == 200, "it owns what it has applied"
    other = await apply(rig, in_container(OTHER), "another")
    assert other.status == 409
    assert "spec.virtualMachine.resources" in other.json["message"]


async def test_an_apply_that_contradicts_itself_is_refused(rig: Any, vm1: Any) -> None:
    part = {"spec": {**in_container(GROWN)["spec"], **sized(OTHER)["spec"]}}
    answer = await apply(rig, part, "sizer", force="true")
    assert answer.status == 422
    fields = {cause["field"] for cause in answer.json["details"]["causes"]}
    assert fields == {
        f"spec.containers[0].resources.{side}.{name}"
        for side in ("limits", "requests")
        for name in ("cpu", "memory")
    }


async def test_an_apply_of_the_whole_that_was_read_changes_nothing(rig: Any, vm1: Any) -> None:
    spec = {key: vm1["spec"][key] for key in ("containers", "virtualMachine")}
    del spec["virtualMachine"]["resourcesAllocated"]
    answer = await apply(rig, {"spec": spec}, "sizer", force="true")
    assert answer.status == 200, answer.json
    assert answer.json["spec"] == vm1["spec"] | {
        "virtualMachine": answer.json["spec"]["virtualMachine"]
    }
    assert answer.json["metadata"]["generation"] == vm1["metadata"]["generation"]


def test_it_counts_once() -> None:
    pod = {**vm_pod(resources=both(SMALL)), "metadata": {"name": "vm1", "namespace": "default"}}
    served = derive_dialects(pod)
    assert len(served["spec"]["containers"]) == 1
    assert list(container_resources(served)) == ["vm"]
    assert footprint(served) == footprint(pod)


POLICY = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


@pytest.mark.parametrize("path", [f"{VM1}/resize", VM1], ids=["resize", "pod"])
@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", [{"op": "remove", "path": "/spec/containers/0/resizePolicy"}]),
        ("strategic", {"spec": {"containers": [{"name": "vm", "resizePolicy": None}]}}),
    ],
)
async def test_its_policy_can_be_removed(
    rig: Any, vm1: Any, path: str, kind: str, patch: Any
) -> None:
    said = {"spec": {"virtualMachine": {"resizePolicy": POLICY}}}
    assert (await rig.patch(VM1, said, "merge")).status == 200
    answer = await rig.patch(path, patch, kind, token="editor")
    assert answer.status == 200, answer.json
    assert "resizePolicy" not in answer.json["spec"]["virtualMachine"]
    assert "resizePolicy" not in answer.json["spec"]["containers"][0]


async def test_a_client_that_knows_no_policies_keeps_it(rig: Any, vm1: Any) -> None:
    said = {"spec": {"virtualMachine": {"resizePolicy": POLICY}}}
    known = (await rig.patch(VM1, said, "merge")).json
    del known["spec"]["containers"][0]["resizePolicy"]
    answer = await rig.request("PUT", VM1, known)
    assert answer.json["spec"]["virtualMachine"]["resizePolicy"] == POLICY


@pytest.mark.parametrize("path", [f"{VM1}/resize", VM1], ids=["resize", "pod"])
async def test_a_put_of_a_client_that_drops_the_virtual_machine(
    rig: Any, vm1: Any, path: str
) -> None:
    """As Go's typed clients do with fields that they do not know."""
    del vm1["spec"]["virtualMachine"]
    same = await rig.request("PUT", path, vm1)
    assert same.status == 200, same.json
    assert same.json["metadata"]["resourceVersion"] == vm1["metadata"]["resourceVersion"]
    vm1["spec"]["containers"][0]["resources"] = both(GROWN)
    grown = await rig.request("PUT", path, vm1)
    assert grown.status == 200, grown.json
    assert grown.json["spec"]["virtualMachine"]["resources"] == both(GROWN)
    assert grown.json["spec"]["virtualMachine"]["kernel"] == {"image": "guest"}


async def test_a_virtual_machine_is_not_patched_away(rig: Any, vm1: Any) -> None:
    answer = await rig.patch(VM1, {"spec": {"virtualMachine": None}}, "merge")
    assert answer.status == 422


async def test_a_status_of_such_a_client_keeps_the_virtual_machines(rig: Any, vm1: Any) -> None:
    machine = {"state": "Running", "resources": both(SMALL), "restartCount": 1}
    reported = {"status": {"phase": "Running", "virtualMachineStatus": machine}}
    served = (await rig.patch(f"{VM1}/status", reported, "merge", token="n1")).json
    del served["status"]["virtualMachineStatus"]
    served["status"]["message"] = "looked at"
    answer = await rig.request("PUT", f"{VM1}/status", served)
    assert answer.status == 200, answer.json
    assert kept_of(rig)["status"]["message"] == "looked at"
    assert kept_of(rig)["status"]["virtualMachineStatus"] == machine
    assert "containerStatuses" not in kept_of(rig)["status"]
