"""Checks of the NUMA cells of a virtual machine (decisions 19).

Each cell says its part of the memory, and all of them together are the memory in resources. So a
change of the memory that names no cell is refused, with the ways to say it.
"""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup, name_of
from livesize.api.quantity import format_memory
from livesize.api.resources import cells_of, is_vm
from livesize.api.validation.resources import validate_quantity
from livesize.api.validation.vm_steps import BLOCKS, Limit, check_amount
from livesize.api.vm_size import MEBIBYTE, Technology, VmSize, technology_of

MOST_CELLS = 8
SMALLEST_CELL_BYTES = 64 * MEBIBYTE
FIELD = "spec.virtualMachine.numa.cells"


def cell_shape_errors(vm: Object) -> list[FieldError]:
    """Fields that are missing or cannot be read, and cells that there cannot be."""
    if vm.get("numa") is None:
        return []
    cells = cells_of(vm)
    if not cells:
        detail = "name the cells, or leave numa out: the VM has one then"
        return [FieldError(FieldErrorKind.REQUIRED, FIELD, detail)]
    if len(cells) > MOST_CELLS:
        detail = f"a virtual machine has at most {MOST_CELLS} cells"
        return [FieldError(FieldErrorKind.TOO_MANY, FIELD, detail, len(cells))]
    errors: list[FieldError] = []
    for index, cell in enumerate(cells):
        errors += _field_errors(cell, f"{FIELD}[{index}]")
    if technology_of(vm) is Technology.BALLOON:
        detail = (
            "a balloon takes memory of whichever cell has it: say auto, virtio-mem or dimm, or"
            " leave numa out"
        )
        field = "spec.virtualMachine.memory.technology"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, detail))
    return errors or _number_errors(cells)


def cell_errors(pod: Object, size: VmSize) -> list[FieldError]:
    """``size``: of the pod, whose cells can be read."""
    if not size.cells:
        return []
    errors: list[FieldError] = []
    boots = {cell.id: cell.memory_bytes for cell in size.boot_cells}
    for index, cell in enumerate(cells_of(pod["spec"]["virtualMachine"])):
        field = f"{FIELD}[{index}]"
        least = (Limit(SMALLEST_CELL_BYTES), Limit(size.max_memory_bytes))
        errors += check_amount(cell["boot"], f"{field}.boot", BLOCKS, least)
        boot = Limit(boots[cell["id"]], f"the memory that the cell boots with ({field}.boot)")
        most = Limit(size.max_memory_bytes, "the VM's maximum (spec.virtualMachine.memory.max)")
        errors += check_amount(cell["memory"], f"{field}.memory", BLOCKS, (boot, most))
    boot_bytes = sum(boots.values())
    if boot_bytes != size.boot_memory_bytes:
        detail = (
            f"its cells boot with {format_memory(boot_bytes)} together: leave it out, or say that"
        )
        field = "spec.virtualMachine.memory.boot"
        given = format_memory(size.boot_memory_bytes)
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, given))
    return errors or _sum_errors(pod, size)


def changed_cells(new: Object, old: Object) -> list[FieldError]:
    """Cells are neither added nor removed."""
    if not (is_vm(new) and is_vm(old)):
        return []
    before, after = (_ids(one["spec"]["virtualMachine"]) for one in (old, new))
    if before == after:
        return []
    if not before:
        detail = "the VM was made without NUMA cells: leave them out, or make it again with them"
    else:
        known = " and ".join(str(one) for one in before)
        detail = (
            f"cells may not be added or removed: the VM was made with {known}. Name the one whose"
            " memory changes; a strategic merge patch may leave the others out, anything else"
            " says them all"
        )
    return [FieldError(FieldErrorKind.FORBIDDEN, FIELD, detail)]


def _ids(vm: Object) -> list[str]:
    return sorted(str(cell.get("id")) for cell in cells_of(vm))


def _field_errors(cell: Object, field: str) -> list[FieldError]:
    errors = []
    if cell.get("id") is None:
        detail = "a cell is told apart by its number, from 0"
        errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.id", detail))
    for name in ("memory", "boot"):
        if cell.get(name) is not None:
            errors += validate_quantity(cell[name], f"{field}.{name}")
        elif name == "memory":
            detail = "a cell says how much of the memory it has"
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.{name}", detail))
    return errors


def _number_errors(cells: list[Object]) -> list[FieldError]:
    errors, seen = [], set()
    for index, cell in enumerate(cells):
        field, number = f"{FIELD}[{index}].id", cell["id"]
        if number in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, field, "", number))
        elif not 0 <= number < len(cells):
            detail = f"cells are numbered from 0: {len(cells)} of them up to {len(cells) - 1}"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, number))
        seen.add(number)
    return errors


def _sum_errors(pod: Object, size: VmSize) -> list[FieldError]:
    in_cells = sum(cell.memory_bytes for cell in size.cells)
    if in_cells == size.memory_bytes:
        return []
    limits = lookup(pod, "spec", "virtualMachine", "resources", "limits", default={})
    side = "limits" if "memory" in limits else "requests"
    field = f"spec.virtualMachine.resources.{side}[memory]"
    total, now = format_memory(size.memory_bytes), format_memory(in_cells)
    detail = (
        f"its NUMA cells have {now} together: a change of the memory names its cell."
        f" {_ways(pod, size, size.memory_bytes - in_cells)}"
    )
    return [FieldError(FieldErrorKind.INVALID, field, detail, total)]


def _ways(pod: Object, size: VmSize, missing_bytes: int) -> str:
    """How to say it: with the last cell that can take the difference, and as a patch."""
    boots = {cell.id: cell.memory_bytes for cell in size.boot_cells}
    able = [cell for cell in size.cells if cell.memory_bytes + missing_bytes >= boots[cell.id]]
    if not able:
        most = sum(cell.memory_bytes - boots[cell.id] for cell in size.cells)
        return (
            f"No cell can have less than it boots with, so {format_memory(most)} less is the most"
        )
    amount = format_memory(able[-1].memory_bytes + missing_bytes)
    name, cell = name_of(pod) or "NAME", able[-1].id
    return (
        f"For example: livesize resize pod/{name} --numa {cell}={amount}; or set {FIELD} to"
        f' [{{"id": {cell}, "memory": "{amount}"}}] beside the memory in resources'
    )
