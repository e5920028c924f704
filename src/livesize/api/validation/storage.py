"""What claims and volumes have in common: access modes and amounts of storage."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.quantity import canonical_quantities, parse_quantity
from livesize.api.storage import AccessMode, VolumeMode
from livesize.api.validation.choices import one_of
from livesize.api.validation.resources import validate_quantities


def validate_modes(spec: Object) -> list[FieldError]:
    modes: list[str] = spec.get("accessModes") or []
    errors: list[FieldError] = []
    if not modes:
        detail = "at least 1 access mode is required"
        errors.append(FieldError(FieldErrorKind.REQUIRED, "spec.accessModes", detail))
    for index, mode in enumerate(modes):
        errors += one_of(mode, AccessMode, f"spec.accessModes[{index}]")
    if AccessMode.ONE_POD in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec.accessModes", detail))
    return errors + one_of(
        spec.get("volumeMode", VolumeMode.FILES.value), VolumeMode, "spec.volumeMode"
    )


def validate_storage(quantities: Object, field: str) -> list[FieldError]:
    where = f"{field}.storage"
    if quantities.get("storage") is None:
        return [FieldError(FieldErrorKind.REQUIRED, where, "")]
    errors = validate_quantities(quantities, field)
    if not errors and parse_quantity(quantities["storage"]) <= 0:
        detail = "must be greater than zero"
        errors.append(FieldError(FieldErrorKind.INVALID, where, detail, quantities["storage"]))
    return errors


def with_capacity(part: Object) -> Object:
    if "capacity" not in part:
        return part
    return {**part, "capacity": canonical_quantities(part["capacity"])}
