"""From a VM pod, what it was promised and what was read of it, to what a plan needs. Pure."""

from __future__ import annotations

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.technologies import DEFAULT_TECHNOLOGY, TECHNOLOGIES
from livesize.agent.vm.plan import VmFacts, VmTarget
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.objects import Object, lookup
from livesize.api.quantity import memory_bytes
from livesize.api.resources import VM_NAME, Amounts, Resources, parse_resources
from livesize.api.vm_identity import vm_uid_of
from livesize.api.vm_kernel import vm_to_kernel
from livesize.api.vm_size import (
    guest_memory_of,
    vcpus_of,
    vm_overhead_bytes,
    vm_size_of,
)
from livesize.runtime.vm import Accelerator, VmView
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig


def overhead_of(pod: Object) -> int:
    """Bytes beside the guest's memory: what the spec says, which is never less than is needed."""
    needed = vm_overhead_bytes(vm_size_of(pod))
    return max(needed, memory_bytes(lookup(pod, "spec", "overhead", "memory", default="0")))


def vm_limits(pod: Object, size: Object, version: CgroupVersion) -> KernelLimits:
    """What the groups of the VM and of its pod are to hold for one size."""
    return vm_to_kernel(parse_resources(size), overhead_of(pod), version)


def vm_target(pod: Object, entry: Allocation, version: CgroupVersion) -> VmTarget:
    size = entry.size(VM_NAME)
    resources = parse_resources(size)
    return VmTarget(
        vcpus=vcpus_of(resources),
        memory_bytes=guest_memory_of(resources),
        overhead_bytes=overhead_of(pod),
        limits=vm_limits(pod, size, version),
    )


def vm_facts(view: VmView) -> VmFacts:
    guest = view.guest
    return VmFacts(
        unplugs_vcpus=view.accelerator is Accelerator.KVM,
        plugged_vcpus=view.plugged_vcpus,
        persistent_vcpus=view.persistent_vcpus,
        online_vcpus=None if guest is None else guest.vcpus_online,
        memory=memory_facts(view),
        pins=view.pins,
        persistent_pins=view.persistent_pins,
    )


def memory_facts(view: VmView) -> MemoryFacts:
    guest = view.guest
    return MemoryFacts(
        boot_bytes=view.boot_memory_bytes,
        devices=view.devices,
        persistent_devices=view.persistent_devices,
        seen_bytes=None if guest is None else guest.memory_seen_bytes,
        available_bytes=None if guest is None else guest.memory_available_bytes,
        noted_bytes=view.note.memory_bytes_being_updated,
        noted_base=view.note.base,
        boot_id="" if guest is None else guest.boot_id,
        balloon=view.balloon,
        persistent_balloon=view.persistent_balloon,
        cells=view.cells,
        seen_by_node=() if guest is None else guest.memory_by_node,
    )


def smaller_size(left: Object, right: Object) -> Resources:
    """Of two sizes of a VM, for each resource the smaller one."""
    sizes = [parse_resources(size) for size in (left, right)]
    size = Amounts(
        cpu_milli=1000 * min(vcpus_of(one) for one in sizes),
        memory_bytes=min(guest_memory_of(one) for one in sizes),
    )
    return Resources(requests=size, limits=size)


def vm_config(pod: Object, resources: Resources) -> VmConfig:
    """How the domain is made, at a size that was allocated."""
    size = vm_size_of(pod, resources)
    vm = pod["spec"]["virtualMachine"]
    kernel = lookup(vm, "kernel", "image", default="")
    given = lookup(vm, "kernel", "commandLine")
    return VmConfig(
        vcpus=size.vcpus,
        max_vcpus=size.max_vcpus,
        memory_bytes=size.memory_bytes,
        max_memory_bytes=size.max_memory_bytes,
        boot_memory_bytes=size.boot_memory_bytes,
        devices=TECHNOLOGIES[DEFAULT_TECHNOLOGY].initial_devices(size),
        kernel=kernel,
        initrd=lookup(vm, "kernel", "initrd", default=""),
        command_line=(COMMAND_LINE if given is None else given) if kernel else "",
        disk=lookup(vm, "disk", "image", default=""),
        uid=vm_uid_of(pod),
    )
