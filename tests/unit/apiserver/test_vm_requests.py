"""VM pods at the API server: the same requests as of containers, and host paths for admins only."""

from __future__ import annotations

from typing import Any

import pytest

PODS = "/api/v1/namespaces/default/pods"
VM1 = f"{PODS}/vm1"
SMALL = {"cpu": "1", "memory": "512Mi"}
LARGE = {"cpu": "4", "memory": "2Gi"}


def vm_pod(**vm: Any) -> dict[str, Any]:
    machine = {"kernel": {"image": "guest"}, "resources": {"limits": SMALL}, **vm}
    spec = {"virtualMachine": {name: part for name, part in machine.items() if part is not None}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm1"}, "spec": spec}


def sized(size: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"virtualMachine": {"resources": {"requests": size, "limits": size}}}}


@pytest.fixture
async def vm1(rig: Any) -> dict[str, Any]:
    await rig.add_node()
    made = await rig.request("POST", PODS, vm_pod(), token="editor", fieldValidation="Strict")
    assert made.status == 201
    bound = await rig.request("POST", f"{VM1}/binding", {"target": {"name": "n1"}})
    assert bound.status in (200, 201)
    served: dict[str, Any] = (await rig.get(VM1)).json
    return served


async def test_a_vm_is_served_with_all_its_dialects(rig: Any, vm1: Any) -> None:
    size = {"requests": SMALL, "limits": SMALL}
    assert vm1["spec"]["containers"] == [{"name": "vm", "image": "guest", "resources": size}]
    machine = vm1["spec"]["virtualMachine"]
    assert machine["resourcesAllocated"] == SMALL
    assert machine["cpu"] == {"max": "4"}
    assert vm1["spec"]["overhead"] == {"memory": "232Mi"}
    assert vm1["status"]["resizeState"]["allocated"] == [
        {"name": "vm", "requests": SMALL, "limits": SMALL}
    ]


@pytest.mark.parametrize("path", [f"{VM1}/resize", VM1], ids=["resize", "pod"])
@pytest.mark.parametrize("kind", ["strategic", "merge"])
async def test_both_doors_take_a_resize(rig: Any, vm1: Any, path: str, kind: str) -> None:
    answer = await rig.patch(path, sized(LARGE), kind, token="editor")
    assert answer.status == 200
    served = answer.json
    assert served["metadata"]["generation"] == vm1["metadata"]["generation"] + 1
    assert served["spec"]["virtualMachine"]["resourcesAllocated"] == SMALL
    assert served["spec"]["virtualMachine"]["cpu"] == {"max": "4"}
    assert served["spec"]["resizeRequest"]["requestStatus"] == "Requested"
    assert served["status"]["resizeState"]["desired"][0]["name"] == "vm"


async def test_the_node_answers_and_reports(rig: Any, vm1: Any) -> None:
    await rig.patch(f"{VM1}/resize", sized(LARGE), "strategic")
    accepted = {"kind": "Resizing", "request": {"requestStatus": "Accepted"}, "generation": 2}
    answer = await rig.request("POST", f"{VM1}/resizing", accepted, token="n1")
    assert answer.json["spec"]["virtualMachine"]["resourcesAllocated"] == LARGE
    status = {
        "virtualMachineStatus": {
            "state": "Running",
            "resources": {"requests": LARGE, "limits": LARGE},
            "guest": {"vcpusOnline": 4, "vcpusPlugged": 4, "memorySeen": "2000000Ki"},
        }
    }
    done = {**accepted, "request": {"requestStatus": "Done"}, "status": status}
    answer = await rig.request("POST", f"{VM1}/resizing", done, token="n1")
    reported = answer.json["status"]["virtualMachineStatus"]
    assert reported["allocatedResources"] == LARGE
    assert reported["guest"]["vcpusOnline"] == 4
    table = await rig.get(PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.json["rows"][0]["cells"][:2] == ["vm1", "1/1"]


async def test_a_put_of_the_manifest_keeps_maxima_and_overhead(rig: Any, vm1: Any) -> None:
    sent = vm_pod(resources={"requests": LARGE, "limits": LARGE})
    spec = {**sent["spec"], "nodeName": "n1"}
    answer = await rig.request("PUT", VM1, {**sent, "spec": spec})
    assert answer.status == 200, answer.json
    machine = answer.json["spec"]["virtualMachine"]
    assert machine["cpu"] == {"max": "4"}
    assert machine["memory"] == {"max": "2Gi", "boot": "512Mi"}
    assert machine["resources"]["limits"] == LARGE


@pytest.mark.parametrize(
    ("size", "field", "remedy"),
    [
        ({**SMALL, "cpu": "1500m"}, "limits[cpu]", "the nearest sizes are 1 and 2"),
        ({**SMALL, "cpu": "5"}, "limits[cpu]", "the nearest size is 4"),
        ({**SMALL, "memory": "513Mi"}, "limits[memory]", "are 512Mi and 514Mi"),
        ({**SMALL, "memory": "3Gi"}, "limits[memory]", "the nearest size is 2Gi"),
        ({**SMALL, "memory": "256Mi"}, "limits[memory]", "the nearest size is 512Mi"),
    ],
)
async def test_a_size_the_vm_cannot_have_changes_nothing(
    rig: Any, vm1: Any, size: dict[str, str], field: str, remedy: str
) -> None:
    for path in (VM1, f"{VM1}/resize"):
        answer = await rig.patch(path, sized(size), "strategic")
        assert answer.status == 422
        (cause,) = answer.json["details"]["causes"]
        assert cause["field"] == f"spec.virtualMachine.resources.{field}"
        assert cause["message"].endswith(remedy)
    assert (await rig.get(VM1)).json == vm1


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param({"kernel": {"image": "/boot/vmlinuz"}}, id="kernel"),
        pytest.param({"kernel": {"image": "guest", "initrd": "/boot/initrd"}}, id="initrd"),
        pytest.param({"kernel": None, "disk": {"image": "/dev/sda"}}, id="disk"),
    ],
)
async def test_only_an_admin_names_host_paths(rig: Any, machine: Any) -> None:
    for token in ("editor", "controller"):
        answer = await rig.request("POST", PODS, vm_pod(**machine), token=token)
        assert answer.status == 403
    refused = await rig.request("POST", PODS, vm_pod(**machine), token="editor")
    assert "only an admin may name a path of the machine" in refused.json["message"]
    made = await rig.request("POST", PODS, vm_pod(**machine))
    assert made.status == 201
    # An editor may still resize what an admin has made.
    resized = await rig.patch(f"{VM1}/resize", sized({**SMALL, "cpu": "2"}), token="editor")
    assert resized.status == 200


async def test_both_kinds_in_one_pod_and_a_wrong_shape(rig: Any) -> None:
    pod = vm_pod()
    pod["spec"]["containers"] = [{"name": "app", "image": "busybox"}]
    answer = await rig.request("POST", PODS, pod)
    assert answer.status == 422
    assert "either containers or a virtual machine" in answer.json["message"]
    answer = await rig.request("POST", PODS, vm_pod(kernel=7))
    assert answer.status == 400
    assert "spec.virtualMachine.kernel" in answer.json["message"]
    unknown = vm_pod(floppy=True)
    answer = await rig.request("POST", PODS, unknown, fieldValidation="Strict")
    assert answer.status == 400
    assert 'unknown field "spec.virtualMachine.floppy"' in answer.json["message"]
