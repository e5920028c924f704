"""From the quantity a user writes to the XML libvirt reads, no value is truncated (F51).

ARK, "Type conversions": "during conversion the data will not be truncated".
"""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.vm.sizes import tune_of, vm_config, vm_limits
from livesize.api.defaults import default_object
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object
from livesize.api.resources import resizable_of, size_of
from livesize.api.vm_changes import total_bytes
from livesize.api.vm_size import Technology, vm_overhead_bytes, vm_size_of
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import DomainKernel, parse, render
from livesize.runtime.libvirt.vcpu_xml import with_tune
from livesize.runtime.vm import Accelerator

MIB = 2**20
TEBIBYTE_BLOCKS = 2**19  # of 2 MiB
blocks = st.one_of(st.integers(32, 4096), st.integers(32, TEBIBYTE_BLOCKS))


@given(
    vcpus=st.integers(1, 255),
    memory_blocks=blocks,
    accelerator=st.sampled_from(Accelerator),
    version=st.sampled_from(CgroupVersion),
)
def test_what_is_asked_is_what_the_domain_and_the_group_get(
    vcpus: int, memory_blocks: int, accelerator: Accelerator, version: CgroupVersion
) -> None:
    memory_bytes = memory_blocks * 2 * MIB
    size = {"cpu": str(vcpus), "memory": f"{memory_bytes // 1024}Ki"}
    vm = {"kernel": {"image": "guest"}, "resources": {"requests": size, "limits": size}}
    pod = default_object(PODS, {"metadata": {"name": "vm1"}, "spec": {"virtualMachine": vm}})
    resources = pod["spec"]["virtualMachine"]["resources"]
    config = vm_config(pod, {"name": "vm", **resources})
    model = compose_domain(
        DomainIdentity("vm", "pod"), config, DomainKernel("/kernel"), "/log", accelerator
    )
    read = parse(render(model))
    assert read == model
    (device,) = read.devices
    assert read.vcpus == vcpus
    assert read.boot_memory_bytes + device.requested_bytes == memory_bytes
    assert read.max_vcpus == min(4 * vcpus, 255)
    assert read.boot_memory_bytes + device.size_bytes >= 4 * memory_bytes
    group = vm_limits(pod, {"name": "vm", **resources}, version)
    assert group.cpu_quota_us == vcpus * CPU_PERIOD_US
    assert group.memory_limit_bytes == memory_bytes + vm_overhead_bytes(vm_size_of(pod))


class Machine(msgspec.Struct, frozen=True):
    """A VM as a user writes it, and what it comes to."""

    vm: Object
    vcpus: int
    memory_bytes: int
    technology: Technology
    cells: tuple[int, ...] = ()


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Of any technology, with cells and sockets where these are, of any size they can have."""
    technology = draw(st.sampled_from(Technology))
    cores, sockets = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    step = 64 if technology is Technology.DIMM else 1
    cells: list[int] = []
    numa: Object = {}
    if technology is not Technology.BALLOON and draw(st.booleans()):
        boots = draw(st.lists(st.integers(64, 512), min_size=1, max_size=4))
        grown = draw(st.integers(0, 8))
        cells = [boot + step * grown for boot in boots]
        listed = [
            {"id": number, "memory": f"{2 * now}Mi", "boot": f"{2 * boot}Mi"}
            for number, (boot, now) in enumerate(zip(boots, cells, strict=True))
        ]
        numa = {"numa": {"cells": listed}}
        blocks_ = sum(cells)
    else:
        blocks_ = draw(st.integers(256, TEBIBYTE_BLOCKS))
    size = {"cpu": str(cores * sockets), "memory": f"{blocks_ * 2048}Ki"}
    count = len(cells) or 1
    vm = {
        "kernel": {"image": "guest"},
        "resources": {"requests": size, "limits": size},
        "cpu": {"cores": cores, "max": str(cores * sockets * count)},
        "memory": {"technology": technology.value},
        **numa,
    }
    memory = tuple(2 * MIB * one for one in cells)
    return Machine(vm, cores * sockets, blocks_ * 2 * MIB, technology, memory)


@given(
    machine=machines(),
    accelerator=st.sampled_from(Accelerator),
    version=st.sampled_from(CgroupVersion),
)
def test_the_whole_table(
    machine: Machine, accelerator: Accelerator, version: CgroupVersion
) -> None:
    """ARK's rows, each from the API's quantity through limits and VmConfig to the XML and back:
    vcpus, cpuShares, cpuQuota, cpuPeriod, memory; and ours, technology, topology and cells."""
    pod = default_object(PODS, {"metadata": {"name": "v"}, "spec": {"virtualMachine": machine.vm}})
    (size,) = (size_of(one) for one in resizable_of(pod))
    limits = vm_limits(pod, size, version)
    config = vm_config(pod, size, tune=tune_of(limits))
    identity = DomainIdentity("vm", "pod")
    kernel = DomainKernel("/kernel")
    model = compose_domain(identity, config, kernel, "/log", accelerator)
    read = parse(with_tune(render(model), config.tune))  # the driver writes it when the VM runs
    most = pod["spec"]["virtualMachine"]["cpu"]["max"]
    assert (read.vcpus, read.max_vcpus) == (machine.vcpus, int(most))
    assert limits.cpu_quota_us == machine.vcpus * CPU_PERIOD_US
    assert read.tune.shares == limits.cpu_weight
    assert read.tune.quota_us == limits.cpu_quota_us
    assert read.tune.period_us == CPU_PERIOD_US
    requested = total_bytes(read.boot_memory_bytes, read.devices)
    if read.balloon_bytes is not None:
        requested -= read.boot_memory_bytes - read.balloon_bytes
    assert requested == machine.memory_bytes
    assert limits.memory_limit_bytes == machine.memory_bytes + vm_overhead_bytes(vm_size_of(pod))
    assert config.technology is machine.technology
    assert read.topology == vm_size_of(pod).topology
    for number, memory in enumerate(machine.cells):
        boot = read.cells[number].memory_bytes if read.cells else read.boot_memory_bytes
        plugged = [one.requested_bytes for one in read.devices if one.node == number]
        assert boot + sum(plugged) == memory
