"""What an object takes of a ResourceQuota, and what a quota says of it (design 5.2, decisions 7).

What each kind takes its QuotaRule says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.quantity import (
    NANO,
    QuantityStyle,
    format_memory,
    format_quantity,
    parse_quantity,
)
from livesize.api.quota_rule import QuotaRule, QuotaUsage, side_of

_BINARY = ("memory", "storage", "hugepages-")


def is_counted(resource: Resource) -> bool:
    """Quotas are of namespaces."""
    return resource.namespaced and kind_of(resource).quota is not None


def hard_of(quota: Object) -> QuotaUsage:
    hard: Object = lookup(quota, "spec", "hard", default={})
    return {name: parse_quantity(quantity) for name, quantity in hard.items()}


def used_of(quota: Object) -> QuotaUsage:
    used: Object = lookup(quota, "status", "used", default={})
    return {name: parse_quantity(quantity) for name, quantity in used.items()}


def usage_of(quota: Object, resource: Resource, obj: Object | None) -> QuotaUsage:
    """What ``obj`` takes of each amount that the quota limits; nothing where it does not count."""
    rule = kind_of(resource).quota if resource.namespaced else None
    if obj is None or rule is None or not _in_scope(quota, rule, obj):
        return {}
    names = lookup(quota, "spec", "hard", default={})
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    used = {f"count/{qualified}": NANO, **rule.usage(obj, names)}
    return {name: used[name] for name in names if used.get(name)}


def with_status(quota: Object, used: Mapping[str, int]) -> Object:
    """The quota as it says that so much is used; hard in status is what counts (Kubernetes)."""
    hard: Object = lookup(quota, "spec", "hard", default={})
    written = {name: format_used(name, used.get(name, 0)) for name in hard}
    status = {**(quota.get("status") or {}), "hard": hard, "used": written}
    return {**quota, "status": status}


def recount(quota: Object, objects: Iterable[tuple[Resource, Object]]) -> Object:
    """The quota with used counted anew over everything in its namespace."""
    used: QuotaUsage = {}
    for resource, obj in objects:
        add_usage(used, quota, resource, obj)
    return with_status(quota, used)


def add_usage(used: QuotaUsage, quota: Object, resource: Resource, obj: Object) -> None:
    """Count ``obj`` too."""
    for name, amount in usage_of(quota, resource, obj).items():
        used[name] = used.get(name, 0) + amount


def unspecified(quota: Object, resource: Resource, obj: Object) -> list[str]:
    """What the quota limits and a new object does not say."""
    rule = kind_of(resource).quota
    if rule is None or rule.unspecified is None or not _in_scope(quota, rule, obj):
        return []
    return rule.unspecified(obj, lookup(quota, "spec", "hard", default={}))


def format_used(name: str, nano: int) -> str:
    _, resource = side_of(name)
    is_binary = resource.startswith(_BINARY) or resource.endswith("/requests.storage")
    if is_binary and nano % NANO == 0:
        return format_memory(nano // NANO)
    return format_quantity(nano, QuantityStyle.DECIMAL_SI)


def _in_scope(quota: Object, rule: QuotaRule, obj: Object) -> bool:
    scopes = [
        {"scopeName": scope, "operator": "Exists"}
        for scope in lookup(quota, "spec", "scopes", default=[])
    ]
    scopes += lookup(quota, "spec", "scopeSelector", "matchExpressions", default=[])
    if not scopes:
        return True
    covers = rule.in_scope
    return covers is not None and all(covers(scope, obj) for scope in scopes)
