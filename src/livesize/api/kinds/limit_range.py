"""Limit ranges: defaults and bounds of the sizes in a namespace."""

from __future__ import annotations

from typing import Any

from livesize.api.columns import (
    NAME,
    UNKNOWN,
    Column,
    at,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.quantity import canonical_quantities, parse_quantity
from livesize.api.roles import RULING
from livesize.api.schema.fields import Message, list_of, object_of, quantities, string
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.resources import validate_quantities

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", True, "limitrange", ("limits",))


class LimitRangeItem(Message):
    type = string(1)
    max = quantities(2)
    min = quantities(3)
    default = quantities(4, description="Limits of containers that give none.")
    defaultRequest = quantities(5)
    maxLimitRequestRatio = quantities(6)


class LimitRangeSpec(Message):
    limits = list_of(LimitRangeItem, 1)


class LimitRange(TypedObject):
    """What each container or pod of a namespace gets if it says nothing, and its bounds."""

    spec = object_of(LimitRangeSpec, 2)


LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")


_LIMIT_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


_NANO = 10**9


def default_limit_range(limits: Object) -> Object:
    spec = limits.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("limits"), list):
        return limits
    items = [_default_limits(item) for item in spec["limits"]]
    return {**limits, "spec": {**spec, "limits": items}}


def _default_limits(item: Any) -> Any:
    """A container's default limit is the most it may have; its default request is its default
    limit, or else the least it may have."""
    if not isinstance(item, dict):
        return item
    sized = {side: canonical_quantities(item[side]) for side in _LIMIT_SIDES if side in item}
    if not all(isinstance(side, dict) for side in sized.values()):
        return item
    filled = {**item, **sized}
    if item.get("type") != "Container":
        return filled
    limits = {**sized.get("max", {}), **sized.get("default", {})}
    requests = {**sized.get("min", {}), **limits, **sized.get("defaultRequest", {})}
    if limits:
        filled["default"] = limits
    if requests:
        filled["defaultRequest"] = requests
    return filled


def validate_limit_range(limits: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate(lookup(limits, "spec", "limits", default=[])):
        field, kind = f"spec.limits[{index}]", item.get("type")
        errors += required_one_of(kind, LIMIT_TYPES, f"{field}.type")
        if kind in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, f"{field}.type", "", kind))
        seen.add(str(kind))
        errors += _validate_limits(item, field)
    return errors


def _validate_limits(item: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for side in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        errors += validate_quantities(item.get(side) or {}, f"{field}.{side}")
        if item.get("type") == "Pod" and side.startswith("default") and item.get(side):
            detail = "may not be specified when `type` is 'Pod'"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"{field}.{side}", detail))
    if errors:
        return errors
    for lower, upper in (
        ("min", "max"),
        ("min", "default"),
        ("min", "defaultRequest"),
        ("default", "max"),
        ("defaultRequest", "max"),
        ("defaultRequest", "default"),
    ):
        errors += _validate_order(item, lower, upper, field)
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if parse_quantity(ratio) < _NANO:
            where = f"{field}.maxLimitRequestRatio[{name}]"
            errors.append(FieldError(FieldErrorKind.INVALID, where, f"ratio {ratio} is < 1", ratio))
    return errors


def _validate_order(item: Object, lower: str, upper: str, field: str) -> list[FieldError]:
    below, above = item.get(lower) or {}, item.get(upper) or {}
    words = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}
    shown = lower if lower != "min" or upper == "max" else upper
    errors = []
    for name in below.keys() & above.keys():
        if parse_quantity(below[name]) > parse_quantity(above[name]):
            detail = (
                f"{words[lower]} value {below[name]} is greater than {words[upper]} value"
                f" {above[name]}"
            )
            where = f"{field}.{shown}[{name}]"
            value = (item.get(shown) or {})[name]
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, value))
    return errors


LIMIT_RANGE = Kind(
    LIMIT_RANGES,
    shape=LimitRange,
    defaults=default_limit_range,
    validate=validate_limit_range,
    roles=RULING,
    columns=(
        NAME,
        Column("Created At", at("metadata", "creationTimestamp", default=UNKNOWN)),
    ),
)
