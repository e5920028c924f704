"""Checks of the size that a virtual machine asks for, and of the bounds of it (decisions 18, 46).

What its memory technology cannot do is refused where that is known: spec.virtualMachine names it,
or its node has said in the status with which it runs. Else only what no technology can do; the
node refuses the rest. Every refusal has the nearest sizes that can be had.
"""

from __future__ import annotations

import math

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import cpu_milli, format_memory, memory_bytes
from livesize.api.resources import cells_of, vm_container
from livesize.api.validation.choices import one_of
from livesize.api.validation.vm_cells import cell_errors
from livesize.api.validation.vm_steps import (
    BLOCKS,
    CPUS,
    LARGEST_BYTES,
    Limit,
    SizeSteps,
    bounds,
    check_amount,
    nearest_sizes,
)
from livesize.api.vm_defaults import is_filled
from livesize.api.vm_dimms import DIMM_SLOTS, DIMM_STEP_BYTES, fewest_dimms, most_in_dimms
from livesize.api.vm_size import (
    LARGEST_VCPUS,
    MEMORY_BLOCK_BYTES,
    SMALLEST_BOOT_BYTES,
    Technology,
    VmSize,
    boots_with_maximum,
    known_technology,
    technology_of,
    topology_of,
    vm_size_of,
)

FIELD = "spec.virtualMachine"
_PLUGGED = (Technology.VIRTIO_MEM, Technology.DIMM)
_MODULES = "modules of 128, 512, 1024 and 2048Mi"


def technology_errors(vm: Object) -> list[FieldError]:
    named = lookup(vm, "memory", "technology")
    if named is None:
        return []
    errors = one_of(named, tuple(Technology), f"{FIELD}.memory.technology")
    if errors or lookup(vm, "memory", "min") is None:
        return errors
    if named in _PLUGGED:
        detail = f"is what a balloon leaves, and technology {named} has none: leave it out"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"{FIELD}.memory.min", detail))
    return errors


def topology_errors(vm: Object) -> list[FieldError]:
    errors = []
    for name in ("cores", "threads"):
        count = lookup(vm, "cpu", name)
        if count is not None and not 1 <= count <= LARGEST_VCPUS:
            detail = f"must be between 1 and {LARGEST_VCPUS}, inclusive"
            field = f"{FIELD}.cpu.{name}"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, count))
    if not errors and _socket_vcpus(vm) > LARGEST_VCPUS:
        detail = f"a socket may not have more than {LARGEST_VCPUS} vCPUs (cores times threads)"
        field = f"{FIELD}.cpu.cores"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, lookup(vm, "cpu", "cores")))
    return errors


def size_errors(pod: Object) -> list[FieldError]:
    """Of a VM whose fields can be read and say a size."""
    vm = vm_container(pod["spec"]["virtualMachine"])
    if not is_filled(vm):
        # The size was zero, or the pod did not go through defaults.
        memory = bounds(SMALLEST_BOOT_BYTES, LARGEST_BYTES)
        return _wrong_sizes(vm, bounds(1, LARGEST_VCPUS), memory)
    errors = _fixed_errors(vm)
    if errors:
        return errors
    size, technology = vm_size_of(pod), known_technology(pod)
    cpus = (Limit(_socket_vcpus(vm)), Limit(size.max_vcpus, _maximum("cpu")))
    memory = (_least(size, technology), Limit(size.max_memory_bytes, _maximum("memory")))
    errors = cell_errors(pod, size)
    errors += _wrong_sizes(vm, cpus, None if errors else memory)
    if errors or technology is not Technology.DIMM:
        return errors
    return _cell_module_errors(size) if size.cells else _module_errors(vm, size)


def _least(size: VmSize, technology: Technology | None) -> Limit:
    if size.cells or technology in _PLUGGED:
        boot = f"the memory it boots with ({FIELD}.memory.boot)"
        return Limit(size.boot_memory_bytes, boot)
    least = f"the least that its balloon leaves ({FIELD}.memory.min)"
    return Limit(size.min_memory_bytes, least)


def _maximum(part: str) -> str:
    return f"the maximum it was made with ({FIELD}.{part}.max; for more, make it again with more)"


def _socket_vcpus(vm: Object) -> int:
    topology = topology_of(vm)
    return 1 if topology is None else topology.vcpus


def _sockets(vm: Object) -> SizeSteps:
    count = _socket_vcpus(vm)
    if count == 1:
        return CPUS
    rule = f"vCPUs come in whole sockets of {count} ({FIELD}.cpu.cores times threads)"
    return SizeSteps(count, rule, str)


def _fixed_errors(vm: Object) -> list[FieldError]:
    scale, memory = _sockets(vm), vm["memory"]
    cpus = bounds(scale.step, LARGEST_VCPUS // scale.step * scale.step)
    blocks = bounds(SMALLEST_BOOT_BYTES, LARGEST_BYTES - LARGEST_BYTES % MEMORY_BLOCK_BYTES)
    errors = [
        *check_amount(vm["cpu"]["max"], f"{FIELD}.cpu.max", scale, cpus),
        *check_amount(memory["max"], f"{FIELD}.memory.max", BLOCKS, blocks),
        *check_amount(memory["boot"], f"{FIELD}.memory.boot", BLOCKS, blocks),
    ]
    if errors:
        return errors
    if cells_of(vm) and cpu_milli(vm["cpu"]["max"]) // 1000 % len(cells_of(vm)):
        errors += _unequal_blocks(vm, scale)
    boot_bytes, most_bytes = memory_bytes(memory["boot"]), memory_bytes(memory["max"])
    if memory.get("min") is not None:
        boot = Limit(boot_bytes, f"the memory it boots with ({FIELD}.memory.boot)")
        least = (Limit(SMALLEST_BOOT_BYTES), boot)
        errors += check_amount(memory["min"], f"{FIELD}.memory.min", BLOCKS, least)
    return errors + _balloon_errors(vm, boot_bytes, most_bytes)


def _balloon_errors(vm: Object, boot_bytes: int, most_bytes: int) -> list[FieldError]:
    if not boots_with_maximum(technology_of(vm)) or boot_bytes == most_bytes:
        return []
    maximum = format_memory(most_bytes)
    detail = f"with a balloon the guest boots with its maximum: leave it out, or say {maximum}"
    given = str(vm["memory"]["boot"])
    return [FieldError(FieldErrorKind.INVALID, f"{FIELD}.memory.boot", detail, given)]


def _unequal_blocks(vm: Object, scale: SizeSteps) -> list[FieldError]:
    count, given = len(cells_of(vm)), cpu_milli(vm["cpu"]["max"]) // 1000
    unit = math.lcm(scale.step, count)
    below = given // unit * unit
    reachable = [most for most in (below, below + unit) if 0 < most <= LARGEST_VCPUS]
    detail = f"vCPUs go to {count} cells in equal blocks: {nearest_sizes(reachable, scale)}"
    return [FieldError(FieldErrorKind.INVALID, f"{FIELD}.cpu.max", detail, str(given))]


def _wrong_sizes(
    vm: Object, cpus: tuple[Limit, Limit], memory: tuple[Limit, Limit] | None
) -> list[FieldError]:
    """The limit says the size, else the request; CPUs are whole in both. ``memory`` None: of the
    memory something else is wrong."""
    resources = vm.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: list[FieldError] = []
    for name, scale, between in (("cpu", _sockets(vm), cpus), ("memory", BLOCKS, memory)):
        side, says = ("limits", limits) if name in limits else ("requests", requests)
        field = f"{FIELD}.resources.{side}[{name}]"
        if between is not None:
            errors += check_amount(says[name], field, scale, between)
    if "cpu" in limits and "cpu" in requests and requests["cpu"] != limits["cpu"]:
        field = f"{FIELD}.resources.requests[cpu]"
        errors += check_amount(requests["cpu"], field, CPUS, (Limit(1), cpus[1]))
    return errors


def _module_errors(vm: Object, size: VmSize) -> list[FieldError]:
    """What is above the boot memory has to come in whole modules, in as many as there are slots."""
    resources = vm.get("resources") or {}
    side = "limits" if "memory" in (resources.get("limits") or {}) else "requests"
    field = f"{FIELD}.resources.{side}[memory]"
    boot_bytes, most_bytes = size.boot_memory_bytes, size.max_memory_bytes
    return _unreachable(size.memory_bytes, boot_bytes, most_bytes, DIMM_SLOTS, field)


def _cell_module_errors(size: VmSize) -> list[FieldError]:
    """Each cell by itself; the slots are the VM's."""
    boots = {cell.id: cell.memory_bytes for cell in size.boot_cells}
    errors: list[FieldError] = []
    slots = DIMM_SLOTS
    for index, cell in enumerate(size.cells):
        field = f"{FIELD}.numa.cells[{index}].memory"
        boot_bytes = boots[cell.id]
        most_bytes = boot_bytes + size.max_memory_bytes - size.boot_memory_bytes
        errors += _unreachable(cell.memory_bytes, boot_bytes, most_bytes, slots, field)
        slots -= min(slots, fewest_dimms(cell.memory_bytes - boot_bytes))
    return errors


def _unreachable(
    amount_bytes: int, boot_bytes: int, most_bytes: int, slots: int, field: str
) -> list[FieldError]:
    above = amount_bytes - boot_bytes
    boot = format_memory(boot_bytes)
    if above % DIMM_STEP_BYTES:
        wrong = f"what is above the {boot} it boots with comes in {_MODULES}"
    elif fewest_dimms(above) > slots:
        wrong = f"above the {boot} it boots with there are {slots} slots for {_MODULES}"
    else:
        return []
    reachable = [boot_bytes + most_in_dimms(above, slots)]
    upwards = above // DIMM_STEP_BYTES * DIMM_STEP_BYTES + DIMM_STEP_BYTES
    while upwards <= most_bytes - boot_bytes and upwards <= most_in_dimms(most_bytes, slots):
        if fewest_dimms(upwards) <= slots:
            reachable.append(boot_bytes + upwards)
            break
        upwards += DIMM_STEP_BYTES
    detail = f"{wrong}: {nearest_sizes(reachable, BLOCKS)}"
    return [FieldError(FieldErrorKind.INVALID, field, detail, format_memory(amount_bytes))]
