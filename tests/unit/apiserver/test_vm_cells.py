"""NUMA cells of a VM pod at the API server: every way to change one, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.test_vm_requests import PODS, SMALL, VM1, vm_pod

NUMA = {"cells": [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "256Mi"}]}
GROWN = {"cpu": "1", "memory": "768Mi"}
RESIZE = f"{VM1}/resize"
BOTH = ["strategic", "merge"]


def asked(memory: str, *cells: tuple[int, str]) -> dict[str, Any]:
    size = {"cpu": "1", "memory": memory}
    vm: dict[str, Any] = {"resources": {"requests": size, "limits": size}}
    if cells:
        vm["numa"] = {"cells": [{"id": number, "memory": text} for number, text in cells]}
    return {"spec": {"virtualMachine": vm}}


@pytest.fixture
async def two_cells(rig: Any) -> dict[str, Any]:
    await rig.add_node()
    made = await rig.request("POST", PODS, vm_pod(numa=NUMA), token="editor")
    assert made.status == 201, made.json
    await rig.request("POST", f"{VM1}/binding", {"target": {"name": "n1"}})
    served: dict[str, Any] = (await rig.get(VM1)).json
    return served


def memory_of(pod: dict[str, Any]) -> list[tuple[int, str, str]]:
    cells = pod["spec"]["virtualMachine"]["numa"]["cells"]
    return [(cell["id"], cell["memory"], cell["boot"]) for cell in cells]


AFTER = [(0, "256Mi", "256Mi"), (1, "512Mi", "256Mi")]


async def test_cells_boot_with_what_they_have(rig: Any, two_cells: Any) -> None:
    assert memory_of(two_cells) == [(0, "256Mi", "256Mi"), (1, "256Mi", "256Mi")]
    assert two_cells["spec"]["virtualMachine"]["memory"] == {"max": "2Gi", "boot": "512Mi"}
    (allocated,) = two_cells["status"]["resizeState"]["allocated"]
    assert allocated["cells"] == NUMA["cells"]


@pytest.mark.parametrize("path", [RESIZE, VM1], ids=["resize", "pod"])
@pytest.mark.parametrize("kind", BOTH)
async def test_a_patch_names_its_cell(rig: Any, two_cells: Any, path: str, kind: str) -> None:
    others = [] if kind == "strategic" else [(0, "256Mi")]
    answer = await rig.patch(path, asked("768Mi", *others, (1, "512Mi")), kind, token="editor")
    assert answer.status == 200, answer.json["message"]
    served = answer.json
    assert memory_of(served) == AFTER
    assert served["metadata"]["generation"] == two_cells["metadata"]["generation"] + 1
    (desired,) = served["status"]["resizeState"]["desired"]
    assert desired["cells"] == [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "512Mi"}]
    assert served["spec"]["resizeRequest"]["newResources"] == [desired]


async def test_memory_moves_from_one_cell_to_another(rig: Any, two_cells: Any) -> None:
    await rig.patch(RESIZE, asked("768Mi", (1, "512Mi")), "strategic")
    answer = await rig.patch(RESIZE, asked("768Mi", (0, "512Mi"), (1, "256Mi")), "strategic")
    assert answer.status == 200, answer.json["message"]
    state = answer.json["status"]["resizeState"]
    assert state["phase"] == "Requested"
    assert state["desired"][0]["cells"][0] == {"id": 0, "memory": "512Mi"}


async def test_apply_owns_single_cells(rig: Any, two_cells: Any) -> None:
    part = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm1"}}
    part |= asked("768Mi", (1, "512Mi"))
    answer = await rig.patch(RESIZE, part, "apply", fieldManager="sizer", force="true")
    assert answer.status == 200, answer.json["message"]
    assert memory_of(answer.json) == AFTER
    (entry,) = [
        one for one in answer.json["metadata"]["managedFields"] if one["manager"] == "sizer"
    ]
    cells = entry["fieldsV1"]["f:spec"]["f:virtualMachine"]["f:numa"]["f:cells"]
    assert cells == {'k:{"id":1}': {".": {}, "f:id": {}, "f:memory": {}}}


async def test_a_manifest_may_leave_out_what_is_fixed(rig: Any, two_cells: Any) -> None:
    """A PUT of the manifest that made it, with another size of one cell."""
    numa = {"cells": [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "512Mi"}]}
    sent = vm_pod(resources={"requests": GROWN, "limits": GROWN}, numa=numa)
    sent["spec"]["nodeName"] = "n1"
    answer = await rig.request("PUT", VM1, sent)
    assert answer.status == 200, answer.json["message"]
    assert memory_of(answer.json) == AFTER
    without_cells = vm_pod(resources={"requests": GROWN, "limits": GROWN})
    without_cells["spec"]["nodeName"] = "n1"
    answer = await rig.request("PUT", VM1, without_cells)
    assert answer.status == 200, answer.json["message"]
    assert memory_of(answer.json) == AFTER


async def test_the_node_allocates_cells(rig: Any, two_cells: Any) -> None:
    await rig.patch(RESIZE, asked("768Mi", (1, "512Mi")), "strategic")
    accepted = {"kind": "Resizing", "request": {"requestStatus": "Accepted"}, "generation": 2}
    bad = [{"name": "vm", "limits": GROWN, "cells": [{}]}]
    answer = await rig.request(
        "POST", f"{VM1}/resizing", {**accepted, "allocated": bad}, token="n1"
    )
    assert answer.status == 422
    fields = [cause["field"] for cause in answer.json["details"]["causes"]]
    assert fields == ["allocated[0].cells[0].memory", "allocated[0].cells[0].id"]
    answer = await rig.request("POST", f"{VM1}/resizing", accepted, token="n1")
    (allocated,) = answer.json["status"]["resizeState"]["allocated"]
    assert allocated["cells"][1] == {"id": 1, "memory": "512Mi"}
    assert answer.json["spec"]["virtualMachine"]["resourcesAllocated"] == GROWN


async def test_a_node_that_writes_what_it_allocates_gives_the_cells_with_it(
    rig: Any, two_cells: Any
) -> None:
    await rig.patch(RESIZE, asked("768Mi", (1, "512Mi")), "strategic")
    patch = {"spec": {"virtualMachine": {"resourcesAllocated": GROWN}}}
    answer = await rig.patch(VM1, patch, "merge", token="n1")
    assert answer.status == 200, answer.json["message"]
    (allocated,) = answer.json["status"]["resizeState"]["allocated"]
    assert allocated["cells"][1] == {"id": 1, "memory": "512Mi"}


LIMIT = "spec.virtualMachine.resources.limits[memory]"
CELLS = "spec.virtualMachine.numa.cells"


@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        pytest.param(
            asked("768Mi"), LIMIT, "livesize resize pod/vm1 --numa 1=512Mi", id="no cell named"
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "vm", "resources": {"limits": GROWN}}]}},
            LIMIT,
            '[{"id": 1, "memory": "512Mi"}] beside the memory in resources',
            id="no cell named, by the container",
        ),
        pytest.param(asked("512Mi", (1, "512Mi")), LIMIT, "256Mi", id="a wrong sum"),
        pytest.param(asked("768Mi", (2, "256Mi")), CELLS, "made with 0 and 1", id="unknown cell"),
        pytest.param(
            asked("384Mi", (1, "128Mi")),
            f"{CELLS}[1].memory",
            "the nearest size is 256Mi",
            id="below its boot size",
        ),
        pytest.param(
            asked("4Gi", (1, "3840Mi")), f"{CELLS}[1].memory", "is 2Gi", id="over the maximum"
        ),
        pytest.param(
            asked("513Mi", (1, "257Mi")), f"{CELLS}[1].memory", "256Mi and 258Mi", id="no step"
        ),
    ],
)
@pytest.mark.parametrize("path", [RESIZE, VM1], ids=["resize", "pod"])
async def test_refused_with_the_way_to_say_it(
    rig: Any, two_cells: Any, path: str, change: Any, field: str, remedy: str
) -> None:
    if "containers" in change["spec"]:
        change["spec"]["containers"][0]["resources"]["requests"] = GROWN
    answer = await rig.patch(path, change, "strategic", token="editor")
    assert answer.status == 422, answer.json
    causes = {cause["field"]: cause["message"] for cause in answer.json["details"]["causes"]}
    assert field in causes
    assert remedy in causes[field]
    assert (await rig.get(VM1)).json == two_cells


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"numa": {"cells": [{"id": 1, "boot": "128Mi"}]}}, "numa", id="boot"),
        pytest.param({"memory": {"technology": "dimm"}}, "memory", id="technology"),
        pytest.param({"memory": {"min": "128Mi"}}, "memory", id="least"),
        pytest.param({"cpu": {"cores": 2}}, "cpu", id="topology"),
    ],
)
async def test_what_is_fixed_stays(rig: Any, two_cells: Any, change: Any, field: str) -> None:
    answer = await rig.patch(VM1, {"spec": {"virtualMachine": change}}, "strategic")
    assert answer.status == 422
    assert f"changed: spec.virtualMachine.{field}" in answer.json["message"]
    resized = await rig.patch(RESIZE, {"spec": {"virtualMachine": change}}, "strategic")
    assert resized.status == 200, "what else a resize says is dropped"
    assert (await rig.get(VM1)).json == two_cells


async def test_what_is_fixed_may_be_left_out(rig: Any) -> None:
    await rig.add_node()
    memory = {"technology": "auto", "min": "256Mi", "max": "1Gi"}
    cpu = {"cores": 1, "threads": 1, "max": "2"}
    made = await rig.request("POST", PODS, vm_pod(memory=memory, cpu=cpu))
    assert made.status == 201, made.json
    answer = await rig.request("PUT", VM1, vm_pod(resources={"requests": SMALL, "limits": SMALL}))
    assert answer.status == 200, answer.json["message"]
    vm = answer.json["spec"]["virtualMachine"]
    assert vm["memory"] == {**memory, "boot": "512Mi"}
    assert vm["cpu"] == cpu


async def test_the_technology_that_the_node_reports_counts(rig: Any) -> None:
    """The spec does not say it: whether a balloon can take from the boot memory, the node does."""
    await rig.add_node()
    memory = {"max": "2Gi", "boot": "512Mi", "min": "256Mi"}
    assert (await rig.request("POST", PODS, vm_pod(memory=memory))).status == 201
    await rig.request("POST", f"{VM1}/binding", {"target": {"name": "n1"}})
    assert (await rig.patch(RESIZE, asked("384Mi"), "strategic")).status == 200
    status = {"status": {"virtualMachineStatus": {"memory": {"technology": "dimm"}}}}
    assert (await rig.patch(f"{VM1}/status", status, "merge", token="n1")).status == 200
    answer = await rig.patch(RESIZE, asked("382Mi"), "strategic")
    assert answer.status == 422
    assert "must be at least 512Mi, the memory it boots with" in answer.json["message"]
    answer = await rig.patch(RESIZE, asked("1000Mi"), "strategic")
    assert "the nearest sizes are 896Mi and 1Gi" in answer.json["message"]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ({"kubernetes.io/os": "windows"}, "virtual machines run on Linux nodes only"),
        ({"kubernetes.io/arch": "arm64"}, "virtual machines are x86-64 machines"),
    ],
)
async def test_other_machines_are_refused(rig: Any, selector: Any, why: str) -> None:
    pod = vm_pod()
    pod["spec"]["nodeSelector"] = selector
    answer = await rig.request("POST", PODS, pod)
    assert answer.status == 422
    (cause,) = answer.json["details"]["causes"]
    assert cause["field"] == f"spec.nodeSelector[{next(iter(selector))}]"
    assert why in cause["message"]
    pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    assert (await rig.request("POST", PODS, pod)).status == 201
