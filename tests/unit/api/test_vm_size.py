"""Sizes of a virtual machine: what counts, what is written down once, what the kernel is to hold,
and what is reported as actual."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.accounting import footprint, pod_overhead, requests_of
from livesize.api.defaults import default_object
from livesize.api.kernel_units import CgroupVersion, KernelLimits, pod_kernel
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, without
from livesize.api.resources import (
    Amounts,
    Resources,
    format_amounts,
    parse_resources,
    size_of,
    vm_container,
)
from livesize.api.validation.objects import validate_create
from livesize.api.vm_defaults import keep_vm_fixed
from livesize.api.vm_dimms import DIMM_STEP_BYTES, fewest_dimms, most_in_dimms
from livesize.api.vm_kernel import VmHolding, report_vm_actual, vm_holding, vm_to_kernel
from livesize.api.vm_size import (
    MEMORY_BLOCK_BYTES,
    CellSize,
    VmSize,
    VmTopology,
    cells_of_size,
    vm_overhead_bytes,
    vm_size_of,
)
from livesize.runtime.libvirt.model import TB_CACHE_MIB

MEBIBYTE = 2**20
GIBIBYTE = 2**30
OVERHEAD = 232 * MEBIBYTE
V1, V2 = CgroupVersion.V1, CgroupVersion.V2


def vm_pod(resources: Any = None, **more: Any) -> Object:
    given = {"limits": {"cpu": "1", "memory": "512Mi"}} if resources is None else resources
    vm = {"kernel": {"image": "guest"}, "resources": given, **more}
    spec = {"virtualMachine": {name: part for name, part in vm.items() if part is not None}}
    metadata = {"name": "vm1", "namespace": "default"}
    return default_object(PODS, {"metadata": metadata, "spec": spec})


def limits(cpu: str, memory: str) -> Object:
    return {"limits": {"cpu": cpu, "memory": memory}}


def requests(cpu: str, memory: str) -> Object:
    return {"requests": {"cpu": cpu, "memory": memory}}


DISK = {"kernel": None, "disk": {"image": "d.qcow2"}}
BIG = limits("2", "2Gi")


@pytest.mark.parametrize(
    ("resources", "more", "expected"),
    [
        pytest.param(BIG, {}, (2, 2048, 8, 8192, 512), id="maxima are four times"),
        pytest.param(limits("1", "256Mi"), {}, (1, 256, 4, 1024, 256), id="boots with all it has"),
        pytest.param(BIG, DISK, (2, 2048, 8, 8192, 2048), id="a disk boots with all"),
        pytest.param(requests("3", "1Gi"), {}, (3, 1024, 12, 4096, 512), id="requests alone"),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "1Gi"}, **BIG},
            {},
            (2, 2048, 8, 8192, 512),
            id="the limit says the size",
        ),
        pytest.param(BIG, {"cpu": {"max": 3}}, (2, 2048, 3, 8192, 512), id="given cpu maximum"),
        pytest.param(
            BIG,
            {"memory": {"max": "4Gi", "boot": "1Gi"}},
            (2, 2048, 8, 4096, 1024),
            id="given memory",
        ),
        pytest.param(
            limits("1", "64Gi"),
            {},
            (1, 65536, 4, 4 * 65536, 8192),
            id="a large VM boots with enough for its books",
        ),
        pytest.param(
            limits("1", "2Gi"),
            {"memory": {"max": "24578Mi"}},
            (1, 2048, 4, 24578, 770),
            id="in whole blocks",
        ),
        pytest.param(
            limits("1", "512Mi"),
            {"memory": {"max": "64Gi"}},
            (1, 512, 4, 65536, 512),
            id="never more than it has",
        ),
        pytest.param(limits("100", "1Gi"), {}, (100, 1024, 255, 4096, 512), id="never over 255"),
    ],
)
def test_the_size_of_a_vm(resources: Object, more: Any, expected: tuple[int, ...]) -> None:
    pod = vm_pod(resources, **more)
    assert validate_create(PODS, pod) == []
    vcpus, memory, max_vcpus, max_memory, boot = expected
    sizes = (memory * MEBIBYTE, max_memory * MEBIBYTE, boot * MEBIBYTE, min(512, boot) * MEBIBYTE)
    assert vm_size_of(pod) == VmSize(
        vcpus=vcpus,
        memory_bytes=sizes[0],
        max_vcpus=max_vcpus,
        max_memory_bytes=sizes[1],
        boot_memory_bytes=sizes[2],
        min_memory_bytes=sizes[3],
    )


def cells(*memory: str, **more: Any) -> Object:
    numa = {"cells": [{"id": index, "memory": text} for index, text in enumerate(memory)]}
    return {"numa": numa, **more}


def test_cells_boot_with_what_they_have_when_the_vm_is_made() -> None:
    pod = vm_pod(limits("2", "1Gi"), **cells("768Mi", "256Mi"))
    vm = pod["spec"]["virtualMachine"]
    assert vm["numa"]["cells"] == [
        {"id": 0, "memory": "768Mi", "boot": "768Mi"},
        {"id": 1, "memory": "256Mi", "boot": "256Mi"},
    ]
    assert vm["memory"] == {"max": "4Gi", "boot": "1Gi"}
    size = vm_size_of(pod)
    assert size.cells == size.boot_cells == cell_sizes_of(768, 256)
    assert size.min_memory_bytes == 0, "a balloon takes from no cell"
    grown = {**size_of(vm_container(vm)), "cells": [{"id": 1, "memory": "512Mi"}]}
    assert cells_of_size(grown) == (CellSize(1, 512 * MEBIBYTE),)


def cell_sizes_of(*mebibytes: int) -> tuple[CellSize, ...]:
    return tuple(CellSize(index, size * MEBIBYTE) for index, size in enumerate(mebibytes))


@pytest.mark.parametrize(
    ("resources", "more", "boot", "least"),
    [
        pytest.param(limits("1", "1Gi"), {"technology": "balloon"}, 4096, 512, id="balloon"),
        pytest.param(
            limits("1", "256Mi"),
            {"technology": "balloon", "max": "2Gi", "min": "128Mi"},
            2048,
            128,
            id="balloon that may leave less",
        ),
        pytest.param(limits("1", "2Gi"), {"technology": "virtio-mem"}, 512, 0, id="virtio-mem"),
        pytest.param(limits("1", "1000Mi"), {"technology": "dimm"}, 616, 0, id="whole modules"),
        pytest.param(
            limits("1", "33408Mi"),
            {"technology": "dimm", "max": "33408Mi"},
            1664,
            0,
            id="no more modules than slots: 15 of 2 GiB and one of 1 GiB",
        ),
        pytest.param(limits("1", "256Mi"), {"technology": "auto"}, 256, 256, id="auto"),
    ],
)
def test_what_a_vm_boots_with_by_its_technology(
    resources: Object, more: Object, boot: int, least: int
) -> None:
    size = vm_size_of(vm_pod(resources, memory=more))
    assert size.boot_memory_bytes == boot * MEBIBYTE
    assert size.min_memory_bytes == least * MEBIBYTE
    assert size.technology == more["technology"]


@pytest.mark.parametrize(
    ("vcpus", "topology", "count", "largest"),
    [
        ("2", {"cores": 2}, 0, "8"),
        ("4", {"cores": 2, "threads": 2}, 0, "16"),
        ("96", {"threads": 2, "cores": 6}, 0, "252"),
        ("1", {}, 3, "3"),
        ("2", {"cores": 2}, 3, "6"),
    ],
)
def test_the_most_vcpus_come_in_whole_sockets_and_equal_blocks(
    vcpus: str, topology: Object, count: int, largest: str
) -> None:
    memory = ["256Mi"] * count
    size = limits(vcpus, f"{256 * count}Mi" if count else "256Mi")
    pod = vm_pod(size, cpu=topology, **(cells(*memory) if count else {}))
    assert pod["spec"]["virtualMachine"]["cpu"]["max"] == largest
    given = VmTopology(topology.get("cores", 1), topology.get("threads", 1)) if topology else None
    assert vm_size_of(pod).topology == given


@given(st.integers(0, 40 * 1024), st.integers(0, 16))
def test_modules_come_to_as_much_as_slots_allow(mebibytes: int, slots: int) -> None:
    amount = mebibytes * MEBIBYTE
    found = most_in_dimms(amount, slots)
    assert found <= amount
    assert found % DIMM_STEP_BYTES == 0
    assert fewest_dimms(found) <= slots
    if found + DIMM_STEP_BYTES <= amount:
        assert fewest_dimms(found + DIMM_STEP_BYTES) > slots


def test_defaults_write_maxima_boot_memory_and_overhead_down_once() -> None:
    pod = vm_pod()
    vm = pod["spec"]["virtualMachine"]
    assert vm["cpu"] == {"max": "4"}
    assert vm["memory"] == {"max": "2Gi", "boot": "512Mi"}
    assert vm["resources"]["requests"] == vm["resources"]["limits"]
    assert pod["spec"]["overhead"] == {"memory": "232Mi"}
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert "containers" not in pod["spec"]
    resized = evolve(pod, ("spec", "virtualMachine", "resources"), limits("4", "2Gi"))
    again = default_object(PODS, resized)
    assert vm_size_of(again).max_vcpus == 4
    assert again["spec"]["overhead"] == pod["spec"]["overhead"]


def test_fields_of_cpu_and_memory_we_do_not_know_are_kept() -> None:
    vm = vm_pod(cpu={"sockets": 2, "max": 8.0})["spec"]["virtualMachine"]
    assert vm["cpu"] == {"sockets": 2, "max": "8"}


def test_a_manifest_without_maxima_means_the_ones_the_vm_has() -> None:
    old = vm_pod()
    sent = {**old, "spec": {"virtualMachine": {"kernel": {"image": "guest"}, "resources": BIG}}}
    kept = default_object(PODS, keep_vm_fixed(old, sent))
    for part in ("cpu", "memory"):
        assert kept["spec"]["virtualMachine"][part] == old["spec"]["virtualMachine"][part]
    assert kept["spec"]["overhead"] == old["spec"]["overhead"]
    given = keep_vm_fixed(old, evolve(sent, ("spec", "virtualMachine", "cpu", "max"), "9"))
    assert given["spec"]["virtualMachine"]["cpu"] == {"max": "9"}


def test_the_overhead_counts_in_the_fit_and_in_the_footprint() -> None:
    pod = vm_pod(requests={"cpu": "1"})
    assert pod_overhead(pod) == Amounts(0, OVERHEAD)
    whole = Amounts(1000, 512 * MEBIBYTE + OVERHEAD)
    assert requests_of(pod) == footprint(pod) == whole


sizes = st.builds(
    lambda vcpus, blocks, more, most: VmSize(
        vcpus=vcpus,
        memory_bytes=blocks * MEMORY_BLOCK_BYTES,
        max_vcpus=vcpus + more,
        max_memory_bytes=(blocks + most) * MEMORY_BLOCK_BYTES,
        boot_memory_bytes=MEMORY_BLOCK_BYTES,
    ),
    st.integers(1, 255), st.integers(1, 2**21), st.integers(0, 255), st.integers(0, 2**21),
)  # fmt: skip


@given(sizes, st.integers(1, 255), st.integers(1, 2**21))
def test_a_resize_never_changes_the_overhead(size: VmSize, vcpus: int, blocks: int) -> None:
    memory = blocks * MEMORY_BLOCK_BYTES
    other = VmSize(vcpus, memory, size.max_vcpus, size.max_memory_bytes, boot_memory_bytes=memory)
    overhead = vm_overhead_bytes(size)
    assert overhead == vm_overhead_bytes(other)
    # 8 MiB for each vCPU that is not enabled (F70), and what QEMU was measured to need.
    emulator = (54 + TB_CACHE_MIB) * MEBIBYTE
    assert overhead >= emulator + 8 * MEBIBYTE * (size.max_vcpus - size.vcpus)
    assert overhead % MEBIBYTE == 0


@pytest.mark.parametrize(
    ("resources", "quota_us", "memory"),
    [
        pytest.param(limits("4", "2Gi"), 400_000, 2 * GIBIBYTE + OVERHEAD, id="limits"),
        pytest.param(requests("2", "1Gi"), 200_000, GIBIBYTE + OVERHEAD, id="requests alone"),
    ],
)
def test_the_group_of_a_vm(resources: Object, quota_us: int, memory: int) -> None:
    for version in CgroupVersion:
        group = vm_to_kernel(parse_resources(resources), OVERHEAD, version)
        assert (group.cpu_quota_us, group.memory_limit_bytes) == (quota_us, memory)
        assert pod_kernel([group], version) == group


def test_the_weight_of_a_vm_is_its_request() -> None:
    resources = parse_resources({"requests": {"cpu": "1"}, **limits("4", "1Gi")})
    assert vm_to_kernel(resources, 0, V1).cpu_weight == 1024


OLD: Object = {"requests": {"cpu": "1", "memory": "256Mi"}, **limits("1", "512Mi")}
NEW: Object = {"requests": {"cpu": "2", "memory": "1024Mi"}, **limits("4000m", "2048Mi")}


def seen(vcpus: int, memory_mib: int, group: Object) -> VmHolding:
    limits_of_group = vm_to_kernel(parse_resources(group), OVERHEAD, V1)
    return VmHolding(vcpus, memory_mib * MEBIBYTE, limits_of_group)


@pytest.mark.parametrize(
    ("holding", "actual"),
    [
        pytest.param(seen(4, 2048, NEW), (NEW["requests"] | {"memory": "256Mi"}, NEW["limits"]),
                     id="all three places have it: in allocated's own quantities"),
        pytest.param(seen(1, 512, OLD), (OLD["requests"], OLD["limits"]),
                     id="nothing has happened yet"),
        pytest.param(seen(1, 512, NEW), ({"cpu": "2", "memory": "256Mi"},
                     {"cpu": "1", "memory": "512Mi"}), id="only the group has grown"),
        pytest.param(seen(3, 1000, NEW), ({"cpu": "2", "memory": "256Mi"},
                     {"cpu": "3", "memory": "1000Mi"}), id="the guest is on its way"),
        pytest.param(seen(4, 2048, OLD), ({"cpu": "1", "memory": "256Mi"},
                     {"cpu": "1", "memory": "512Mi"}), id="the group was left behind"),
    ],
)  # fmt: skip
def test_actual_is_what_all_places_have(holding: VmHolding, actual: tuple[Object, Object]) -> None:
    report = report_vm_actual(NEW, OLD, holding, OVERHEAD, V1)
    assert (report["requests"], report["limits"]) == actual


def test_a_finished_size_is_reported_as_it_was_asked() -> None:
    for version in CgroupVersion:
        for size in (OLD, NEW, requests("2", "1Gi"), {**NEW, "limits": {"memory": "2Gi"}}):
            holding = vm_holding(parse_resources(size), OVERHEAD, version)
            assert report_vm_actual(size, size, holding, OVERHEAD, version) == size


def test_a_group_without_limits_is_not_reported_as_limited() -> None:
    holding = VmHolding(4, 2 * GIBIBYTE, KernelLimits(2048, None, None))
    assert report_vm_actual(NEW, NEW, holding, OVERHEAD, V1) == {"requests": NEW["requests"]}


def test_requests_alone_say_the_size_and_the_weight() -> None:
    size = requests("2", "1Gi")
    for version in CgroupVersion:
        expected = vm_holding(parse_resources(size), OVERHEAD, version)
        light = KernelLimits(2, expected.group.cpu_quota_us, expected.group.memory_limit_bytes)
        for holding, cpu, memory in (
            (VmHolding(1, GIBIBYTE, expected.group), "1", "1Gi"),
            (VmHolding(2, GIBIBYTE // 2, expected.group), "2", "512Mi"),
            (VmHolding(2, GIBIBYTE, light), None, "1Gi"),
        ):
            actual = report_vm_actual(size, size, holding, OVERHEAD, version)["requests"]
            assert actual["memory"] == memory
            assert actual["cpu"] == cpu or (cpu is None and actual["cpu"] != "2")


def amounts(vcpus: int, blocks: int) -> Amounts:
    return Amounts(1000 * vcpus, blocks * MEMORY_BLOCK_BYTES)


vm_resources = st.builds(
    lambda low, high, with_limits: Resources(
        requests=amounts(min(low[0], high[0]), min(low[1], high[1])),
        limits=amounts(max(low[0], high[0]), max(low[1], high[1])) if with_limits else Amounts(),
    ),
    st.tuples(st.integers(1, 255), st.integers(1, 2**16)),
    st.tuples(st.integers(1, 255), st.integers(1, 2**16)),
    st.booleans(),
)


def written(size: Resources) -> dict[str, Any]:
    lists = {"requests": format_amounts(size.requests), "limits": format_amounts(size.limits)}
    return {name: amounts for name, amounts in lists.items() if amounts}


@given(vm_resources, vm_resources, st.sampled_from(CgroupVersion), st.data())
def test_actual_is_allocated_exactly_when_the_machine_holds_all_of_it(
    new: Resources, old: Resources, version: CgroupVersion, data: st.DataObject
) -> None:
    """Any place may have the old or the new number: in whatever order they are written, the size
    is not reported as reached before the last one is."""
    allocated, actuated = written(new), written(old)
    after, before = (vm_holding(size, OVERHEAD, version) for size in (new, old))

    def either(field: str) -> Any:
        return getattr(data.draw(st.sampled_from([after, before])).group, field)

    holding = VmHolding(
        data.draw(st.sampled_from([after.vcpus, before.vcpus])),
        data.draw(st.sampled_from([after.memory_bytes, before.memory_bytes])),
        KernelLimits(either("cpu_weight"), either("cpu_quota_us"), either("memory_limit_bytes")),
    )
    actual = parse_resources(report_vm_actual(allocated, allocated, holding, OVERHEAD, version))
    assert (actual == new) == (holding == after)
    # With what was actuated before, no reading fails, and the end is the same.
    report_vm_actual(allocated, actuated, holding, OVERHEAD, version)
    done = report_vm_actual(allocated, actuated, after, OVERHEAD, version)
    assert without(done, ("requests", "memory")) == without(allocated, ("requests", "memory"))
