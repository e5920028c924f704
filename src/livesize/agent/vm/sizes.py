"""From a VM pod, what it was promised and what was read of it, to what a plan needs. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.technologies import TECHNOLOGIES
from livesize.agent.vm.plan import VmFacts, VmTarget
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion, KernelLimits
from livesize.api.objects import Object, lookup
from livesize.api.quantity import format_cpu, format_memory, memory_bytes
from livesize.api.resources import VM_NAME, parse_resources
from livesize.api.vm_changes import VmTune
from livesize.api.vm_identity import vm_uid_of
from livesize.api.vm_kernel import vm_to_kernel
from livesize.api.vm_size import (
    Technology,
    VmSize,
    cells_of_size,
    guest_memory_of,
    vcpus_of,
    vm_overhead_bytes,
    vm_size_of,
)
from livesize.runtime.vm import Accelerator, VmView
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig

NOT_TUNED = VmTune()


def overhead_of(pod: Object) -> int:
    """Bytes beside the guest's memory: what the spec says, which is never less than is needed."""
    needed = vm_overhead_bytes(vm_size_of(pod))
    return max(needed, memory_bytes(lookup(pod, "spec", "overhead", "memory", default="0")))


def vm_limits(pod: Object, size: Object, version: CgroupVersion) -> KernelLimits:
    """What the groups of the VM and of its pod are to hold for one size."""
    return vm_to_kernel(parse_resources(size), overhead_of(pod), version)


def start_limits(
    pod: Object, size: Object, version: CgroupVersion, default: Technology
) -> KernelLimits:
    """The same for as long as the guest boots: a balloon takes memory only when that is done."""
    wanted = _with_technology(_size_of(pod, size), default)
    limits = vm_limits(pod, size, version)
    held_bytes = max(wanted.boot_memory_bytes, wanted.memory_bytes) + overhead_of(pod)
    return replace(limits, memory_limit_bytes=max(limits.memory_limit_bytes or 0, held_bytes))


def tune_of(limits: KernelLimits) -> VmTune:
    """<cputune> of a VM says the same as its group (ARK, "Type conversions")."""
    return VmTune(limits.cpu_weight, limits.cpu_quota_us, CPU_PERIOD_US)


def vm_target(pod: Object, entry: Allocation, version: CgroupVersion) -> VmTarget:
    """The technology is that of a VM that runs: its view says it."""
    size = entry.size(VM_NAME)
    wanted, limits = _size_of(pod, size), vm_limits(pod, size, version)
    return VmTarget(
        vcpus=wanted.vcpus,
        memory_bytes=wanted.memory_bytes,
        overhead_bytes=overhead_of(pod),
        limits=limits,
        cells=wanted.cells,
        min_memory_bytes=wanted.min_memory_bytes,
        max_memory_bytes=wanted.max_memory_bytes,
        tune=tune_of(limits),
    )


def vm_facts(view: VmView, *, agent_may_come: bool = False) -> VmFacts:
    """``agent_may_come``: the guest may not have started it yet."""
    guest = view.guest
    return VmFacts(
        unplugs_vcpus=view.accelerator is Accelerator.KVM,
        plugged_vcpus=view.plugged_vcpus,
        persistent_vcpus=view.persistent_vcpus,
        online_vcpus=None if guest is None else guest.vcpus_online,
        memory=memory_facts(view),
        pins=view.pins,
        persistent_pins=view.persistent_pins,
        has_agent=agent_may_come or guest is None or guest.agent,
        created_vcpus=view.created_vcpus,
        max_vcpus=view.max_vcpus,
        topology=view.topology,
        tune=view.tune,
        persistent_tune=view.persistent_tune,
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


def smaller_size(left: Object, right: Object) -> Object:
    """Of two sizes of a VM, for each resource the smaller one."""

    def memory_of(size: Object) -> int:
        return guest_memory_of(parse_resources(size))

    vcpus = min(vcpus_of(parse_resources(size)) for size in (left, right))
    less = min(left, right, key=memory_of)
    amounts = {"cpu": format_cpu(1000 * vcpus), "memory": format_memory(memory_of(less))}
    return {"requests": amounts, "limits": amounts, "cells": less.get("cells") or []}


def vm_config(
    pod: Object,
    allocated: Object,
    default: Technology = Technology.AUTO,
    tune: VmTune = NOT_TUNED,
) -> VmConfig:
    """How the domain is made, at a size that was allocated. ``default``: the node's technology, for
    a VM that names none."""
    size = _with_technology(_size_of(pod, allocated), default)
    assert size.technology is not None
    technology = TECHNOLOGIES[size.technology]
    vm = pod["spec"]["virtualMachine"]
    kernel = lookup(vm, "kernel", "image", default="")
    given = lookup(vm, "kernel", "commandLine")
    return VmConfig(
        vcpus=size.vcpus,
        max_vcpus=size.max_vcpus,
        memory_bytes=size.memory_bytes,
        max_memory_bytes=size.max_memory_bytes,
        boot_memory_bytes=size.boot_memory_bytes,
        devices=technology.initial_devices(size),
        kernel=kernel,
        initrd=lookup(vm, "kernel", "initrd", default=""),
        command_line=(COMMAND_LINE if given is None else given) if kernel else "",
        disk=lookup(vm, "disk", "image", default=""),
        uid=vm_uid_of(pod),
        technology=size.technology,
        cells=size.boot_cells,
        balloon_bytes=technology.initial_balloon(size),
        topology=size.topology,
        tune=tune,
    )


def _size_of(pod: Object, size: Object) -> VmSize:
    """A {requests, limits, cells} in the place of what the spec asks for."""
    return vm_size_of(pod, parse_resources(size), cells_of_size(size))


def _with_technology(size: VmSize, default: Technology) -> VmSize:
    """With the technology that a VM of this size is started with, and what it then boots with."""
    technology = size.technology or default
    boot_bytes = TECHNOLOGIES[technology].boot_bytes(size)
    return replace(size, technology=technology, boot_memory_bytes=boot_bytes)
