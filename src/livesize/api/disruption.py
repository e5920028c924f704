"""Disruption budgets (policy/v1): which pods they protect, and whether one may be evicted. Pure.

A budget's status is counted by the controller (livesize.controllers.disruption); an eviction takes
one of its ``disruptionsAllowed`` in the same commit in which the pod's deletion begins, so that no
two of them can take the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from livesize.api.conditions import is_true
from livesize.api.objects import Object, evolve, generation_of, lookup, name_of
from livesize.api.placement import holds
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resize_state import is_terminal

ALWAYS_ALLOW, IF_HEALTHY_BUDGET = "AlwaysAllow", "IfHealthyBudget"
MOST_DISRUPTED = 2000
_PROCESSING_SECONDS = 10


class Unprotected(msgspec.Struct, frozen=True, tag=True):
    """No budget has anything to say."""


class Charged(msgspec.Struct, frozen=True, tag=True):
    """The budget as it is with one disruption less to give."""

    budget: Object


class Protected(msgspec.Struct, frozen=True, tag=True):
    """Not now; in ``retry_seconds`` it may be another matter (0: when pods have become ready)."""

    why: str
    retry_seconds: int = 0


class Disputed(msgspec.Struct, frozen=True, tag=True):
    """Several budgets protect the pod, and none may be passed over."""

    budgets: tuple[str, ...]


DisruptionVerdict: TypeAlias = Unprotected | Charged | Protected | Disputed
DisruptionJudge: TypeAlias = Callable[[Object, Iterable[Object], str], DisruptionVerdict]
"""Whether a pod may be evicted: the pod, the budgets of its namespace, and the time as text."""


def protects(budget: Object, pod: Object) -> bool:
    """A budget without a selector protects nothing, one with an empty selector everything."""
    selector = lookup(budget, "spec", "selector")
    if selector is None:
        return False
    labels = lookup(pod, "metadata", "labels", default={})
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(holds(one, labels) for one in selector.get("matchExpressions") or [])


def judge_eviction(pod: Object, budgets: Iterable[Object], now: str) -> DisruptionVerdict:
    """``budgets``: those of the pod's namespace; ``now`` as text."""
    if _serves_nobody(pod):
        return Unprotected()
    protecting = [budget for budget in budgets if protects(budget, pod)]
    if not protecting:
        return Unprotected()
    if len(protecting) > 1:
        return Disputed(tuple(sorted(map(name_of, protecting))))
    (budget,) = protecting
    if not is_true(pod, ConditionType.READY) and _lets_unready_go(budget):
        return Unprotected()
    return _judge_budget(budget, name_of(pod), now)


def is_healthy(pod: Object) -> bool:
    """Counts among those that a budget needs."""
    leaving = lookup(pod, "metadata", "deletionTimestamp")
    return not leaving and not is_terminal(pod) and is_true(pod, ConditionType.READY)


def _serves_nobody(pod: Object) -> bool:
    if lookup(pod, "metadata", "deletionTimestamp") or is_terminal(pod):
        return True
    return bool(lookup(pod, "status", "phase", default="Pending") == "Pending")


def _lets_unready_go(budget: Object) -> bool:
    if lookup(budget, "spec", "unhealthyPodEvictionPolicy") == ALWAYS_ALLOW:
        return True
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    return bool(healthy >= desired > 0)


def _judge_budget(budget: Object, pod: str, now: str) -> DisruptionVerdict:
    name, status = name_of(budget), budget.get("status") or {}
    if (status.get("observedGeneration") or 0) < generation_of(budget):
        why = f"The disruption budget {name} is still being processed by the server."
        return Protected(why, _PROCESSING_SECONDS)
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > MOST_DISRUPTED:
        return Protected(f"The disruption budget {name} has too many evictions not confirmed yet.")
    allowed = status.get("disruptionsAllowed") or 0
    if allowed <= 0:
        return Protected(_lacking(budget))
    status = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**disrupted, pod: now},
    }
    return Charged(evolve(budget, ("status",), status))


def _lacking(budget: Object) -> str:
    name, status = name_of(budget), budget["status"]
    for condition in status.get("conditions") or []:
        if condition.get("reason") == Reason.SYNC_FAILED:
            return (
                f"The disruption budget {name} does not allow evicting pods currently because it"
                f" cannot be counted: {condition.get('message', '')}"
            )
    return (
        f"The disruption budget {name} needs {status.get('desiredHealthy') or 0} healthy pods and"
        f" has {status.get('currentHealthy') or 0} currently"
    )
