"""What an object takes of a ResourceQuota, and what a quota says of it (design 5.2, decisions 7).

Amounts are nano-units by the quota's own names: requests.cpu, limits.memory, pods,
count/secrets. A pod counts with its ``charge``: what it asks for, has been promised or really has,
whichever is more; one that has ended counts as an object only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from livesize.api.accounting import charge
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod_resource import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.service import SERVICES
from livesize.api.objects import Object, lookup
from livesize.api.qos import qos_class
from livesize.api.quantity import (
    NANO,
    QuantityStyle,
    format_memory,
    format_quantity,
    parse_quantity,
)
from livesize.api.resize_state import is_terminal
from livesize.api.resources import Amounts, containers_of, init_containers_of, moments, stays
from livesize.api.storage import class_of, requested

Usage: TypeAlias = dict[str, int]

_BARE_COUNTS = frozenset(
    {"configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services"}
)
_COMPUTE = ("cpu", "memory")
_BINARY = ("memory", "storage", "hugepages-")


def is_counted(resource: Resource) -> bool:
    """Quotas are of namespaces; events are never counted."""
    return resource.namespaced and resource != EVENTS


def hard_of(quota: Object) -> Usage:
    hard: Object = lookup(quota, "spec", "hard", default={})
    return {name: parse_quantity(quantity) for name, quantity in hard.items()}


def used_of(quota: Object) -> Usage:
    used: Object = lookup(quota, "status", "used", default={})
    return {name: parse_quantity(quantity) for name, quantity in used.items()}


def usage_of(quota: Object, resource: Resource, obj: Object | None) -> Usage:
    """What ``obj`` takes of each amount that the quota limits; nothing where it does not count."""
    if obj is None or not is_counted(resource) or not _in_scope(quota, resource, obj):
        return {}
    used = _object_usage(resource, obj)
    names = lookup(quota, "spec", "hard", default={})
    if resource == PODS:
        used |= _pod_usage(obj, names)
    return {name: used[name] for name in names if used.get(name)}


def with_status(quota: Object, used: Mapping[str, int]) -> Object:
    """The quota as it says that so much is used; hard in status is what counts (Kubernetes)."""
    hard: Object = lookup(quota, "spec", "hard", default={})
    written = {name: format_used(name, used.get(name, 0)) for name in hard}
    status = {**(quota.get("status") or {}), "hard": hard, "used": written}
    return {**quota, "status": status}


def recount(quota: Object, objects: Iterable[tuple[Resource, Object]]) -> Object:
    """The quota with used counted anew over everything in its namespace."""
    used: Usage = {}
    for resource, obj in objects:
        add_usage(used, quota, resource, obj)
    return with_status(quota, used)


def add_usage(used: Usage, quota: Object, resource: Resource, obj: Object) -> None:
    """Count ``obj`` too."""
    for name, amount in usage_of(quota, resource, obj).items():
        used[name] = used.get(name, 0) + amount


def unspecified(quota: Object, pod: Object) -> list[str]:
    """What the quota limits and containers do not say: "limits.cpu for: app,proxy"."""
    containers = [*containers_of(pod), *lookup(pod, "spec", "initContainers", default=[])]
    found = []
    for name in sorted(lookup(quota, "spec", "hard", default={})):
        side, resource = _side_of(name)
        if resource not in _COMPUTE or not _in_scope(quota, PODS, pod):
            continue
        silent = [
            container["name"]
            for container in containers
            if resource not in ((container.get("resources") or {}).get(side) or {})
        ]
        if silent:
            found.append(f"{name} for: {','.join(sorted(silent))}")
    return found


def format_used(name: str, nano: int) -> str:
    _, resource = _side_of(name)
    is_binary = resource.startswith(_BINARY) or resource.endswith("/requests.storage")
    if is_binary and nano % NANO == 0:
        return format_memory(nano // NANO)
    return format_quantity(nano, QuantityStyle.DECIMAL_SI)


def _side_of(name: str) -> tuple[str, str]:
    """``requests.cpu`` and ``cpu`` are the same."""
    side, _, rest = name.partition(".")
    return (side, rest) if side in ("requests", "limits") and rest else ("requests", name)


def _object_usage(resource: Resource, obj: Object) -> Usage:
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    used = {f"count/{qualified}": NANO}
    if not resource.group and resource.plural in _BARE_COUNTS:
        used[resource.plural] = NANO
    if resource == SERVICES:
        used |= _service_usage(obj)
    if resource == PERSISTENT_VOLUME_CLAIMS:
        used |= _claim_usage(obj)
    return used


def _claim_usage(claim: Object) -> Usage:
    """Of all claims, and of those of one class."""
    used = {"requests.storage": requested(claim)}
    if class_of(claim):
        of_class = f"{class_of(claim)}.storageclass.storage.k8s.io"
        used[f"{of_class}/requests.storage"] = requested(claim)
        used[f"{of_class}/persistentvolumeclaims"] = NANO
    return used


def _service_usage(service: Object) -> Usage:
    kind = lookup(service, "spec", "type", default="ClusterIP")
    ports = len(lookup(service, "spec", "ports", default=[]))
    return {
        "services.loadbalancers": NANO if kind == "LoadBalancer" else 0,
        "services.nodeports": ports * NANO if kind in ("LoadBalancer", "NodePort") else 0,
    }


def _pod_usage(pod: Object, names: Iterable[str]) -> Usage:
    if is_terminal(pod):
        return {}
    charged = charge(pod)
    sides: dict[str, Amounts] = {"requests": charged.requests, "limits": charged.limits}
    used: Usage = {"pods": NANO}
    for name in names:
        side, resource = _side_of(name)
        if resource in _COMPUTE:
            used[name] = _nano(sides[side], resource)
        elif name not in used and not name.startswith("count/"):
            used[name] = _asked(pod, side, resource)
    return used


def _nano(amounts: Amounts, resource: str) -> int:
    if resource == "cpu":
        return (amounts.cpu_milli or 0) * (NANO // 1000)
    return (amounts.memory_bytes or 0) * NANO


def _asked(pod: Object, side: str, resource: str) -> int:
    """Resources that are never resized: what the spec says, the most of any moment."""

    def of(container: Object) -> int:
        size = container.get("resources") or {}
        quantity = (size.get(side) or {}).get(resource)
        return 0 if quantity is None else parse_quantity(quantity)

    running = [of(container) for container in containers_of(pod)]
    starting = [(of(one), stays(one)) for one in init_containers_of(pod)]
    return max(sum(together) for together in moments(running, starting))


def _in_scope(quota: Object, resource: Resource, obj: Object) -> bool:
    scopes = [
        {"scopeName": scope, "operator": "Exists"}
        for scope in lookup(quota, "spec", "scopes", default=[])
    ]
    scopes += lookup(quota, "spec", "scopeSelector", "matchExpressions", default=[])
    if not scopes:
        return True
    return resource == PODS and all(_matches(scope, obj) for scope in scopes)


def _matches(scope: Object, pod: Object) -> bool:
    ends = lookup(pod, "spec", "activeDeadlineSeconds") is not None
    match scope["scopeName"]:
        case "Terminating":
            return ends
        case "NotTerminating":
            return not ends
        case "BestEffort":
            return qos_class(pod) == "BestEffort"
        case "NotBestEffort":
            return qos_class(pod) != "BestEffort"
        case _:
            named = str(lookup(pod, "spec", "priorityClassName", default=""))
            return _selects(scope, named)


def _selects(scope: Object, named: str) -> bool:
    values = scope.get("values") or []
    match scope.get("operator"):
        case "In":
            return named in values
        case "NotIn":
            return named not in values
        case "DoesNotExist":
            return not named
        case _:
            return bool(named)
