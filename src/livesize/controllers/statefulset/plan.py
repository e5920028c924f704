"""What a stateful set does next, and what its status says. Pure.

    replicas    the pods whose numbers the set wants to have
    condemned   those of other numbers; they go, the highest first

The order is Kubernetes': first the replicas (absent ones are made, those that have ended are
deleted to be made anew), then the condemned, then the update. OrderedReady goes from a pod to the
next only when that one is available, so a pod that never becomes ready stops everything after it, a
newer template included: a person deletes it, as in Kubernetes. Parallel waits for none.

The update deletes pods whose label controller-revision-hash is not the newest revision's, from the
highest number down to the partition. Nothing else of a pod is compared. Without maxUnavailable it
takes the first such pod, and goes on below it when it is available again. With maxUnavailable all
unavailable pods count; an old pod that is unavailable anyway costs nothing and goes first.

Every prefix of the steps is safe: the claims of a pod come before it, a claim gets its owner before
the pod that it goes with, and a number that has a pod, in whatever state, gets no second one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec

from livesize.api.kinds.stateful_set import PARALLEL, ROLLING_UPDATE
from livesize.api.objects import Object, evolve, generation_of, lookup, name_of, uid_of
from livesize.api.resize_state import is_terminal
from livesize.api.shares import share_of
from livesize.api.workloads import replicas_of
from livesize.controllers.kit.owned_pods import is_available, is_leaving, is_ready
from livesize.controllers.statefulset.members import (
    claim_names,
    first_ordinal,
    identity_labels,
    make_claims,
    make_member,
    ordinal_of,
    ordinals_of,
    owned_claim,
    revision_of,
    waits_for_collector,
)

_UNLESS_ZERO = ("readyReplicas", "currentReplicas", "updatedReplicas")


class Revision(msgspec.Struct, frozen=True):
    name: str
    template: Object


class SetView(msgspec.Struct, frozen=True):
    """``pods``: those that the set controls; ``claims``: those of their names that are there."""

    stateful_set: Object
    pods: tuple[Object, ...]
    claims: Mapping[str, Object]
    current: Revision
    update: Revision
    collisions: int = 0


class CreateClaim(msgspec.Struct, frozen=True, tag=True):
    claim: Object
    pod: str


class OwnClaim(msgspec.Struct, frozen=True, tag=True):
    """``claim``: as it is to be."""

    claim: Object


class CreatePod(msgspec.Struct, frozen=True, tag=True):
    pod: Object


class LabelPod(msgspec.Struct, frozen=True, tag=True):
    """``pod``: as it is to be."""

    pod: Object


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """``ended``: it has, and is deleted only to be made anew."""

    pod: Object
    ended: bool = False


SetStep: TypeAlias = CreateClaim | OwnClaim | CreatePod | LabelPod | DeletePod


def plan_stateful_set(view: SetView, now: float) -> tuple[SetStep, ...]:
    if is_leaving(view.stateful_set):
        return ()
    return tuple(_steps(view, now))


def plan_status(view: SetView, deleted: AbstractSet[str], now: float) -> Object | None:
    """The status as it should be; None where it is. ``deleted``: uids of pods that have been
    deleted just now. Pods are counted by the labels that they have: others may change them."""
    stateful_set, least = view.stateful_set, _min_ready_seconds(view)
    ready = [pod for pod in view.pods if _is_running(pod) and is_ready(pod)]
    staying = [pod for pod in view.pods if not is_leaving(pod) and uid_of(pod) not in deleted]
    revisions = [revision_of(pod) for pod in staying]
    status: Object = {
        "observedGeneration": generation_of(stateful_set),
        "replicas": len(view.pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(is_available(pod, least, now) for pod in ready),
        "currentReplicas": revisions.count(view.current.name),
        "updatedReplicas": revisions.count(view.update.name),
        "currentRevision": view.current.name,
        "updateRevision": view.update.name,
        "collisionCount": view.collisions,
    }
    counts = {status[part] for part in ("replicas", "readyReplicas", "updatedReplicas")}
    if _strategy(view).get("type") == ROLLING_UPDATE and counts == {replicas_of(stateful_set)}:
        status["currentReplicas"] = status["updatedReplicas"]
        status["currentRevision"] = status["updateRevision"]
    for part in _UNLESS_ZERO:
        if not status[part]:
            del status[part]
    return None if status == stateful_set.get("status") else status


def claims_needed(stateful_set: Object, pods: Iterable[Object]) -> Iterator[str]:
    """Names of the claims of all pods that are there, or are to be."""
    ordinals = {ordinal_of(stateful_set, pod) for pod in pods} | {*ordinals_of(stateful_set)}
    for ordinal in ordinals:
        if ordinal is not None:
            yield from (claim for _, claim in claim_names(stateful_set, ordinal))


# The order


def _steps(view: SetView, now: float) -> Iterator[SetStep]:
    in_order = lookup(view.stateful_set, "spec", "podManagementPolicy") != PARALLEL
    by_ordinal = {_ordinal(view, pod): pod for pod in view.pods}
    replicas = [
        (ordinal, by_ordinal.pop(ordinal, None)) for ordinal in ordinals_of(view.stateful_set)
    ]
    for ordinal, pod in replicas:
        yield from _plan_replica(view, ordinal, pod)
        if in_order and not _is_settled(view, pod, now):
            return
    condemned = [pod for _, pod in sorted(by_ordinal.items(), reverse=True)]
    for pod in condemned:
        yield from _own_claims(view, _ordinal(view, pod), pod, leaves=True)
    going = _plan_condemned(view, condemned, now) if in_order else condemned
    yield from (DeletePod(pod) for pod in going if not is_leaving(pod))
    if in_order and condemned:
        return
    yield from map(DeletePod, _plan_update(view, [pod for _, pod in replicas], now))


def _plan_replica(view: SetView, ordinal: int, pod: Object | None) -> Iterator[SetStep]:
    if pod is None:
        yield from _plan_creation(view, ordinal)
    elif is_terminal(pod):
        if not is_leaving(pod):
            yield DeletePod(pod, ended=True)
    elif not is_leaving(pod):
        if lookup(pod, "status", "phase") == "Pending":
            yield from _missing_claims(view, ordinal)
        yield from _own_claims(view, ordinal, pod, leaves=False)
        labels = lookup(pod, "metadata", "labels", default={})
        identity = identity_labels(name_of(pod), ordinal)
        if not identity.items() <= labels.items():
            yield LabelPod(evolve(pod, ("metadata", "labels"), {**labels, **identity}))


def _plan_creation(view: SetView, ordinal: int) -> Iterator[SetStep]:
    """Not while a claim of that name still goes with an earlier pod."""
    revision = view.current if _has_current_revision(view, ordinal) else view.update
    pod = make_member(view.stateful_set, revision.template, ordinal, revision.name)
    claims = [view.claims.get(name) for _, name in claim_names(view.stateful_set, ordinal)]
    if any(claim and waits_for_collector(claim, name_of(pod)) for claim in claims):
        return
    yield from _missing_claims(view, ordinal)
    yield CreatePod(pod)


def _has_current_revision(view: SetView, ordinal: int) -> bool:
    """Whether a pod that is made now has the current revision, not the newest."""
    strategy = _strategy(view)
    if strategy.get("type") != ROLLING_UPDATE:
        return False
    below = lookup(view.stateful_set, "status", "currentReplicas", default=0)
    if strategy.get("rollingUpdate") is not None:
        below = _partition(view)
    return bool(ordinal < first_ordinal(view.stateful_set) + below)


def _plan_condemned(view: SetView, condemned: Sequence[Object], now: float) -> Iterator[Object]:
    """In order, highest first: one at a time, and one that is unavailable only if it is the
    lowest of those that are."""
    if not condemned or is_leaving(condemned[0]):
        return
    unavailable = [pod for pod in condemned if not _is_settled(view, pod, now)]
    if condemned[0] not in unavailable or condemned[0] is unavailable[-1]:
        yield condemned[0]


def _plan_update(view: SetView, replicas: Sequence[Object | None], now: float) -> Iterator[Object]:
    strategy = _strategy(view)
    if strategy.get("type") != ROLLING_UPDATE:
        return
    most = lookup(strategy, "rollingUpdate", "maxUnavailable")
    staged = replicas[_partition(view) :]
    old = [pod for pod in reversed(staged) if pod is not None and _is_due(view, pod)]
    if most is None:
        unfinished = (pod for pod in reversed(staged) if not _is_updated(view, pod, now))
        if (first := next(unfinished, None)) in old and first is not None:
            yield first
        return
    unsettled = sum(not _is_settled(view, pod, now) for pod in replicas)
    budget = max(0, share_of(most, len(replicas), rounded_up=True) - unsettled)
    yield from (pod for pod in old if not _is_settled(view, pod, now))
    yield from [pod for pod in old if _is_settled(view, pod, now)][:budget]


# What is true of a pod, and of the set


def _is_settled(view: SetView, pod: Object | None, now: float) -> bool:
    """Running, available and there to stay."""
    if pod is None or is_leaving(pod) or not _is_running(pod):
        return False
    return is_available(pod, _min_ready_seconds(view), now)


def _is_updated(view: SetView, pod: Object | None, now: float) -> bool:
    return pod is not None and not _is_due(view, pod) and _is_settled(view, pod, now)


def _is_due(view: SetView, pod: Object) -> bool:
    return revision_of(pod) != view.update.name and not is_leaving(pod) and not is_terminal(pod)


def _is_running(pod: Object) -> bool:
    return bool(lookup(pod, "status", "phase") == "Running")


def _ordinal(view: SetView, pod: Object) -> int:
    ordinal = ordinal_of(view.stateful_set, pod)
    assert ordinal is not None, "a pod of another set"
    return ordinal


def _strategy(view: SetView) -> Object:
    strategy: Object = lookup(view.stateful_set, "spec", "updateStrategy", default={})
    return strategy


def _partition(view: SetView) -> int:
    return int(lookup(_strategy(view), "rollingUpdate", "partition", default=0))


def _min_ready_seconds(view: SetView) -> int:
    return int(lookup(view.stateful_set, "spec", "minReadySeconds", default=0))


# Claims


def _missing_claims(view: SetView, ordinal: int) -> Iterator[SetStep]:
    for claim in make_claims(view.stateful_set, ordinal):
        if name_of(claim) not in view.claims:
            yield CreateClaim(claim, f"{name_of(view.stateful_set)}-{ordinal}")


def _own_claims(view: SetView, ordinal: int, pod: Object, *, leaves: bool) -> Iterator[SetStep]:
    for _, name in claim_names(view.stateful_set, ordinal):
        claim = view.claims.get(name)
        if claim is not None and not is_leaving(claim):
            owned = owned_claim(view.stateful_set, claim, pod, leaves=leaves)
            if owned is not claim:
                yield OwnClaim(owned)
