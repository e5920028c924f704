"""The demo is not easily content: each thing it shows can break it, and says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import kind_of
from livesize.api.patch.strategic import strategic_merge
from livesize.api.validation.objects import validate_create
from livesize.api.validation.resize import prepare_resize, validate_pod_resize
from livesize.api.vm_size import vm_size_of
from livesize.cli.doctor.vm_checks import VmTools
from livesize.demo.groups import GroupProof, check_group
from livesize.demo.guest_witness import GuestReading, parse_word
from livesize.demo.leftovers import DemoLeftovers
from livesize.demo.pods import check_settled
from livesize.demo.promises import BrokenPromiseError
from livesize.demo.requirements import missing_for_vms
from livesize.demo.vm_proof import VmProof, check_proof, proof_table, verdict
from livesize.demo.vm_scenes import CELLS, DIMMS, DemoVm, DemoVmSize

MIB = 1 << 20
OVERHEAD = 232 * MIB
SCHEMA = kind_of(PODS).schema.root


def reading(vcpus: int, uptime_seconds: float, *nodes_mib: int) -> GuestReading:
    nodes = tuple(node * MIB for node in nodes_mib)
    return GuestReading(vcpus, sum(nodes), nodes, uptime_seconds, "boot-1")


def group(vcpus: int, memory_mib: int) -> GroupProof:
    return GroupProof(7, 70, vcpus * 100_000, memory_mib * MIB + OVERHEAD)


CELLS_FIRST = VmProof(reading(1, 10.0, 150, 249), group(1, 512))
CELLS_GROWN = VmProof(reading(4, 14.0, 150, 1017), group(4, 1280))
DIMMS_FIRST = VmProof(reading(1, 10.0, 403), group(1, 512))
DIMMS_GROWN = VmProof(reading(1, 14.0, 1043), group(1, 1152), (512 * MIB, 128 * MIB))


def grown(vm: DemoVm) -> DemoVmSize:
    return dict(vm.sizes)["grow"]


def test_guests_that_grew_keep_every_promise() -> None:
    check_proof("start", CELLS.start, CELLS_FIRST, CELLS_FIRST, CELLS, OVERHEAD)
    check_proof("grow", grown(CELLS), CELLS_GROWN, CELLS_FIRST, CELLS, OVERHEAD)
    check_proof("start", DIMMS.start, DIMMS_FIRST, DIMMS_FIRST, DIMMS, OVERHEAD)
    check_proof("grow", grown(DIMMS), DIMMS_GROWN, DIMMS_FIRST, DIMMS, OVERHEAD)


@pytest.mark.parametrize(
    ("guest", "group", "words"),
    [
        ({"boot_id": "boot-2"}, {}, "booted again"),
        ({"uptime_seconds": 1.0}, {}, "booted again"),
        ({"vcpus_online": 3}, {}, "uses 3 vCPUs, not 4"),
        ({"memory_total_bytes": 1166 * MIB}, {}, "the guest has .* more than at first"),
        ({"nodes_bytes": (151 * MIB, 1016 * MIB)}, {}, "node 0 of the guest has 1048576 bytes"),
        ({"nodes_bytes": (150 * MIB, 1016 * MIB)}, {}, "node 1 of the guest has"),
        ({"nodes_bytes": (1167 * MIB,)}, {}, "has 1 NUMA nodes"),
        ({}, {"pid": 8}, "pid 7 became 8"),
        ({}, {"start_ticks": 71}, "pid 7 became 7"),
        ({}, {"quota_us": 100_000}, "CPU quota is 100000 µs, not 400000"),
        ({}, {"limit_bytes": 2048 * MIB}, "memory limit is"),
        ({}, {"limit_bytes": None}, "memory limit is None"),
    ],
)
def test_a_guest_that_differs_in_one_thing_breaks_one(
    guest: dict[str, Any], group: dict[str, Any], words: str
) -> None:
    replace = msgspec.structs.replace
    before = CELLS_GROWN
    proof = replace(
        before, guest=replace(before.guest, **guest), group=replace(before.group, **group)
    )
    with pytest.raises(BrokenPromiseError, match=words):
        check_proof("grow", grown(CELLS), proof, CELLS_FIRST, CELLS, OVERHEAD)


@pytest.mark.parametrize(
    ("vm", "proof", "first", "dimms", "words"),
    [
        (DIMMS, DIMMS_GROWN, DIMMS_FIRST, (), "0 MiB of DIMMs, not 640"),
        (DIMMS, DIMMS_GROWN, DIMMS_FIRST, (512 * MIB,), "512 MiB of DIMMs, not 640"),
        (CELLS, CELLS_GROWN, CELLS_FIRST, (1024 * MIB,), "1024 MiB of DIMMs, not 0"),
    ],
    ids=["none", "one is missing", "not its technology"],
)
def test_memory_that_comes_another_way_breaks_one(
    vm: DemoVm, proof: VmProof, first: VmProof, dimms: tuple[int, ...], words: str
) -> None:
    other = msgspec.structs.replace(proof, dimms_bytes=dimms)
    with pytest.raises(BrokenPromiseError, match=words):
        check_proof("grow", grown(vm), other, first, vm, OVERHEAD)


@pytest.mark.parametrize(
    ("first", "after"), [(CELLS_FIRST, CELLS_GROWN), (DIMMS_FIRST, DIMMS_GROWN)]
)
def test_proofs_stand_below_their_headings(first: VmProof, after: VmProof) -> None:
    lines = proof_table([("start", CELLS.start, first), ("grow", CELLS.start, after)])
    assert {line.index("│") for line in lines} == {lines[0].index("│")}
    assert max(len(line) for line in lines) <= 100


def test_dimms_are_told_one_by_one() -> None:
    first, after = proof_table(
        [("start", DIMMS.start, DIMMS_FIRST), ("grow", DIMMS.start, DIMMS_GROWN)]
    )[1:]
    assert "none" in first
    assert "512 + 128 MiB" in after


def test_a_guest_whose_clock_stands_still_breaks_one() -> None:
    proofs = [("start", DIMMS.start, DIMMS_FIRST), ("grow", grown(DIMMS), DIMMS_GROWN)]
    assert "keeps 109 MiB for itself" in verdict(proofs, OVERHEAD)
    with pytest.raises(BrokenPromiseError, match="clock stands still"):
        verdict(proofs[:1] * 2, OVERHEAD)


@pytest.mark.parametrize("vm", [CELLS, DIMMS], ids=["cells", "dimms"])
def test_the_machines_shown_are_valid_at_every_size(vm: DemoVm) -> None:
    metadata = {"name": vm.name, "namespace": "default"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": vm.spec()}
    pod = default_object(PODS, made)
    assert validate_create(PODS, pod) == []
    assert vm_size_of(pod).technology is vm.technology
    assert len(vm.title) <= 100
    before = vm.start
    for _, size in vm.sizes[1:]:
        change = {"spec": vm.change(before, size)}
        asked = prepare_resize(pod, default_object(PODS, strategic_merge(pod, change, SCHEMA)))
        assert validate_pod_resize(asked, pod) == []
        found = vm_size_of(asked)
        assert (found.vcpus, found.memory_bytes) == (size.vcpus, size.memory_mib * MIB)
        pod, before = asked, size


def test_a_change_names_only_the_cell_that_changes() -> None:
    change = CELLS.change(CELLS.start, grown(CELLS))["virtualMachine"]
    assert change["numa"] == {"cells": [{"id": 1, "memory": "1024Mi"}]}
    assert "numa" not in DIMMS.change(DIMMS.start, grown(DIMMS))["virtualMachine"]


def test_a_group_without_a_quota_breaks_one() -> None:
    proof = GroupProof(7, 70, None, 64 * MIB)
    with pytest.raises(BrokenPromiseError, match="CPU quota is None"):
        check_group("shrink", proof, proof, (300, 64 * MIB))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restartCount": 1}, "pod db was restarted"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}, "actual 2"),
        ({"allocatedResources": {"cpu": "2"}}, "allocated 2"),
    ],
)
def test_desired_allocated_and_actual_must_be_one(change: dict[str, Any], words: str) -> None:
    size = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    status = {"name": "app", "resources": size, "allocatedResources": {"cpu": "1"}}

    def pod(status: dict[str, Any]) -> dict[str, Any]:
        return {
            "metadata": {"name": "db"},
            "spec": {"containers": [{"name": "app", "resources": size}]},
            "status": {"containerStatuses": [{"state": {"running": {}}, **status}]},
        }

    check_settled(pod(status))
    with pytest.raises(BrokenPromiseError, match=words):
        check_settled(pod({**status, **change}))


@pytest.mark.parametrize(("online", "count"), [("0", 1), ("0-3", 4), ("0,2-3,7", 4)])
def test_the_guests_own_files_are_read(online: str, count: int) -> None:
    files = {
        "/proc/meminfo": "MemTotal:  412724 kB\nMemFree: 1 kB\n",
        "/proc/uptime": "14.12 10.00\n",
        "/proc/sys/kernel/random/boot_id": "72c0d6d2\n",
        "/sys/devices/system/cpu/online": f"{online}\n",
        "/sys/devices/system/node/online": "0-1\n",
    }
    for node, total in enumerate((163720, 249004)):
        text = f"Node {node} MemTotal:  {total} kB\nNode {node} MemFree:  1 kB\n"
        files[f"/sys/devices/system/node/node{node}/meminfo"] = text
    nodes = (163720 * 1024, 249004 * 1024)
    assert parse_word(files) == GuestReading(count, 412724 * 1024, nodes, 14.12, "72c0d6d2")


PLENTY = "MemAvailable: 8388608 kB\n"


@pytest.mark.parametrize(
    ("tools", "meminfo", "words"),
    [
        (VmTools("QEMU emulator version 10.0.2", "libvirtd (libvirt) 11.3.0"), PLENTY, []),
        (VmTools("QEMU emulator version 8.2.2", "libvirtd (libvirt) 10.0.0"), PLENTY, []),
        (VmTools(None, "11.3.0"), PLENTY, ["QEMU is not installed"]),
        (VmTools("10.0.2", None, "no module"), PLENTY, ["libvirt is not", "bindings do not"]),
        (VmTools("10.0.2", "11.3.0"), "MemAvailable: 1048576 kB\n", ["1024 MiB of memory"]),
    ],
    ids=["all there", "older is tried", "no QEMU", "no libvirt", "little memory"],
)
def test_what_is_missing_comes_with_a_remedy(
    tools: VmTools, meminfo: str, words: list[str]
) -> None:
    missing = missing_for_vms(tools, meminfo)
    assert [said for said, word in zip(missing, words, strict=True) if word not in said] == []
    assert all(said.count("\n") == 1 for said in missing)


def test_leftovers_are_named() -> None:
    assert not DemoLeftovers()
    assert str(DemoLeftovers((7,), ("livesize/x",))) == "process 7, control group livesize/x"
