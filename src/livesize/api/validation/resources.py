"""Checks of one container's resources and of its resize policy, in both dialects."""

from __future__ import annotations

from typing import Any

from livesize.api.bounded_cache import bounded_cache
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.quantity import MAXIMUM_CHARACTERS, QuantityError, parse_quantity
from livesize.api.resize_policy import (
    LIST_POLICIES,
    MAP_POLICIES,
    ResizeAction,
    listed_policy,
    policy_of,
)
from livesize.api.resources import ResourceName
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.names import key_problems, validate_key

_NANO = 10**9
_LARGEST_NANO = (2**63 - 1) * _NANO  # what the kernel and Kubernetes can count to
_NEVER = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
_NEVER_MAP = "must be 'LiveResizeable' when pod `restartPolicy` is 'Never'"


def validate_resources(resources: Object, field: str) -> list[FieldError]:
    """Quantities that can be read, are not negative, and requests within limits."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if requests == limits and not validate_quantities(limits, field):
        return []  # both are right, and neither is more than the other
    errors = [
        *validate_quantities(limits, f"{field}.limits"),
        *validate_quantities(requests, f"{field}.requests"),
    ]
    if errors:
        return errors
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is None or parse_quantity(request) <= parse_quantity(limit):
            continue
        detail = f"must be less than or equal to {name} limit of {limit}"
        errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.requests", detail, request))
    return errors


def validate_quantities(quantities: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, quantity in quantities.items():
        if key_problems(name):
            errors += validate_key(name, f"{field}[{name}]")
        if not (isinstance(quantity, str) and _is_amount(quantity)):
            errors += validate_quantity(quantity, f"{field}[{name}]")
    return errors


@bounded_cache(4096, longest=MAXIMUM_CHARACTERS)
def _is_amount(text: str) -> bool:
    """Quickly, for nearly all: sizes repeat."""
    return not validate_quantity(text, "")


def validate_quantity(quantity: Any, field: str) -> list[FieldError]:
    try:
        nano = parse_quantity(quantity)
    except QuantityError as error:
        shown = quantity if isinstance(quantity, str | int | float) else None
        return [FieldError(FieldErrorKind.INVALID, field, str(error), shown)]
    if nano < 0:
        detail = "must be greater than or equal to 0"
        return [FieldError(FieldErrorKind.INVALID, field, detail, str(quantity))]
    if nano > _LARGEST_NANO:
        detail = "must be less than or equal to 9223372036854775807"
        return [FieldError(FieldErrorKind.INVALID, field, detail, str(quantity))]
    return []


def validate_resize_policy(container: Object, field: str, *, never: bool) -> list[FieldError]:
    """The list, IBM's map, and both together; ``never``: the pod's restartPolicy is Never."""
    mapped = (container.get("resources") or {}).get("resizePolicy") or {}
    return [
        *_validate_list(container.get("resizePolicy") or [], f"{field}.resizePolicy", never=never),
        *validate_policy_map(mapped, container, f"{field}.resources.resizePolicy", never=never),
    ]


def _validate_list(items: list[Object], field: str, *, never: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        resource, policy = item.get("resourceName"), item.get("restartPolicy")
        errors += required_one_of(resource, ResourceName, field)
        errors += required_one_of(policy, LIST_POLICIES, field)
        if resource in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, field, "", resource))
        seen.add(str(resource))
        if never and policy == "RestartContainer":
            errors.append(FieldError(FieldErrorKind.INVALID, field, _NEVER, policy))
        for old, new in (("name", "resourceName"), ("policy", "restartPolicy")):
            if old in item:
                detail = f"says something else than {new}; give one of the two"
                where = f"{field}[{index}].{old}"
                errors.append(FieldError(FieldErrorKind.INVALID, where, detail, item[old]))
    return errors


def validate_policy_map(
    policies: Object, container: Object, field: str, *, never: bool
) -> list[FieldError]:
    """What IBM's map says of the ``container``, wherever it is written."""
    errors: list[FieldError] = []
    for resource, policy in policies.items():
        where = f"{field}[{resource}]"
        wrong = [
            *required_one_of(resource, ResourceName, where),
            *required_one_of(policy, MAP_POLICIES, where),
        ]
        if wrong:
            errors += wrong
            continue
        action = MAP_POLICIES[policy]
        if never and action is not ResizeAction.LIVE:
            errors.append(FieldError(FieldErrorKind.INVALID, where, _NEVER_MAP, policy))
        listed = listed_policy(container, ResourceName(resource))
        if listed is not None and listed is not action:
            detail = f"contradicts the container's resizePolicy for {resource}; give one of the two"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, policy))
    if never and policies:
        errors += _unnamed_errors(container, policies, field)
    return errors


def _unnamed_errors(container: Object, policies: Object, field: str) -> list[FieldError]:
    """What IBM's map does not name restarts the pod (decisions 2)."""
    detail = f"{_NEVER_MAP}; what the map does not name is RestartOnly"
    return [
        FieldError(FieldErrorKind.REQUIRED, f"{field}[{resource}]", detail)
        for resource in ResourceName
        if resource not in policies and policy_of(container, resource) is not ResizeAction.LIVE
    ]
