"""What a Deployment's status says of its rollout: counts and conditions. Pure.

Progressing has one reason after the other, which `kubectl rollout status` reads:

    NewReplicaSetCreated, FoundNewReplicaSet   the rollout has begun
    ReplicaSetUpdated                          one more pod is updated, ready or available, or an
                                               old one is gone
    NewReplicaSetAvailable                     it is done
    ProgressDeadlineExceeded                   no progress for progressDeadlineSeconds
    DeploymentPaused, DeploymentResumed        a user has said so
"""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, generation_of, lookup, name_of
from livesize.api.reasons import ConditionType, Reason
from livesize.api.times import format_time, parse_time
from livesize.api.workloads import replicas_of
from livesize.controllers.deployment.replica_sets import Rollout, available_of

NEVER = 2**31 - 1
"""progressDeadlineSeconds and revisionHistoryLimit: as much as this is no limit."""
_FINAL = (Reason.PROGRESS_DEADLINE_EXCEEDED, Reason.REPLICA_SET_AVAILABLE)
_LATER_SECONDS = 1.0
"""Times are written in whole seconds."""


def plan_status(rollout: Rollout, now: float, *, created: bool, rolls: bool) -> Object:
    """``created``: the new ReplicaSet is made with this plan; ``rolls``: the Deployment is neither
    paused nor being scaled, so that its progress is judged."""
    status = _counts(rollout)
    conditions = Conditions(rollout.deployment, now)
    conditions.note_pause()
    conditions.note_replica_set(rollout.new, created=created)
    is_enough = status.get("availableReplicas", 0) >= rollout.least
    conditions.note_availability(is_enough=is_enough)
    if rolls:
        conditions.note_progress(rollout, status)
        conditions.note_failure(rollout)
    if conditions.written:
        status["conditions"] = conditions.written
    return status


def failed_status(deployment: Object, message: str, now: float) -> Object:
    """The new ReplicaSet could not be made."""
    conditions = Conditions(deployment, now)
    if progress_deadline(deployment) is not None:
        conditions.note(
            ConditionType.PROGRESSING, "False", Reason.REPLICA_SET_CREATE_ERROR, message
        )
    return {**(deployment.get("status") or {}), "conditions": conditions.written}


def collided_status(deployment: Object) -> Object:
    """Another object has the name of the new ReplicaSet: its hash is made anew."""
    status: Object = deployment.get("status") or {}
    return {**status, "collisionCount": status.get("collisionCount", 0) + 1}


def plan_wait(deployment: Object, status: Object, now: float) -> float | None:
    """When the rollout fails unless it makes progress; None: it is done, or has failed."""
    condition = find_condition({"status": status}, ConditionType.PROGRESSING)
    deadline = progress_deadline(deployment)
    if deadline is None or condition is None or is_complete(deployment, status):
        return None
    if condition.get("reason") in _FINAL:
        return None
    left = parse_time(condition["lastUpdateTime"]) + deadline - now
    return max(left, 0.0) + _LATER_SECONDS


def is_complete(deployment: Object, status: Object) -> bool:
    """All pods are of the newest template and available, and none is left over."""
    counted = [status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas")]
    is_seen = status.get("observedGeneration", 0) >= generation_of(deployment)
    return is_seen and counted == [replicas_of(deployment)] * len(counted)


def progress_deadline(deployment: Object) -> int | None:
    seconds = lookup(deployment, "spec", "progressDeadlineSeconds")
    return None if seconds == NEVER else seconds


class Conditions:
    """The conditions of a Deployment, noted one after the other. A condition whose status and
    reason are what they were stays as it is."""

    def __init__(self, deployment: Object, now: float) -> None:
        self._deployment = deployment
        self._now = now
        self.written: list[Object] = list(lookup(deployment, "status", "conditions", default=[]))

    def note(
        self,
        kind: ConditionType,
        status: str,
        reason: Reason,
        message: str,
        *,
        anew: bool = False,
    ) -> None:
        """``anew``: it happened again, and lastUpdateTime says when."""
        now = format_time(self._now)
        said = {"status": status, "reason": reason.value}
        before = self._find(kind)
        if before is not None and not anew and said == {key: before.get(key) for key in said}:
            return
        is_same = before is not None and before.get("status") == status
        since = before["lastTransitionTime"] if before is not None and is_same else now
        self._put(
            {
                "type": kind.value,
                **said,
                "message": message,
                "lastUpdateTime": now,
                "lastTransitionTime": since,
            }
        )

    def note_pause(self) -> None:
        """A rollout that has failed stays failed."""
        reason = (self._find(ConditionType.PROGRESSING) or {}).get("reason")
        if progress_deadline(self._deployment) is None:
            self._drop(ConditionType.PROGRESSING)
        elif reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
            return
        elif lookup(self._deployment, "spec", "paused"):
            self._progress("Unknown", Reason.DEPLOYMENT_PAUSED, "Deployment is paused")
        elif reason == Reason.DEPLOYMENT_PAUSED:
            self._progress("Unknown", Reason.DEPLOYMENT_RESUMED, "Deployment is resumed")

    def note_replica_set(self, new: Object | None, *, created: bool) -> None:
        if new is None or progress_deadline(self._deployment) is None:
            return
        if created:
            message = f'Created new replica set "{name_of(new)}"'
            self._progress("True", Reason.REPLICA_SET_CREATED, message)
        elif self._find(ConditionType.PROGRESSING) is None:
            message = f'Found new replica set "{name_of(new)}"'
            self._progress("True", Reason.REPLICA_SET_FOUND, message)

    def note_availability(self, *, is_enough: bool) -> None:
        kind = ConditionType.AVAILABLE
        if is_enough:
            self.note(
                kind, "True", Reason.MINIMUM_AVAILABLE, "Deployment has minimum availability."
            )
        else:
            self.note(
                kind,
                "False",
                Reason.MINIMUM_UNAVAILABLE,
                "Deployment does not have minimum availability.",
            )

    def note_progress(self, rollout: Rollout, status: Object) -> None:
        deadline = progress_deadline(self._deployment)
        condition = self._find(ConditionType.PROGRESSING) or {}
        was_done = condition.get("reason") == Reason.REPLICA_SET_AVAILABLE
        if deadline is None or (was_done and _old_replicas(status) == 0):
            return
        subject = (
            f'Deployment "{name_of(self._deployment)}"'
            if rollout.new is None
            else f'ReplicaSet "{name_of(rollout.new)}"'
        )
        if is_complete(self._deployment, status):
            message = f"{subject} has successfully progressed."
            self._progress("True", Reason.REPLICA_SET_AVAILABLE, message)
        elif _has_progressed(self._deployment.get("status") or {}, status):
            message = f"{subject} is progressing."
            self._progress("True", Reason.REPLICA_SET_UPDATED, message, anew=True)
        elif condition and not was_done and self._is_overdue(condition, deadline):
            message = f"{subject} has timed out progressing."
            self._progress("False", Reason.PROGRESS_DEADLINE_EXCEEDED, message)

    def note_failure(self, rollout: Rollout) -> None:
        """The first failure of a ReplicaSet, that of the new one before the others."""
        kind = ConditionType.REPLICA_FAILURE
        found = [find_condition(one, kind) for one in reversed(rollout.every)]
        failure = next((one for one in found if one is not None), None)
        before = self._find(kind)
        if failure is None:
            self._drop(kind)
        elif before is None or any(before[key] != failure[key] for key in ("status", "reason")):
            self._put({**failure, "lastUpdateTime": failure["lastTransitionTime"]})

    def _progress(self, status: str, reason: Reason, message: str, *, anew: bool = False) -> None:
        self.note(ConditionType.PROGRESSING, status, reason, message, anew=anew)

    def _is_overdue(self, condition: Object, deadline: int) -> bool:
        if condition.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED:
            return True
        return parse_time(condition["lastUpdateTime"]) + deadline < self._now

    def _find(self, kind: ConditionType) -> Object | None:
        return next((one for one in self.written if one.get("type") == kind), None)

    def _put(self, condition: Object) -> None:
        self._drop(ConditionType(condition["type"]))
        self.written.append(condition)

    def _drop(self, kind: ConditionType) -> None:
        self.written = [one for one in self.written if one.get("type") != kind]


def _counts(rollout: Rollout) -> Object:
    every = rollout.every
    available = sum(map(available_of, every))
    counts = {
        "observedGeneration": generation_of(rollout.deployment),
        "replicas": _total(every, "replicas"),
        "updatedReplicas": 0 if rollout.new is None else _total([rollout.new], "replicas"),
        "readyReplicas": _total(every, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(replicas_of, every)) - available, 0),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    status["terminatingReplicas"] = _total(every, "terminatingReplicas")
    collisions = lookup(rollout.deployment, "status", "collisionCount")
    return status if collisions is None else {**status, "collisionCount": collisions}


def _total(replica_sets: Sequence[Object], field: str) -> int:
    return sum(int(lookup(one, "status", field, default=0)) for one in replica_sets)


def _old_replicas(status: Object) -> int:
    return int(status.get("replicas", 0) - status.get("updatedReplicas", 0))


def _has_progressed(before: Object, after: Object) -> bool:
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return any(after.get(name, 0) > before.get(name, 0) for name in grown) or _old_replicas(
        after
    ) < _old_replicas(before)
