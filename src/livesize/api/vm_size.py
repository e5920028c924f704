"""How large a virtual machine is, how large it can become, and what it costs beside its guest.

vCPUs are the CPU limit (else the request), guest memory is the memory limit (else the request);
requests are what is scheduled and allocated (decisions 18). With NUMA cells each cell says its
part of the memory, and no change of the total goes without one (decisions 19). What is fixed when
the VM is made stands in its spec (vm_defaults.py).

The overhead follows from the maxima alone. A resize therefore never changes it: a pure shrink
cannot need room, and a change of CPUs leaves the memory of the pod's group as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.quantity import cpu_milli, memory_bytes
from livesize.api.resources import Resources, cells_of, or_else, parse_resources

MEBIBYTE = 2**20
MEMORY_BLOCK_BYTES = 2 * MEBIBYTE
LARGEST_VCPUS = 255  # more needs an interrupt controller that we do not give
SMALLEST_BOOT_BYTES = 64 * MEBIBYTE  # no Linux guest of today boots with less
LEAST_BYTES = 512 * MEBIBYTE  # that a balloon leaves, where neither min nor the boot size is less

# QEMU beside its guest's memory: measured at no more than 54 MiB, and a cache of translated code
# that is held at 128.
_EMULATOR_BYTES = 192 * MEBIBYTE
_VCPU_BYTES = 8 * MEBIBYTE  # KCPU's budget for one that is not enabled; an enabled one needs less
_PAGE_TABLE_SHARE = 256  # 8 bytes a page, in the tables of QEMU and again in those of the guest


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


def vm_size_of(
    pod: Object, resources: Resources | None = None, cells: tuple[CellSize, ...] | None = None
) -> VmSize:
    """The size the spec of a (valid) VM pod asks for, or with other ``resources`` and ``cells``,
    for instance the allocated ones (``cell_sizes``), in their place."""
    vm = pod["spec"]["virtualMachine"]
    cpu, memory = vm["cpu"], vm["memory"]
    wanted = parse_resources(vm["resources"]) if resources is None else resources
    boot_bytes = memory_bytes(memory["boot"])
    technology = technology_of(vm)
    return VmSize(
        vcpus=vcpus_of(wanted),
        memory_bytes=guest_memory_of(wanted),
        max_vcpus=cpu_milli(cpu["max"]) // 1000,
        max_memory_bytes=memory_bytes(memory["max"]),
        boot_memory_bytes=boot_bytes,
        min_memory_bytes=_least_bytes(vm, technology, boot_bytes),
        technology=technology,
        cells=cell_sizes(cells_of(vm)) if cells is None else cells,
        boot_cells=cell_sizes(cells_of(vm), "boot"),
        topology=topology_of(vm),
    )


def technology_of(vm: Object) -> Technology | None:
    """The one that spec.virtualMachine names; None where it names none that there is."""
    named = lookup(vm, "memory", "technology")
    return Technology(named) if named in tuple(Technology) else None


def known_technology(pod: Object) -> Technology | None:
    """The one that the spec of a VM pod names, else the one with which its node says that
    it runs; None where neither says it."""
    named = technology_of(pod["spec"]["virtualMachine"])
    if named is not None:
        return named
    told = lookup(pod, "status", "virtualMachineStatus", "memory", "technology")
    return Technology(told) if told in tuple(Technology) else None


def boots_with_maximum(technology: Technology | None) -> bool:
    """The guest has all that it may ever have until its balloon has taken some back."""
    return technology is Technology.BALLOON


def topology_of(vm: Object) -> VmTopology | None:
    cores, threads = lookup(vm, "cpu", "cores"), lookup(vm, "cpu", "threads")
    if cores is None and threads is None:
        return None
    return VmTopology(cores or 1, threads or 1)


def cell_sizes(cells: Iterable[Object], field: str = "memory") -> tuple[CellSize, ...]:
    """The cells of a spec or of a size, by id; ``field``: of which amount."""
    sizes = (CellSize(cell["id"], memory_bytes(cell[field])) for cell in cells)
    return tuple(sorted(sizes, key=lambda cell: cell.id))


def cells_of_size(size: Object) -> tuple[CellSize, ...]:
    """Of a VM's {name, requests, limits, cells}."""
    return cell_sizes(size.get("cells") or ())


def _least_bytes(vm: Object, technology: Technology | None, boot_bytes: int) -> int:
    """Nothing below the boot size without a balloon, which takes from no cell."""
    if technology in (Technology.VIRTIO_MEM, Technology.DIMM) or cells_of(vm):
        return 0
    given = lookup(vm, "memory", "min")
    return min(LEAST_BYTES, boot_bytes) if given is None else memory_bytes(given)


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
