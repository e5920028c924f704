"""What a pod takes of a ResourceQuota (design 5.2, decisions 7). Pure.

A pod counts with its ``charge``: what it asks for, has been promised or really has, whichever is
more; one that has ended counts as an object only.
"""

from __future__ import annotations

from collections.abc import Iterable

from livesize.api.accounting import charge
from livesize.api.objects import Object, lookup
from livesize.api.qos import qos_class
from livesize.api.quantity import NANO, parse_quantity
from livesize.api.quota_rule import QuotaRule, QuotaUsage, side_of
from livesize.api.resize_state import is_terminal
from livesize.api.resources import Amounts, containers_of, init_containers_of, moments, stays

_COMPUTE = ("cpu", "memory")


def unspecified(pod: Object, names: Iterable[str]) -> list[str]:
    """What is limited and containers do not say: "limits.cpu for: app,proxy"."""
    containers = [*containers_of(pod), *lookup(pod, "spec", "initContainers", default=[])]
    found = []
    for name in sorted(names):
        side, resource = side_of(name)
        if resource not in _COMPUTE:
            continue
        silent = [
            container["name"]
            for container in containers
            if resource not in ((container.get("resources") or {}).get(side) or {})
        ]
        if silent:
            found.append(f"{name} for: {','.join(sorted(silent))}")
    return found


def pod_usage(pod: Object, names: Iterable[str]) -> QuotaUsage:
    if is_terminal(pod):
        return {}
    charged = charge(pod)
    sides: dict[str, Amounts] = {"requests": charged.requests, "limits": charged.limits}
    used: QuotaUsage = {"pods": NANO}
    for name in names:
        side, resource = side_of(name)
        if resource in _COMPUTE:
            used[name] = _nano(sides[side], resource)
        elif name not in used and not name.startswith("count/"):
            used[name] = _requested(pod, side, resource)
    return used


def _nano(amounts: Amounts, resource: str) -> int:
    if resource == "cpu":
        return (amounts.cpu_milli or 0) * (NANO // 1000)
    return (amounts.memory_bytes or 0) * NANO


def _requested(pod: Object, side: str, resource: str) -> int:
    """Resources that are never resized: what the spec says, the most of any moment."""

    def of(container: Object) -> int:
        size = container.get("resources") or {}
        quantity = (size.get(side) or {}).get(resource)
        return 0 if quantity is None else parse_quantity(quantity)

    running = [of(container) for container in containers_of(pod)]
    starting = [(of(one), stays(one)) for one in init_containers_of(pod)]
    return max(sum(together) for together in moments(running, starting))


def in_scope(scope: Object, pod: Object) -> bool:
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


POD_QUOTA = QuotaRule(pod_usage, in_scope, unspecified)
