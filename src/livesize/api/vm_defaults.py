"""What is fixed when a virtual machine is made, and what of it is filled in then.

``fill_vm`` writes maxima and boot memory into the spec, and what each NUMA cell boots with;
``keep_vm_fixed`` keeps all of it there when a manifest leaves it out.
"""

from __future__ import annotations

import math
from typing import Any

from livesize.api.objects import Object, evolve, lookup
from livesize.api.quantity import format_cpu, format_memory, memory_bytes
from livesize.api.resources import cells_of, is_vm, parse_resources
from livesize.api.vm_dimms import most_in_dimms
from livesize.api.vm_size import (
    LARGEST_VCPUS,
    MEBIBYTE,
    MEMORY_BLOCK_BYTES,
    Technology,
    boots_with_maximum,
    guest_memory_of,
    technology_of,
    topology_of,
    vcpus_of,
)

MAXIMUM_TIMES = 4
KERNEL_BOOT_BYTES = 512 * MEBIBYTE
# A guest keeps books of every page it has, 64 bytes each, where they cannot be taken away: in the
# memory it boots with. So much of its maximum leaves as much again for everything else.
BOOT_SHARE = 32

VM_FIXED = (("cpu", "max"), ("memory", "max"), ("memory", "boot"))
"""Filled in where they are absent."""
VM_AMOUNTS = (*VM_FIXED, ("memory", "min"))
_CELL = frozenset({"id", "memory", "boot"})
_LASTING = (*VM_AMOUNTS, ("memory", "technology"), ("cpu", "cores"), ("cpu", "threads"))


def fill_vm(vm: Object) -> Object:
    """``vm`` with maxima and boot memory where they are absent; needs the right shape, and raises
    QuantityError. Where no size is given there is nothing to fill in."""
    wanted = parse_resources(vm.get("resources"))
    vcpus, memory = vcpus_of(wanted), guest_memory_of(wanted)
    filled = _with_cells(vm)
    if vcpus > 0:
        filled = _with_default(filled, ("cpu", "max"), format_cpu(1000 * _most_vcpus(vm, vcpus)))
    if memory > 0:
        blocks = -(-memory // MEMORY_BLOCK_BYTES) * MEMORY_BLOCK_BYTES
        filled = _with_default(filled, ("memory", "max"), format_memory(MAXIMUM_TIMES * blocks))
        filled = _with_default(
            filled, ("memory", "boot"), format_memory(_boot_bytes(filled, blocks))
        )
    return filled


def is_filled(vm: Object) -> bool:
    """Everything is there that ``vm_size_of`` needs."""
    whole = all(cell.keys() >= _CELL for cell in cells_of(vm))
    return whole and all(lookup(vm, *path) is not None for path in VM_FIXED)


def keep_vm_fixed(old: Object, new: Object) -> Object:
    """``new`` with what is fixed and the overhead of ``old`` where it does not say them: a manifest
    without them means no other maximum than the one the VM has."""
    if not is_vm(new) or not is_vm(old):
        return new
    kept = new
    for path in (*(("virtualMachine", *fixed) for fixed in _LASTING), ("overhead",)):
        given, now = lookup(new, "spec", *path), lookup(old, "spec", *path)
        parent = lookup(new, "spec", *path[:-1], default={})
        if given is None and now is not None and isinstance(parent, dict):
            kept = evolve(kept, ("spec", *path), now)
    return _keep_cells(old["spec"]["virtualMachine"], kept)


def _keep_cells(before: Object, pod: Object) -> Object:
    """Who says nothing of cells means those that there are, and who names one not what it boots
    with."""
    numa, given = before.get("numa"), pod["spec"]["virtualMachine"].get("numa")
    if not isinstance(numa, dict):
        return pod
    path = ("spec", "virtualMachine", "numa")
    if given is None or (isinstance(given, dict) and given.get("cells") is None):
        return evolve(pod, path, numa)
    if not isinstance(given, dict) or not isinstance(given["cells"], list):
        return pod
    boots = {cell["id"]: cell["boot"] for cell in cells_of(before) if "boot" in cell}
    cells = [_booting(cell, boots) for cell in given["cells"]]
    return pod if cells == given["cells"] else evolve(pod, (*path, "cells"), cells)


def _booting(cell: Any, boots: dict[int, str]) -> Any:
    if not isinstance(cell, dict) or type(cell.get("id")) is not int or cell["id"] not in boots:
        return cell
    return cell if cell.get("boot") is not None else {**cell, "boot": boots[cell["id"]]}


def _with_cells(vm: Object) -> Object:
    """A cell boots with what it has when the VM is made."""
    cells = cells_of(vm)
    if not cells:
        return vm
    filled = [
        {**cell, "boot": cell["memory"]}
        if cell.get("boot") is None and cell.get("memory") is not None
        else cell
        for cell in cells
    ]
    return vm if filled == cells else evolve(vm, ("numa", "cells"), filled)


def _most_vcpus(vm: Object, vcpus: int) -> int:
    """In whole sockets, and in equal blocks for the cells."""
    topology = topology_of(vm)
    unit = math.lcm(1 if topology is None else topology.vcpus or 1, len(cells_of(vm)) or 1)
    least = -(-vcpus // unit) * unit
    return max(least, min(MAXIMUM_TIMES * vcpus, LARGEST_VCPUS) // unit * unit)


def _boot_bytes(vm: Object, blocks: int) -> int:
    cells = cells_of(vm)
    if cells:
        return sum(memory_bytes(cell["boot"]) for cell in cells if "boot" in cell)
    technology = technology_of(vm)
    if boots_with_maximum(technology):
        return memory_bytes(vm["memory"]["max"])
    if vm.get("disk") is not None:
        return blocks
    boot_bytes = min(blocks, _kernel_boot_bytes(vm))
    if technology is Technology.DIMM:
        return blocks - most_in_dimms(blocks - boot_bytes)
    return boot_bytes


def _kernel_boot_bytes(vm: Object) -> int:
    books = -(-memory_bytes(vm["memory"]["max"]) // (BOOT_SHARE * MEMORY_BLOCK_BYTES))
    return max(KERNEL_BOOT_BYTES, books * MEMORY_BLOCK_BYTES)


def _with_default(vm: Object, path: tuple[str, str], text: str) -> Object:
    return vm if lookup(vm, *path) is not None else evolve(vm, path, text)
