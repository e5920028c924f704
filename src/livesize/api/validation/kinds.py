"""Checks of the smaller kinds."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.validation.names import validate_key
from livesize.api.validation.resources import validate_quantities

_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_node(node: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for side in ("capacity", "allocatable"):
        quantities = lookup(node, "status", side, default={})
        errors += validate_quantities(quantities, f"status.{side}")
    for index, taint in enumerate(lookup(node, "spec", "taints", default=[])):
        field = f"spec.taints[{index}]"
        errors += validate_key(taint.get("key") or "", f"{field}.key")
        if taint.get("effect") not in _TAINT_EFFECTS:
            detail = "supported values: " + ", ".join(f'"{word}"' for word in _TAINT_EFFECTS)
            kind, where = FieldErrorKind.NOT_SUPPORTED, f"{field}.effect"
            errors.append(FieldError(kind, where, detail, taint.get("effect")))
    return errors


def validate_lease(lease: Object) -> list[FieldError]:
    seconds = lookup(lease, "spec", "leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        detail = "must be greater than 0"
        field = "spec.leaseDurationSeconds"
        return [FieldError(FieldErrorKind.INVALID, field, detail, seconds)]
    return []


def validate_event(event: Object) -> list[FieldError]:
    """Who may write events of one namespace says nothing about objects of another."""
    about = lookup(event, "involvedObject", "namespace", default="")
    if not about or about == lookup(event, "metadata", "namespace", default=""):
        return []
    field, detail = "involvedObject.namespace", "does not match event.namespace"
    return [FieldError(FieldErrorKind.INVALID, field, detail, about)]
