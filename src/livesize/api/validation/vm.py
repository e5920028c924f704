"""Checks of spec.virtualMachine: what it boots from, and a size it can have (decisions 18).

A size that a VM cannot have is refused with the nearest ones it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import NANO, format_memory, memory_bytes, parse_quantity
from livesize.api.resources import vm_container
from livesize.api.validation.resources import (
    validate_quantity,
    validate_resize_policy,
    validate_resources,
)
from livesize.api.vm_defaults import VM_FIXED, is_filled
from livesize.api.vm_size import (
    LARGEST_VCPUS,
    MEMORY_BLOCK_BYTES,
    SMALLEST_BOOT_BYTES,
    vm_overhead_bytes,
    vm_size_of,
)

FIELD = "spec.virtualMachine"
IMAGE_PATHS = (("kernel", "image"), ("kernel", "initrd"), ("disk", "image"))

_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@=-]{0,254}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_COMMAND_LINE = 2000  # what an x86 kernel reads is 2048, and we add a little
_LARGEST = 2**63 - 1
_NEEDED = {
    "cpu": "a virtual machine says how many CPUs it has",
    "memory": "a virtual machine says how much memory it has",
}
_NOT_WITH = {
    "containers": "a pod has either containers or a virtual machine: leave one of the two out",
    "initContainers": "a virtual machine's pod has no init containers",
    "ephemeralContainers": "a virtual machine's pod has no ephemeral containers",
    "volumes": "a virtual machine's pod has no volumes: a guest boots from a kernel or a disk",
}


def validate_vm(spec: Object, *, never: bool) -> list[FieldError]:
    """Everything wrong with the virtual machine of a pod; ``never``: its restartPolicy is Never."""
    vm = vm_container(spec["virtualMachine"])
    errors = [
        FieldError(FieldErrorKind.FORBIDDEN, f"spec.{kind}", detail)
        for kind, detail in _NOT_WITH.items()
        if spec.get(kind)
    ]
    errors += _numa_errors(vm)
    errors += _boot_errors(vm)
    errors += validate_resize_policy(vm, FIELD, never=never)
    unreadable = [*validate_resources(vm.get("resources") or {}, f"{FIELD}.resources")]
    for part, name in VM_FIXED:
        if lookup(vm, part, name) is not None:
            unreadable += validate_quantity(vm[part][name], f"{FIELD}.{part}.{name}")
    return errors + (unreadable or _missing_size(vm) or _size_errors(spec, vm))


def validate_vm_overhead(spec: Object) -> list[FieldError]:
    """Of a new, otherwise valid VM. Its group is as large as the guest and the overhead together:
    with less, QEMU would be killed."""
    given = lookup(spec, "overhead", "memory")
    needed = vm_overhead_bytes(vm_size_of({"spec": spec}))
    if given is None or memory_bytes(given) >= needed:
        return []
    detail = f"a virtual machine of this maximum needs {format_memory(needed)}, or leave it out"
    return [FieldError(FieldErrorKind.INVALID, "spec.overhead[memory]", detail, str(given))]


def host_paths(vm: Object) -> list[str]:
    """The fields that name a path of the machine instead of an image."""
    return [
        f"{FIELD}.{part}.{name}"
        for part, name in IMAGE_PATHS
        if "/" in str(lookup(vm, part, name, default=""))
    ]


def _numa_errors(vm: Object) -> list[FieldError]:
    if vm.get("numa") is None:
        return []
    where = "numa.cells" if isinstance(vm["numa"], dict) and "cells" in vm["numa"] else "numa"
    detail = (
        "virtual machines have one NUMA cell so far: leave it out, and say the memory in"
        " resources and memory.max"
    )
    return [FieldError(FieldErrorKind.FORBIDDEN, f"{FIELD}.{where}", detail)]


def _boot_errors(vm: Object) -> list[FieldError]:
    detail = "a virtual machine boots from a kernel or from a disk: give one of the two"
    if vm.get("kernel") is None and vm.get("disk") is None:
        return [FieldError(FieldErrorKind.REQUIRED, f"{FIELD}.kernel", detail)]
    if vm.get("kernel") is not None and vm.get("disk") is not None:
        return [FieldError(FieldErrorKind.FORBIDDEN, f"{FIELD}.disk", detail)]
    errors: list[FieldError] = []
    for part, name in IMAGE_PATHS:
        image = lookup(vm, part, name)
        if image is not None:
            errors += _image_errors(image, f"{FIELD}.{part}.{name}")
        elif vm.get(part) is not None and name == "image":
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"{FIELD}.{part}.{name}", ""))
    return errors + _command_line_errors(lookup(vm, "kernel", "commandLine", default=""))


def _image_errors(image: str, field: str) -> list[FieldError]:
    is_path = image.startswith("/") and not _CONTROL.search(image)
    if is_path or _IMAGE_NAME.fullmatch(image):
        return []
    detail = "must be the name of an image, such as guest.qcow2, or for an admin an absolute path"
    return [FieldError(FieldErrorKind.INVALID, field, detail, image)]


def _command_line_errors(line: str) -> list[FieldError]:
    field = f"{FIELD}.kernel.commandLine"
    if len(line) > _LONGEST_COMMAND_LINE:
        detail = f"may not be more than {_LONGEST_COMMAND_LINE} characters"
        return [FieldError(FieldErrorKind.TOO_LONG, field, detail)]
    if _CONTROL.search(line):
        return [FieldError(FieldErrorKind.INVALID, field, "must be one line of text", line)]
    return []


def _missing_size(vm: Object) -> list[FieldError]:
    resources = vm.get("resources") or {}
    given = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return [
        FieldError(FieldErrorKind.REQUIRED, f"{FIELD}.resources.limits[{name}]", detail)
        for name, detail in _NEEDED.items()
        if name not in given
    ]


class _Scale(msgspec.Struct, frozen=True):
    """The steps in which a VM has one resource, in CPUs or bytes."""

    step: int
    rule: str
    format: Callable[[int], str]


class _Limit(msgspec.Struct, frozen=True):
    amount: int
    why: str = ""


_CPUS = _Scale(1, "a virtual machine has whole CPUs", str)
_BLOCKS = _Scale(MEMORY_BLOCK_BYTES, "must be a multiple of 2Mi", format_memory)


def _size_errors(spec: Object, vm: Object) -> list[FieldError]:
    if not is_filled(vm):
        # The size was zero, or the pod did not go through defaults.
        return _wrong_sizes(vm, _bounds(1, LARGEST_VCPUS), _bounds(SMALLEST_BOOT_BYTES, _LARGEST))
    errors = _fixed_errors(vm)
    if errors:
        return errors
    size = vm_size_of({"spec": spec})
    cpus = (_Limit(1), _Limit(size.max_vcpus, _maximum("cpu")))
    boot = f"the memory it boots with ({FIELD}.memory.boot)"
    memory = (
        _Limit(size.boot_memory_bytes, boot),
        _Limit(size.max_memory_bytes, _maximum("memory")),
    )
    return _wrong_sizes(vm, cpus, memory)


def _bounds(low: int, high: int) -> tuple[_Limit, _Limit]:
    return _Limit(low), _Limit(high)


def _maximum(part: str) -> str:
    return f"the maximum it was made with ({FIELD}.{part}.max; for more, make it again with more)"


def _fixed_errors(vm: Object) -> list[FieldError]:
    cpus = _bounds(1, LARGEST_VCPUS)
    blocks = _bounds(SMALLEST_BOOT_BYTES, _LARGEST - _LARGEST % MEMORY_BLOCK_BYTES)
    checks = (
        _check(vm["cpu"]["max"], f"{FIELD}.cpu.max", _CPUS, cpus),
        _check(vm["memory"]["max"], f"{FIELD}.memory.max", _BLOCKS, blocks),
        _check(vm["memory"]["boot"], f"{FIELD}.memory.boot", _BLOCKS, blocks),
    )
    return [error for errors in checks for error in errors]


def _wrong_sizes(
    vm: Object, cpus: tuple[_Limit, _Limit], memory: tuple[_Limit, _Limit]
) -> list[FieldError]:
    """The limit says the size, else the request; CPUs are whole in both."""
    resources = vm.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: list[FieldError] = []
    for name, scale, bounds in (("cpu", _CPUS, cpus), ("memory", _BLOCKS, memory)):
        side, says = ("limits", limits) if name in limits else ("requests", requests)
        field = f"{FIELD}.resources.{side}[{name}]"
        errors += _check(says[name], field, scale, bounds)
    if "cpu" in limits and "cpu" in requests and requests["cpu"] != limits["cpu"]:
        field = f"{FIELD}.resources.requests[cpu]"
        errors += _check(requests["cpu"], field, _CPUS, cpus)
    return errors


def _check(
    quantity: Any, field: str, scale: _Scale, bounds: tuple[_Limit, _Limit]
) -> list[FieldError]:
    nano = parse_quantity(quantity)
    low, high = bounds
    if nano % (scale.step * NANO):
        wrong = scale.rule
    elif nano < low.amount * NANO:
        wrong = _beyond("at least", low, scale)
    elif nano > high.amount * NANO:
        wrong = _beyond("at most", high, scale)
    else:
        return []
    detail = f"{wrong}: {_nearest(nano, scale, low.amount, high.amount)}"
    return [FieldError(FieldErrorKind.INVALID, field, detail, str(quantity))]


def _beyond(words: str, limit: _Limit, scale: _Scale) -> str:
    why = f", {limit.why}" if limit.why else ""
    return f"must be {words} {scale.format(limit.amount)}{why}"


def _nearest(nano: int, scale: _Scale, low: int, high: int) -> str:
    below = nano // (scale.step * NANO) * scale.step
    reachable = sorted({max(low, min(size, high)) for size in (below, below + scale.step)})
    words = "the nearest size is" if len(reachable) == 1 else "the nearest sizes are"
    return f"{words} {' and '.join(scale.format(size) for size in reachable)}"
