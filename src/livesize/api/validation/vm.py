"""Checks of spec.virtualMachine: what it boots from, and whatever vm_sizes.py and vm_cells.py say
of its size."""

from __future__ import annotations

import re

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import format_memory, memory_bytes
from livesize.api.resources import vm_container
from livesize.api.validation.resources import (
    validate_quantity,
    validate_resize_policy,
    validate_resources,
)
from livesize.api.validation.vm_cells import cell_shape_errors
from livesize.api.validation.vm_sizes import FIELD, size_errors, technology_errors, topology_errors
from livesize.api.vm_defaults import VM_AMOUNTS
from livesize.api.vm_size import vm_overhead_bytes, vm_size_of

IMAGE_PATHS = (("kernel", "image"), ("kernel", "initrd"), ("disk", "image"))

_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@=-]{0,254}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_COMMAND_LINE = 2000  # what an x86 kernel reads is 2048, and we add a little
_NEEDED = {
    "cpu": "a virtual machine says how many CPUs it has",
    "memory": "a virtual machine says how much memory it has",
}
_PLATFORM = {
    "kubernetes.io/os": ("linux", "virtual machines run on Linux nodes only: leave it out"),
    "kubernetes.io/arch": (
        "amd64",
        "virtual machines are x86-64 machines, and run on nodes that are: leave it out",
    ),
}
_NOT_WITH = {
    "containers": "a pod has either containers or a virtual machine: leave one of the two out",
    "initContainers": "a virtual machine's pod has no init containers",
    "ephemeralContainers": "a virtual machine's pod has no ephemeral containers",
    "volumes": "a virtual machine's pod has no volumes: a guest boots from a kernel or a disk",
}


def validate_vm(pod: Object, *, never: bool) -> list[FieldError]:
    """Everything wrong with the virtual machine of a pod; ``never``: its restartPolicy is Never."""
    spec = pod["spec"]
    vm = vm_container(spec["virtualMachine"])
    errors = [
        FieldError(FieldErrorKind.FORBIDDEN, f"spec.{kind}", detail)
        for kind, detail in _NOT_WITH.items()
        if spec.get(kind)
    ]
    errors += _platform_errors(spec)
    errors += _boot_errors(vm)
    errors += validate_resize_policy(vm, FIELD, never=never)
    unreadable = [*validate_resources(vm.get("resources") or {}, f"{FIELD}.resources")]
    for part, name in VM_AMOUNTS:
        if lookup(vm, part, name) is not None:
            unreadable += validate_quantity(vm[part][name], f"{FIELD}.{part}.{name}")
    unreadable += [*technology_errors(vm), *topology_errors(vm), *cell_shape_errors(vm)]
    return errors + (unreadable or _missing_size(vm) or size_errors(pod))


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


def _platform_errors(spec: Object) -> list[FieldError]:
    """Guests are Linux on x86-64 (F100)."""
    selected = spec.get("nodeSelector") or {}
    return [
        FieldError(FieldErrorKind.FORBIDDEN, f"spec.nodeSelector[{label}]", detail)
        for label, (fine, detail) in _PLATFORM.items()
        if isinstance(selected, dict) and selected.get(label, fine) != fine
    ]


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
