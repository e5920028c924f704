"""Checks of the kinds that rule pods: quotas, limit ranges, priorities, disruption budgets."""

from __future__ import annotations

from typing import Any

from livesize.api.disruption import ALWAYS_ALLOW, IF_HEALTHY_BUDGET
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import parse_quantity
from livesize.api.validation.choices import one_of, required_one_of
from livesize.api.validation.resources import validate_quantities
from livesize.api.validation.selectors import validate_selector

QUOTA_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass")
SCOPE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")
LARGEST_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2 * LARGEST_PRIORITY,
    "system-node-critical": 2 * LARGEST_PRIORITY + 1000,
}
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


def validate_priority_class(priority: Object) -> list[FieldError]:
    name, value = str(lookup(priority, "metadata", "name", default="")), priority.get("value", 0)
    policies = ("PreemptLowerPriority", "Never")
    errors = required_one_of(priority.get("preemptionPolicy"), policies, "preemptionPolicy")
    if name.startswith(SYSTEM_PREFIX):
        if value != SYSTEM_PRIORITIES.get(name):
            detail = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use"
                " only"
            )
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, "metadata.name", detail))
    elif value > LARGEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {LARGEST_PRIORITY}"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "value", detail))
    if not -(2**31) <= value < 2**31:
        detail = "must be a whole number of 32 bits"
        errors.append(FieldError(FieldErrorKind.INVALID, "value", detail, value))
    return errors


def validate_priority_class_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_priority_class(new)
    if new.get("value", 0) != old.get("value", 0):
        detail = "may not be changed in an update."
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "value", detail))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        kind, detail = FieldErrorKind.INVALID, "field is immutable"
        errors.append(FieldError(kind, "preemptionPolicy", detail, new.get("preemptionPolicy")))
    return errors


def validate_disruption_budget(budget: Object) -> list[FieldError]:
    spec = budget.get("spec") or {}
    errors: list[FieldError] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        errors.append(FieldError(FieldErrorKind.INVALID, "spec", detail, spec))
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            errors += _validate_share(spec[name], f"spec.{name}")
    policy, field = spec.get("unhealthyPodEvictionPolicy"), "spec.unhealthyPodEvictionPolicy"
    if policy is not None:
        errors += one_of(policy, (IF_HEALTHY_BUDGET, ALWAYS_ALLOW), field)
    return errors + validate_selector(spec.get("selector") or {})


def _validate_share(value: Any, field: str) -> list[FieldError]:
    """A number of zero or more, or a percentage up to 100."""
    if type(value) is int:
        if value >= 0:
            return []
        detail = "must be greater than or equal to 0"
        return [FieldError(FieldErrorKind.INVALID, field, detail, value)]
    number = value.removesuffix("%") if isinstance(value, str) else ""
    if number != value and number.isascii() and number.isdigit() and int(number) <= 100:
        return []
    detail = "a valid percent string must be a numeric string followed by an ending '%'"
    return [FieldError(FieldErrorKind.INVALID, field, detail, value)]
