"""Decides which pods of a ReplicaSet are made and deleted, and what its status says. Pure.

Only active pods count. A pod is never compared with the template: a ReplicaSet whose template has
changed makes its next pod from the new one, and leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.conditions import find_condition, set_condition
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.reasons import ConditionType
from livesize.api.times import format_time
from livesize.api.workloads import replicas_of, template_of
from livesize.controllers.kit.owned_pods import (
    first_to_go,
    is_active,
    is_available,
    is_leaving,
    is_ready,
    is_terminating,
    min_ready_seconds,
    next_available_seconds,
)

MOST_AT_ONCE = 500
"""So many pods one reconcile makes or deletes at most."""


class PodChanges(msgspec.Struct, frozen=True):
    """How many pods to make, or which to delete."""

    create: int = 0
    delete: tuple[Object, ...] = ()


class PodFailure(msgspec.Struct, frozen=True):
    """Why pods could not be made (FailedCreate) or deleted (FailedDelete)."""

    reason: str
    message: str


def plan_pods(
    replica_set: Object, pods: Sequence[Object], related: Sequence[Object], now: float
) -> PodChanges:
    """``pods``: those that it has claimed; ``related``: of all ReplicaSets of its Deployment."""
    if is_leaving(replica_set):
        return PodChanges()
    active = [pod for pod in pods if is_active(pod)]
    too_many = len(active) - replicas_of(replica_set)
    if too_many <= 0:
        return PodChanges(create=min(-too_many, MOST_AT_ONCE))
    ordered = first_to_go(active, [pod for pod in related if is_active(pod)], now)
    return PodChanges(delete=tuple(ordered[: min(too_many, MOST_AT_ONCE)]))


def plan_status(
    replica_set: Object, pods: Sequence[Object], failure: PodFailure | None, now: float
) -> Object | None:
    """The status as it should be; None where it is."""
    active = [pod for pod in pods if is_active(pod)]
    labels = lookup(template_of(replica_set), "metadata", "labels", default={})
    seconds = min_ready_seconds(replica_set)
    counts = {
        "fullyLabeledReplicas": sum(_has_labels(pod, labels) for pod in active),
        "readyReplicas": sum(map(is_ready, active)),
        "availableReplicas": sum(is_available(pod, seconds, now) for pod in active),
        "observedGeneration": generation_of(replica_set),
    }
    status: Object = {
        "replicas": len(active),
        "terminatingReplicas": sum(is_terminating(pod) for pod in pods),
        **{name: count for name, count in counts.items() if count},
    }
    conditions = _conditions(replica_set, failure, format_time(now))
    if conditions:
        status["conditions"] = conditions
    return None if status == replica_set.get("status") else status


def plan_wait(replica_set: Object, pods: Sequence[Object], now: float) -> float | None:
    """When a pod of it becomes available by the mere passing of time."""
    active = [pod for pod in pods if is_active(pod)]
    return next_available_seconds(active, min_ready_seconds(replica_set), now)


def _has_labels(pod: Object, labels: Object) -> bool:
    has = lookup(pod, "metadata", "labels", default={})
    return all(has.get(key) == value for key, value in labels.items())


def _conditions(replica_set: Object, failure: PodFailure | None, now: str) -> list[Object]:
    """The first failure stands until there is none any more."""
    kind = ConditionType.REPLICA_FAILURE
    before = lookup(replica_set, "status", "conditions", default=[])
    if failure is None:
        return [one for one in before if one.get("type") != kind]
    if find_condition(replica_set, kind) is not None:
        return list(before)
    said = {"reason": failure.reason, "message": failure.message}
    return set_condition(before, {"type": kind.value, "status": "True", **said}, now)
