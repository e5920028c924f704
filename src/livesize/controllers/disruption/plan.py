"""Counts what a disruption budget says of its pods, as its status. Pure.

    expectedPods         pods that the budget protects and that have not ended; where it speaks of
                         a share, as many as the controllers of its pods want
    currentHealthy       pods of it that are ready and stay
    desiredHealthy       as many as spec.minAvailable or spec.maxUnavailable leaves
    disruptionsAllowed   what is between the two

maxUnavailable and percentages are shares of what the pods' controllers want to have: `replicas` of
what has a scale. Pods without a controller are not counted there. Where a controller does not say
how many it wants, nothing may leave, and the condition says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from livesize.api.conditions import set_condition
from livesize.api.disruption import is_healthy, protects
from livesize.api.objects import Object, generation_of, lookup, name_of
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resize_state import is_terminal
from livesize.api.shares import share_of

_NO_SCALE = (
    "no controller says how many pods there should be, which maxUnavailable and percentages need:"
    " set spec.minAvailable to a number"
)


def protected_pods(budget: Object, pods: Iterable[Object]) -> list[Object]:
    """Those of the namespace's ``pods`` that count."""
    return [pod for pod in pods if protects(budget, pod) and not is_terminal(pod)]


def plan_status(
    budget: Object, own: list[Object], scale: int | None, overdue: AbstractSet[str], now: str
) -> Object | None:
    """The status as it should be; None where it is. ``own``: the protected pods; ``scale``: how
    many of them their controllers want, None where one does not say; ``overdue``: pods that were
    evicted long ago."""
    disrupted = _disrupted(budget, own, overdue)
    healthy = sum(is_healthy(pod) and name_of(pod) not in disrupted for pod in own)
    needs_scale = type(lookup(budget, "spec", "minAvailable")) is not int
    expected = (scale or 0) if needs_scale else len(own)
    desired = None if needs_scale and scale is None else _desired(budget, expected)
    allowed = 0 if desired is None or not expected else max(healthy - desired, 0)
    condition = _condition(allowed, desired, generation_of(budget))
    before = budget.get("status") or {}
    status = {
        **before,
        "observedGeneration": generation_of(budget),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired or 0,
        "expectedPods": expected,
        "conditions": set_condition(before.get("conditions") or [], condition, now),
    }
    status.pop("disruptedPods", None)
    if disrupted:
        status["disruptedPods"] = disrupted
    return None if status == before else status


def _disrupted(budget: Object, own: list[Object], overdue: AbstractSet[str]) -> dict[str, str]:
    """Evicted pods that still look as if they stayed: deletion has not come through to us."""
    staying = {name_of(pod) for pod in own if not lookup(pod, "metadata", "deletionTimestamp")}
    known: dict[str, str] = lookup(budget, "status", "disruptedPods", default={})
    return {name: since for name, since in known.items() if name in staying and name not in overdue}


def _desired(budget: Object, expected: int) -> int:
    """Percentages are rounded up: of pods to keep, and of pods that may go."""
    least, most = (lookup(budget, "spec", name) for name in ("minAvailable", "maxUnavailable"))
    if most is not None:
        return max(expected - share_of(most, expected, rounded_up=True), 0)
    return expected if least is None else share_of(least, expected, rounded_up=True)


def _condition(allowed: int, desired: int | None, generation: int) -> Object:
    reason, message = Reason.INSUFFICIENT_PODS, ""
    if desired is None:
        reason, message = Reason.SYNC_FAILED, _NO_SCALE
    elif allowed:
        reason = Reason.SUFFICIENT_PODS
    return {
        "type": ConditionType.DISRUPTION_ALLOWED.value,
        "status": "True" if allowed else "False",
        "reason": reason.value,
        "message": message,
        "observedGeneration": generation,
    }
