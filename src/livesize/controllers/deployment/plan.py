"""Decides what a Deployment's ReplicaSets are to have next. Pure.

    paused, or scaled while several ReplicaSets have pods   each gets its part; nothing rolls out
    RollingUpdate     the new one grows up to maxSurge; then the old ones shrink as far as enough
                      pods are available, those first that are not
    Recreate          the old ones lose their pods; when the last is gone, the new one gets all

A plan takes one step. What it writes brings the Deployment again, and the next step is planned from
what is there then. Every prefix of the writes of a plan is safe: there are never more pods wanted
than replicas and maxSurge allow, and no pod is taken away that the minimum needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from livesize.api.kinds.deployment import RECREATE, ROLLING_UPDATE
from livesize.api.objects import Object, generation_of, lookup, name_of
from livesize.api.workloads import replicas_of
from livesize.controllers.deployment.replica_sets import (
    REVISION,
    Rollout,
    annotations_of,
    available_of,
    desired_of,
    make_replica_set,
    make_rollout,
    most_of,
    refreshed,
    revision_of,
    sized,
)
from livesize.controllers.deployment.status import NEVER, is_complete, plan_status, plan_wait
from livesize.controllers.kit.owned_pods import is_leaving


class ReplicaSetChange(msgspec.Struct, frozen=True):
    before: Object
    after: Object


class DeploymentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Written in this order. ``revision``: of the Deployment, where it has another one;
    ``status`` None: it is as it should be."""

    create: Object | None = None
    change: tuple[ReplicaSetChange, ...] = ()
    delete: tuple[Object, ...] = ()
    revision: str | None = None
    status: Object | None = None
    wait_seconds: float | None = None


def plan_deployment(
    deployment: Object, replica_sets: Sequence[Object], now: float
) -> DeploymentPlan:
    """``replica_sets``: those that the Deployment has claimed."""
    seen = make_rollout(deployment, replica_sets)
    if is_leaving(deployment):
        return _planned(seen, seen, (), now, rolls=False)
    rollout = seen
    if seen.new is not None:
        rollout = Rollout(deployment, refreshed(seen, seen.new), seen.old)
    is_paused = bool(lookup(deployment, "spec", "paused"))
    if is_paused or _is_scaled(rollout):
        scaled = _resized(rollout, plan_scaling(rollout))
        outdated = _outdated(rollout) if is_paused else ()
        return _planned(seen, scaled, outdated, now, rolls=False)
    if rollout.new is None and not _waits_for_old_pods(rollout):
        new = refreshed(rollout, make_replica_set(deployment))
        grown = Rollout(deployment, new, rollout.old)
        rollout = _resized(grown, {name_of(new): _room_for_new(grown)})
    sizes = plan_step(rollout)
    is_done = not sizes and is_complete(deployment, deployment.get("status") or {})
    outdated = _outdated(rollout) if is_done else ()
    return _planned(seen, _resized(rollout, sizes), outdated, now, rolls=True)


def plan_step(rollout: Rollout) -> dict[str, int]:
    """The next sizes of a rollout, by name; empty: it waits, or is done."""
    recreates = _strategy(rollout) == RECREATE
    if recreates and any(replicas_of(one) for one in rollout.old):
        return {name_of(one): 0 for one in rollout.old if replicas_of(one)}
    if rollout.new is None or (recreates and _waits_for_old_pods(rollout)):
        return {}
    wanted = _room_for_new(rollout)
    if wanted != replicas_of(rollout.new):
        return {name_of(rollout.new): wanted}
    return {} if recreates else _shrink_old(rollout)


def plan_scaling(rollout: Rollout) -> dict[str, int]:
    """The sizes after the Deployment's replicas have changed; nothing is rolled out by it."""
    only = _only_one(rollout)
    if only is not None:
        return {name_of(only): rollout.replicas}
    if _is_saturated(rollout):
        return {name_of(one): 0 for one in rollout.old if replicas_of(one)}
    if _strategy(rollout) != ROLLING_UPDATE:
        return {}
    return _proportions(rollout, rollout.active)


# Rolling


def _room_for_new(rollout: Rollout) -> int:
    """How many pods the new ReplicaSet may have by now."""
    assert rollout.new is not None
    has = replicas_of(rollout.new)
    if has >= rollout.replicas or _strategy(rollout) == RECREATE:
        return rollout.replicas
    room = max(rollout.most - _wanted(rollout.every), 0)
    return min(has + room, rollout.replicas)


def _shrink_old(rollout: Rollout) -> dict[str, int]:
    """First what is not available in old ReplicaSets: it serves nobody. Then as many as are
    available beyond the minimum; the oldest ReplicaSet first in both."""
    new = rollout.new
    assert new is not None
    starting = replicas_of(new) - available_of(new)
    spare = _wanted(rollout.every) - rollout.least - starting
    old = [one for one in rollout.old if replicas_of(one)]
    if spare <= 0 or not old:
        return {}
    sizes = {name_of(one): replicas_of(one) for one in old}
    left = spare
    for one in old:
        unhealthy = min(left, replicas_of(one) - available_of(one))
        sizes[name_of(one)] -= unhealthy
        left -= unhealthy
    left = sum(map(available_of, rollout.every)) - rollout.least
    for one in old:
        healthy = max(min(left, sizes[name_of(one)]), 0)
        sizes[name_of(one)] -= healthy
        left -= healthy
    return {
        name_of(one): sizes[name_of(one)] for one in old if sizes[name_of(one)] != replicas_of(one)
    }


# Recreating


def _waits_for_old_pods(rollout: Rollout) -> bool:
    """Whether a Deployment that recreates still has pods of another template, or may have: pods
    that are being deleted count, and a ReplicaSet that has not seen its new size."""
    if _strategy(rollout) != RECREATE:
        return False
    return not all(map(_has_no_pods, rollout.old))


def _has_no_pods(replica_set: Object) -> bool:
    status: Object = replica_set.get("status") or {}
    if status.get("observedGeneration", 0) < generation_of(replica_set):
        return False
    counts = (status.get("replicas"), status.get("terminatingReplicas"), replicas_of(replica_set))
    return not any(counts)


# Scaling


def _is_scaled(rollout: Rollout) -> bool:
    """Whether the Deployment wants another number than when its ReplicaSets were last sized."""
    wanted = (desired_of(one) for one in rollout.active)
    return any(one is not None and one != rollout.replicas for one in wanted)


def _only_one(rollout: Rollout) -> Object | None:
    """The ReplicaSet that has all pods; of several without any, the newest."""
    if len(rollout.active) > 1:
        return None
    return next(iter(rollout.active), rollout.new or (rollout.old[-1] if rollout.old else None))


def _is_saturated(rollout: Rollout) -> bool:
    new = rollout.new
    return (
        new is not None
        and [replicas_of(new), desired_of(new), available_of(new)] == [rollout.replicas] * 3
    )


def _proportions(rollout: Rollout, active: list[Object]) -> dict[str, int]:
    """What is added or taken is shared by size; the largest gets what rounding leaves. Of equal
    ones the newer grows, and the older shrinks, first."""
    allowed = rollout.most if rollout.replicas else 0
    change = allowed - _wanted(active)
    ordered = active if change <= 0 else active[::-1]
    ordered = sorted(ordered, key=lambda one: -replicas_of(one))
    sizes: dict[str, int] = {}
    left = change
    for one in ordered:
        part = _part(rollout, one, left)
        sizes[name_of(one)] = replicas_of(one) + part
        left -= part
    for name, size in sizes.items():
        rest = max(left, -size)
        sizes[name] = size + rest
        left -= rest
    return sizes


def _part(rollout: Rollout, replica_set: Object, left: int) -> int:
    """Its part of a change of which so much is ``left``, no more than that."""
    has = replicas_of(replica_set)
    status = lookup(rollout.deployment, "status", "replicas", default=0)
    before = most_of(replica_set) or status or has
    part = _rounded(has * rollout.most, before) - has if rollout.replicas else -has
    return min(max(part, 0), left) if left > 0 else max(min(part, 0), left)


def _rounded(number: int, divisor: int) -> int:
    """Halves away from zero; both are positive."""
    return (2 * number + divisor) // (2 * divisor)


# Cleaning up


def _outdated(rollout: Rollout) -> tuple[Object, ...]:
    """Old ReplicaSets beyond revisionHistoryLimit, lowest revision first; never one with pods."""
    limit = lookup(rollout.deployment, "spec", "revisionHistoryLimit", default=NEVER)
    staying = [one for one in rollout.old if not is_leaving(one)]
    beyond = len(staying) - limit
    if limit == NEVER or beyond <= 0:
        return ()
    lowest = sorted(staying, key=revision_of)[:beyond]
    return tuple(one for one in lowest if _has_no_pods(one))


# The plan


def _planned(
    seen: Rollout, rollout: Rollout, outdated: tuple[Object, ...], now: float, *, rolls: bool
) -> DeploymentPlan:
    """``seen``: as it was read; ``rollout``: as it is to be."""
    deployment, new = seen.deployment, rollout.new
    created = new if seen.new is None else None
    status = plan_status(rollout, now, created=created is not None, rolls=rolls)
    revision = None if new is None else annotations_of(new).get(REVISION)
    is_known = revision == annotations_of(deployment).get(REVISION)
    return DeploymentPlan(
        create=created,
        change=tuple(_changes(seen.every, rollout.every)),
        delete=outdated,
        revision=None if is_known else revision,
        status=None if status == deployment.get("status") else status,
        wait_seconds=plan_wait(deployment, status, now) if rolls else None,
    )


def _changes(seen: Iterable[Object], wanted: Iterable[Object]) -> Iterator[ReplicaSetChange]:
    before = {name_of(one): one for one in seen}
    for one in wanted:
        known = before.get(name_of(one))
        if known is not None and known != one:
            yield ReplicaSetChange(known, one)


def _resized(rollout: Rollout, sizes: Mapping[str, int]) -> Rollout:
    def resized(one: Object) -> Object:
        return sized(rollout, one, sizes[name_of(one)]) if name_of(one) in sizes else one

    new = None if rollout.new is None else resized(rollout.new)
    return Rollout(rollout.deployment, new, tuple(map(resized, rollout.old)))


def _strategy(rollout: Rollout) -> str:
    return str(lookup(rollout.deployment, "spec", "strategy", "type", default=ROLLING_UPDATE))


def _wanted(replica_sets: Iterable[Object]) -> int:
    return sum(map(replicas_of, replica_sets))
