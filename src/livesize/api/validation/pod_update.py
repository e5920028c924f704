"""What may change on a pod: what Kubernetes allows, and resources and resizePolicy besides."""

from __future__ import annotations

from typing import Any

from livesize.api.dialects import strip_dialects
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup, without
from livesize.api.resources import cells_of, is_vm
from livesize.api.validation.pod import validate_pod_spec
from livesize.api.validation.resize import resize_errors
from livesize.api.validation.vm_cells import changed_cells

_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].resources`,"
    "`spec.containers[*].resizePolicy`,`spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.initContainers[*].resources` and"
    " `spec.initContainers[*].resizePolicy` (of sidecars),"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
    " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set"
    " to 1 if it was previously negative)"
)
_VM_MAY_CHANGE = (
    "updates of a virtual machine's pod may not change fields other than"
    " `spec.virtualMachine.resources`,`spec.virtualMachine.numa.cells[*].memory`,"
    "`spec.virtualMachine.resizePolicy`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations):"
    " images, maxima, boot memory, technology and topology are fixed when the VM is made"
)
_POD_FIELDS = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"})
_CONTAINER_FIELDS = frozenset({"image", "resources", "resizePolicy"})
_VM_FIELDS = frozenset({"resources", "resizePolicy"})
_CONTAINER_KINDS = ("containers", "initContainers")


def validate_pod_update(new: Object, old: Object) -> list[FieldError]:
    """Everything wrong with ``new`` in place of ``old``, apart from metadata and shape."""
    new, old = strip_dialects(new), strip_dialects(old)
    errors = [*_deadline_errors(new, old), *_toleration_errors(new, old), *_grace_errors(new, old)]
    moved = changed_cells(new, old)
    changed = [
        field
        for field in _other_fields_changed(new, old)
        if not (moved and field == "spec.virtualMachine.numa")
    ]
    if changed:
        may_change = _VM_MAY_CHANGE if is_vm(old) else _MAY_CHANGE
        detail = f"{may_change}; changed: {', '.join(changed)}"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec", detail))
    if _same_containers(new, old) and not moved and _size_changed(new, old):
        errors += resize_errors(new, old)
    return [*(moved or validate_pod_spec(new)), *errors]


def _other_fields_changed(new: Object, old: Object) -> list[str]:
    """Names of the fields that may not change and did, in order."""
    before, after = _fixed_part(old), _fixed_part(new)
    return [
        f"spec.{key}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _fixed_part(pod: Object) -> Object:
    spec = pod.get("spec") or {}
    fixed = {key: value for key, value in spec.items() if key not in _POD_FIELDS}
    for kind in _CONTAINER_KINDS:
        if spec.get(kind):
            fixed[kind] = [
                {key: value for key, value in container.items() if key not in _CONTAINER_FIELDS}
                for container in spec[kind]
            ]
    if is_vm(pod):
        vm = fixed.pop("virtualMachine")
        fixed |= {
            f"virtualMachine.{key}": value for key, value in vm.items() if key not in _VM_FIELDS
        }
        if cells_of(vm):
            fixed["virtualMachine.numa"] = _fixed_numa(vm)
    return fixed


def _fixed_numa(vm: Object) -> Object:
    """Without the cells themselves, which have rules of their own, but with what they boot with."""
    others = {key: value for key, value in vm["numa"].items() if key != "cells"}
    return others | {
        f"cells[{cell.get('id')}].{key}": value
        for cell in cells_of(vm)
        for key, value in cell.items()
        if key not in ("id", "memory")
    }


def _same_containers(new: Object, old: Object) -> bool:
    return is_vm(new) == is_vm(old) and all(
        _picked(new, kind, "name") == _picked(old, kind, "name") for kind in _CONTAINER_KINDS
    )


def _size_changed(new: Object, old: Object) -> bool:
    """Resources changed, or the policy of an init container, which only a sidecar may."""
    if is_vm(new):
        after, before = new["spec"]["virtualMachine"], old["spec"]["virtualMachine"]
        return any(after.get(key) != before.get(key) for key in ("resources", "numa"))
    return any(
        _picked(new, kind, key) != _picked(old, kind, key)
        for kind, key in (
            ("containers", "resources"),
            ("initContainers", "resources"),
            ("initContainers", "resizePolicy"),
        )
    )


def _picked(pod: Object, kind: str, key: str) -> list[Any]:
    return [container.get(key) for container in lookup(pod, "spec", kind, default=[])]


def _deadline_errors(new: Object, old: Object) -> list[FieldError]:
    """It may be set, or made shorter."""
    before = lookup(old, "spec", "activeDeadlineSeconds")
    after = lookup(new, "spec", "activeDeadlineSeconds")
    if before is None or before == after:
        return []
    field = "spec.activeDeadlineSeconds"
    if after is None:
        detail = "must not be removed once it is set"
        return [FieldError(FieldErrorKind.INVALID, field, detail, None)]
    if after > before:
        detail = f"must be less than or equal to previous value {before}"
        return [FieldError(FieldErrorKind.INVALID, field, detail, after)]
    return []


def _toleration_errors(new: Object, old: Object) -> list[FieldError]:
    after = _tolerations(new)
    if all(toleration in after for toleration in _tolerations(old)):
        return []
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [FieldError(FieldErrorKind.FORBIDDEN, "spec.tolerations", detail)]


def _tolerations(pod: Object) -> list[Object]:
    return [
        without(toleration, ("tolerationSeconds",))
        for toleration in lookup(pod, "spec", "tolerations", default=[])
    ]


def _grace_errors(new: Object, old: Object) -> list[FieldError]:
    before = lookup(old, "spec", "terminationGracePeriodSeconds")
    after = lookup(new, "spec", "terminationGracePeriodSeconds")
    if before == after or (before is not None and before < 0 and after == 1):
        return []
    return [FieldError(FieldErrorKind.FORBIDDEN, "spec", _MAY_CHANGE)]
