"""How large a virtual machine is, how large it can become, and what it costs beside its guest.

vCPUs are the CPU limit (else the request), guest memory is the memory limit (else the request);
requests are what is scheduled and allocated (decisions 18). Maxima and boot memory are fixed when
the VM is made: ``fill_vm`` writes them into the spec, and ``keep_vm_fixed`` keeps them there.

The overhead follows from the maxima alone. A resize therefore never changes it: a pure shrink
cannot need room, and a change of CPUs leaves the memory of the pod's group as it is.
"""

from __future__ import annotations

import enum

import msgspec

from livesize.api.objects import Object, evolve, lookup
from livesize.api.quantity import cpu_milli, format_cpu, format_memory, memory_bytes
from livesize.api.resources import Resources, is_vm, or_else, parse_resources

MEBIBYTE = 2**20
MEMORY_BLOCK_BYTES = 2 * MEBIBYTE
MAXIMUM_TIMES = 4
LARGEST_VCPUS = 255  # more needs an interrupt controller that we do not give
KERNEL_BOOT_BYTES = 512 * MEBIBYTE
# A guest keeps books of every page it has, 64 bytes each, where they cannot be taken away: in the
# memory it boots with. So much of its maximum leaves as much again for everything else.
BOOT_SHARE = 32
SMALLEST_BOOT_BYTES = 64 * MEBIBYTE  # no Linux guest of today boots with less

# QEMU beside its guest's memory: measured at no more than 54 MiB, and a cache of translated code
# that is held at 128.
_EMULATOR_BYTES = 192 * MEBIBYTE
_VCPU_BYTES = 8 * MEBIBYTE  # KCPU's budget for one that is not enabled; an enabled one needs less
_PAGE_TABLE_SHARE = 256  # 8 bytes a page, in the tables of QEMU and again in those of the guest

VM_FIXED = (("cpu", "max"), ("memory", "max"), ("memory", "boot"))


class Technology(enum.StrEnum):
    """How a VM's memory changes: ``spec.virtualMachine.memory.technology``, or the node's default
    where the VM does not say. AUTO: virtio-mem above what it boots with, the balloon below."""

    AUTO = "auto"
    VIRTIO_MEM = "virtio-mem"
    DIMM = "dimm"
    BALLOON = "balloon"


class CellSize(msgspec.Struct, frozen=True):
    """The memory of one NUMA cell."""

    id: int
    memory_bytes: int


class VmTopology(msgspec.Struct, frozen=True):
    """One socket. vCPUs come and go in whole sockets."""

    cores: int = 1
    threads: int = 1

    @property
    def vcpus(self) -> int:
        return self.cores * self.threads


class VmSize(msgspec.Struct, frozen=True):
    """The rest above ``boot_memory_bytes`` is plugged, and can be taken away again.

    ``min_memory_bytes``: the least that the balloon leaves; 0: nothing below the boot size.
    ``technology`` None: the node decides. ``cells``: what each has now, by id, and
    ``boot_cells`` what each boots with; empty: the VM has one cell, and no change names it.
    """

    vcpus: int
    memory_bytes: int
    max_vcpus: int
    max_memory_bytes: int
    boot_memory_bytes: int
    min_memory_bytes: int = 0
    technology: Technology | None = None
    cells: tuple[CellSize, ...] = ()
    boot_cells: tuple[CellSize, ...] = ()
    topology: VmTopology | None = None


class MemoryBase(msgspec.Struct, frozen=True):
    """What was plugged in, and what the guest saw of it, when nothing was under way. By how much
    its own figure has to change is counted from here."""

    plugged_bytes: int
    seen_bytes: int
    boot_id: str  # of the guest
    # For each NUMA node by its number, where the guest says it: plugged in, and seen.
    plugged_by_node: tuple[int, ...] = ()
    seen_by_node: tuple[int, ...] = ()


def vm_size_of(pod: Object, resources: Resources | None = None) -> VmSize:
    """The size the spec of a (valid) VM pod asks for, or with other ``resources``, for instance
    the allocated ones, in their place."""
    vm = fill_vm(pod["spec"]["virtualMachine"])
    wanted = parse_resources(vm["resources"]) if resources is None else resources
    return VmSize(
        vcpus=vcpus_of(wanted),
        memory_bytes=guest_memory_of(wanted),
        max_vcpus=cpu_milli(vm["cpu"]["max"]) // 1000,
        max_memory_bytes=memory_bytes(vm["memory"]["max"]),
        boot_memory_bytes=memory_bytes(vm["memory"]["boot"]),
    )


def vcpus_of(resources: Resources) -> int:
    """Whole vCPUs; 0 where nothing says how many."""
    return (or_else(resources.limits, resources.requests).cpu_milli or 0) // 1000


def guest_memory_of(resources: Resources) -> int:
    """0 where nothing says how much."""
    return or_else(resources.limits, resources.requests).memory_bytes or 0


def vm_overhead_bytes(size: VmSize) -> int:
    """Memory the pod needs beside its guest's: QEMU, 8 MiB for every vCPU it may ever have (F70),
    and page tables; whole MiB."""
    tables = -(-size.max_memory_bytes // (_PAGE_TABLE_SHARE * MEBIBYTE)) * MEBIBYTE
    return _EMULATOR_BYTES + size.max_vcpus * _VCPU_BYTES + tables


def fill_vm(vm: Object) -> Object:
    """``vm`` with maxima and boot memory where they are absent; needs the right shape, and raises
    QuantityError. Where no size is given there is nothing to fill in."""
    wanted = parse_resources(vm.get("resources"))
    vcpus, memory = vcpus_of(wanted), guest_memory_of(wanted)
    filled = vm
    if vcpus > 0:
        largest = max(vcpus, min(MAXIMUM_TIMES * vcpus, LARGEST_VCPUS))
        filled = _with_default(filled, ("cpu", "max"), format_cpu(1000 * largest))
    if memory > 0:
        blocks = -(-memory // MEMORY_BLOCK_BYTES) * MEMORY_BLOCK_BYTES
        filled = _with_default(filled, ("memory", "max"), format_memory(MAXIMUM_TIMES * blocks))
        boot = blocks if vm.get("disk") is not None else min(blocks, _kernel_boot_bytes(filled))
        filled = _with_default(filled, ("memory", "boot"), format_memory(boot))
    return filled


def _kernel_boot_bytes(vm: Object) -> int:
    books = -(-memory_bytes(vm["memory"]["max"]) // (BOOT_SHARE * MEMORY_BLOCK_BYTES))
    return max(KERNEL_BOOT_BYTES, books * MEMORY_BLOCK_BYTES)


def is_filled(vm: Object) -> bool:
    """Everything is there that ``vm_size_of`` needs."""
    return all(lookup(vm, *path) is not None for path in VM_FIXED)


def keep_vm_fixed(old: Object, new: Object) -> Object:
    """``new`` with the maxima, boot memory and overhead of ``old`` where it does not say them: a
    manifest without them means no other maximum than the one the VM has."""
    if not is_vm(new) or not is_vm(old):
        return new
    kept = new
    for path in (*(("virtualMachine", *fixed) for fixed in VM_FIXED), ("overhead",)):
        given, now = lookup(new, "spec", *path), lookup(old, "spec", *path)
        parent = lookup(new, "spec", *path[:-1], default={})
        if given is None and now is not None and isinstance(parent, dict):
            kept = evolve(kept, ("spec", *path), now)
    return kept


def _with_default(vm: Object, path: tuple[str, str], text: str) -> Object:
    return vm if lookup(vm, *path) is not None else evolve(vm, path, text)
