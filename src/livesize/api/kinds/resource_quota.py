"""Resource quotas: how much of each the objects of a namespace may take together."""

from __future__ import annotations

from collections.abc import Callable

from livesize.api import roles
from livesize.api.columns import (
    AGE,
    NAME,
    Column,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS
from livesize.api.objects import Object, lookup
from livesize.api.quantity import canonical_quantities, parse_quantity
from livesize.api.quota_rule import counted_as
from livesize.api.schema.fields import Message, list_of, object_of, quantities, string, strings
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.resources import validate_quantities

RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", True, "resourcequota", ("quota",)
)


class ScopedResourceSelectorRequirement(Message):
    scopeName = string(1)
    operator = string(2)
    values = strings(3)


class ScopeSelector(Message):
    matchExpressions = list_of(ScopedResourceSelectorRequirement, 1)


class ResourceQuotaSpec(Message):
    hard = quantities(1)
    scopes = strings(2)
    scopeSelector = object_of(ScopeSelector, 3)


class ResourceQuotaStatus(Message):
    hard = quantities(1)
    used = quantities(2)


class ResourceQuota(TypedObject):
    """What all objects of a namespace together may use."""

    spec = object_of(ResourceQuotaSpec, 2)
    status = object_of(ResourceQuotaStatus, 3)


QUOTA_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")


SCOPE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


_OPPOSITES = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))


_WHOLE = frozenset(
    {
        "pods",
        "services",
        "secrets",
        "configmaps",
        "resourcequotas",
        "replicationcontrollers",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)


_AMOUNTS = frozenset({"cpu", "memory", "storage", "ephemeral-storage"})


_NANO = 10**9


def default_quota(quota: Object) -> Object:
    filled = dict(quota)
    for part, sides in (("spec", ("hard",)), ("status", ("hard", "used"))):
        given = quota.get(part, {})
        if not isinstance(given, dict):
            continue
        sized = {side: canonical_quantities(given[side]) for side in sides if side in given}
        filled[part] = {**given, **sized}
    return filled


def validate_quota(quota: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for side, path in (("hard", "spec"), ("hard", "status"), ("used", "status")):
        quantities = lookup(quota, path, side, default={})
        errors += _validate_hard(quantities, f"{path}.{side}")
    return errors + _validate_scopes(quota)


def validate_quota_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_quota(new)
    for part in ("scopes", "scopeSelector"):
        after = lookup(new, "spec", part)
        if after != lookup(old, "spec", part):
            kind, field = FieldErrorKind.INVALID, f"spec.{part}"
            errors.append(FieldError(kind, field, "field is immutable", after))
    return errors


def _validate_hard(quantities: Object, field: str) -> list[FieldError]:
    errors = validate_quantities(quantities, field)
    if errors:
        return errors
    for name, quantity in quantities.items():
        where = f"{field}[{name}]"
        whole = name in _WHOLE or name.startswith("count/")
        if not whole and not _is_amount(name):
            detail = "must be a standard resource for quota"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, name))
        elif whole and parse_quantity(quantity) % _NANO:
            detail = "must be an integer"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, quantity))
    return errors


def _is_amount(name: str) -> bool:
    side, _, rest = name.partition(".")
    if side in ("requests", "limits") and rest:
        return True
    return name in _AMOUNTS or "/" in name or name.startswith("hugepages-")


def _validate_scopes(quota: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    named: set[str] = set()
    for index, scope in enumerate(lookup(quota, "spec", "scopes", default=[])):
        errors += required_one_of(scope, QUOTA_SCOPES, f"spec.scopes[{index}]")
        named.add(scope)
    path = ("spec", "scopeSelector", "matchExpressions")
    for index, rule in enumerate(lookup(quota, *path, default=[])):
        field = f"{'.'.join(path)}[{index}]"
        errors += required_one_of(rule.get("scopeName"), QUOTA_SCOPES, f"{field}.scopeName")
        errors += required_one_of(rule.get("operator"), SCOPE_OPERATORS, f"{field}.operator")
        needs_values = rule.get("operator") in ("In", "NotIn")
        if needs_values != bool(rule.get("values")):
            why = "must be at least one scope value when `operator` is 'In' or 'NotIn'"
            if not needs_values:
                why = "must be no scope value when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.values", why, rule))
    for one, other in _OPPOSITES:
        if {one, other} <= named:
            listed = sorted(named)
            detail = "conflicting scopes"
            errors.append(FieldError(FieldErrorKind.INVALID, "spec.scopes", detail, listed))
    if "BestEffort" in named:
        for name in lookup(quota, "spec", "hard", default={}):
            if name not in ("pods", "count/pods"):
                detail = "unsupported scope applied to resource"
                errors.append(FieldError(FieldErrorKind.INVALID, "spec.scopes", detail, name))
    return errors


def _requests_cell(quota: Object, _now: float) -> str:
    """Used of hard, for everything but limits."""
    return _used_of_hard(quota, lambda name: not name.startswith("limits."))


def _limits_cell(quota: Object, _now: float) -> str:
    return _used_of_hard(quota, lambda name: name.startswith("limits."))


def _used_of_hard(quota: Object, wanted: Callable[[str], bool]) -> str:
    hard, used = (lookup(quota, "status", side, default={}) for side in ("hard", "used"))
    words = [f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if wanted(name)]
    return ", ".join(words)


RESOURCE_QUOTA = Kind(
    RESOURCE_QUOTAS,
    shape=ResourceQuota,
    defaults=default_quota,
    validate=validate_quota,
    validate_update=validate_quota_update,
    subresources={"status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    quota=counted_as("resourcequotas"),
    roles=roles.combine(roles.RULING, roles.STATUS),
    columns=(
        NAME,
        Column("Request", _requests_cell, description="Used of hard"),
        Column("Limit", _limits_cell, description="Used of hard"),
        AGE,
    ),
)
