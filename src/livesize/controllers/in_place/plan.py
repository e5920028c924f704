"""What is next for a workload whose pods are resized in place. Pure.

A plan is made from objects alone (livesize.controllers.in_place.view), so that the controller may
die at any write: the next plan is the rest. Its actions are done in their order, and every prefix
of them is safe: no pod that need not be recreated is left to the controller of its kind, which
would recreate it, and what the user has set is what comes back with the release.

    StatefulSet   pods are resized in reverse order and labelled with the newest revision; those
                  that have to be recreated are left to their controller one at a time, by lowering
                  the partition as far as every pod at or above it is labelled, or due
    Deployment    its ReplicaSet gets the template first; then its pods are resized, and those that
                  have to be recreated are evicted

At most as many pods as the parallelism says are under way. What waits stops no other pod; a restart
that has failed does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.conditions import is_true
from livesize.api.objects import Object, evolve, generation_of, lookup, name_of, uid_of, without
from livesize.api.reasons import ConditionType, EventReason
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_policy import ResizeAction
from livesize.api.times import format_micro_time
from livesize.api.workload_resize import (
    ANNOTATIONS,
    PAUSED,
    POLICIES,
    RESIZE_STATUS,
    STRATEGY,
    TEMPLATE_HASH,
    Hold,
    TemplateChange,
    action_of,
    asks_in_place,
    held,
    hold_of,
    is_deployment,
    partition_of,
    previous_sizes,
    put_aside,
    released,
    strongest_policy,
    template_change,
    template_of,
)
from livesize.api.workload_status import ResizeStatus, format_status
from livesize.controllers.in_place.actions import (
    NOTHING,
    DeleteReplicaSet,
    EvictPod,
    SetReplicaSetTemplate,
    WorkloadPlan,
    WriteWorkload,
)
from livesize.controllers.in_place.pod_plan import (
    ENDED,
    Origin,
    PodStanding,
    PodState,
    aim_of,
    origin_of,
)
from livesize.controllers.in_place.turns import Turns
from livesize.controllers.in_place.view import (
    WorkloadView,
    noted_revision_of,
    ordinal_of,
    revision_of,
)

_MORE = "more than sizes has changed: its controller rolls it out"
_PASSED = (PodStanding.DONE, PodStanding.COUNTED, PodStanding.GONE)


def is_concerned(workload: Object) -> bool:
    """It is held; or its user deletes the pods, and has said what a resize is to do: what is
    possible without a deletion is done, and of the rest status says that it waits."""
    if hold_of(workload) is not None:
        return True
    if lookup(workload, *STRATEGY, "type") != "OnDelete":
        return False
    return action_of(workload) is RequestedAction.RESTART or asks_in_place(workload)


def plan_workload(view: WorkloadView, now: float) -> WorkloadPlan:
    workload, hold = view.workload, hold_of(view.workload)
    if not is_concerned(workload) or lookup(workload, "metadata", "deletionTimestamp"):
        return NOTHING
    if hold is not None and not asks_in_place(workload) and not _is_template_given(view):
        why = "no resize in place is asked for any more"
        return _release(view, put_aside(hold, workload), why, now)
    if is_deployment(workload):
        assert hold is not None, "Deployments have no OnDelete"
        return _plan_deployment(view, hold, now)
    return _plan_stateful_set(view, hold, now)


# StatefulSet


def _plan_stateful_set(view: WorkloadView, hold: Hold | None, now: float) -> WorkloadPlan:
    workload = view.workload
    if hold is not None:
        put = put_aside(hold, workload)
        if lookup(put.strategy, "type") == "OnDelete":
            return _release(view, put, "only its user deletes its pods: nothing is held", now)
        again = held(workload, put)
        if put != hold or lookup(again, *STRATEGY) != lookup(workload, *STRATEGY):
            return WorkloadPlan((WriteWorkload(again),))
    observed = lookup(workload, "status", "observedGeneration", default=0)
    revision = lookup(workload, "status", "updateRevision", default="")
    if observed != generation_of(workload) or revision not in view.revisions:
        return NOTHING  # an event comes when its controller has seen the template
    slots = _Ordinals(workload, hold)
    pods = sorted(filter(slots.has, view.pods), key=ordinal_of, reverse=True)
    origins = _origins(view, revision, pods)
    aim = aim_of(workload, origins, revision, is_held=hold is not None)
    turns = Turns(view, aim, pods, now)
    if hold is None:
        return turns.revert(None) if turns.has(PodStanding.REVERT) else turns.plan()
    return _plan_held_set(view, hold, slots, turns, now)


def _plan_held_set(
    view: WorkloadView, hold: Hold, slots: _Ordinals, turns: Turns, now: float
) -> WorkloadPlan:
    workload, revision = view.workload, lookup(view.workload, "status", "updateRevision")
    if turns.has(PodStanding.ROLLOUT):
        return _release(view, hold, _MORE, now)
    if turns.has(PodStanding.REVERT):
        return turns.revert(hold)
    if any(slots.is_exposed(state, hold, revision) for state in turns.states):
        covered = msgspec.structs.replace(hold, partition=slots.end)
        return WorkloadPlan((WriteWorkload(held(workload, covered)),))
    if turns.has(PodStanding.COUNTED) or not slots.are_labels_seen(view.pods, revision):
        return turns.plan()
    if turns.is_finished:
        is_any_coming = slots.is_any_coming(view.pods)
        return turns.plan(None if is_any_coming else _finish(turns, workload, hold))
    return turns.plan(_lower(turns, slots, workload, hold))


def _origins(view: WorkloadView, newest: str, pods: Sequence[Object]) -> dict[str, Origin]:
    """By revision. A revision that is not there says nothing of its pods: as good as a rollout."""
    unknown = Origin(None, TemplateChange.ROLLOUT, has_notes=False)
    labelled = {newest, *map(revision_of, pods)}
    noted = view.revisions.keys() & set(map(noted_revision_of, pods))
    return {
        name: origin_of(view.workload, view.revisions[name], view.revisions[newest])
        if name in view.revisions
        else unknown
        for name in sorted(labelled | noted)
    }


class _Ordinals:
    """Which pods of a StatefulSet the resize is about, by their place in it: the ordinal less
    spec.ordinals.start."""

    def __init__(self, workload: Object, hold: Hold | None) -> None:
        self._start: int = lookup(workload, "spec", "ordinals", "start", default=0)
        self._first = 0 if hold is None else partition_of(hold.strategy)
        self.end: int = lookup(workload, "spec", "replicas", default=1)
        self._updated: int = lookup(workload, "status", "updatedReplicas", default=0)
        policy = lookup(workload, "spec", "podManagementPolicy", default="OrderedReady")
        self._is_ordered = policy != "Parallel"

    def of(self, pod: Object) -> int:
        return ordinal_of(pod) - self._start

    def has(self, pod: Object) -> bool:
        """At or above the user's own partition, and not being scaled away."""
        return self._first <= self.of(pod) < self.end

    def are_labels_seen(self, pods: Sequence[Object], revision: str) -> bool:
        """The controller of the set has counted every pod that is labelled. Until then it may see
        the partition lowered before the labels, and recreate what it takes for old."""
        labelled = [
            pod
            for pod in pods
            if revision_of(pod) == revision
            and 0 <= self.of(pod) < self.end
            and lookup(pod, "status", "phase") not in ENDED
            and not lookup(pod, "metadata", "deletionTimestamp")
        ]
        return self._updated >= len(labelled)

    def is_any_coming(self, pods: Sequence[Object]) -> bool:
        """A pod is about to be made, with the old template while the hold is on: were it released
        now, its controller would recreate it at once. In order, nothing comes behind a pod that is
        not ready."""
        there = {self.of(pod): pod for pod in pods if lookup(pod, "status", "phase") not in ENDED}
        for index in range(self.end):
            pod = there.get(index)
            if pod is None and index >= self._first:
                return True
            if self._is_ordered and (pod is None or not is_true(pod, ConditionType.READY)):
                return False
        return False

    def count_above(self, pod: Object, there: int) -> int:
        """How many pods above this one there will be, while it stays as it is. In order, those that
        are missing wait for it to be ready: it may never be with the size it has, and deleted it
        would come back with that size."""
        if self._is_ordered and not is_true(pod, ConditionType.READY):
            return there
        return self.end - 1 - self.of(pod)

    def is_exposed(self, state: PodState, hold: Hold, revision: str) -> bool:
        """Its controller would recreate it, though that is not called for any more."""
        if self.of(state.pod) < hold.partition or revision_of(state.pod) == revision:
            return False
        return state.standing not in (*_PASSED, PodStanding.RECREATE)


def _lower(turns: Turns, slots: _Ordinals, workload: Object, hold: Hold) -> WriteWorkload | None:
    """The next pod that is due to be recreated is left to its controller, if it is its turn: not
    before every pod above it serves that can come. Its controller would not touch it earlier
    either, and by then there may be room for it where it is."""
    if turns.has(PodStanding.FAILED):
        return None
    for place, state in enumerate(turns.states):
        if state.standing in _PASSED:
            continue
        index = slots.of(state.pod)
        if state.standing is not PodStanding.RECREATE or index >= hold.partition:
            return None
        above = [one for one in turns.states[:place] if one.standing is not PodStanding.GONE]
        serving = sum(is_true(one.pod, ConditionType.READY) for one in above)
        if serving < slots.count_above(state.pod, len(above)) or not turns.may_recreate(place):
            return None
        lower = held(workload, msgspec.structs.replace(hold, partition=index))
        message = f"pod {name_of(state.pod)} is recreated: {state.reason}: {state.message}"
        return WriteWorkload(lower, EventReason.RESIZE_EVICTED, message)
    return None


# Deployment


def _plan_deployment(view: WorkloadView, hold: Hold, now: float) -> WorkloadPlan:
    workload = view.workload
    hold, template = put_aside(hold, workload), template_of(workload)
    active = [one for one in view.replica_sets if lookup(one, "spec", "replicas", default=1) > 0]
    changes = [template_change(template_of(one), template) for one in active]
    if len(active) != 1 or changes[0] is TemplateChange.ROLLOUT:
        if not active and _are_pods_coming(view):
            return NOTHING  # an event comes with its ReplicaSet
        return _release(view, hold, _MORE if active else "it has no pods", now)
    (current,), is_updated = active, changes[0] is TemplateChange.NONE
    return _plan_replica_set(view, hold, current, now, is_updated=is_updated)


def _is_template_given(view: WorkloadView) -> bool:
    """The ReplicaSet of a Deployment has the new template already. Its controller has nothing left
    to roll out then, so that pods without their sizes are evicted before the release."""
    if not is_deployment(view.workload):
        return False
    active = [one for one in view.replica_sets if lookup(one, "spec", "replicas", default=1) > 0]
    template = template_of(view.workload)
    changes = [template_change(template_of(one), template) for one in active]
    return changes == [TemplateChange.NONE]


def _are_pods_coming(view: WorkloadView) -> bool:
    """Its controller gives a ReplicaSet that is there as many pods as the Deployment wants, also
    while it is held; or has done so, and the cache is behind."""
    if lookup(view.workload, "status", "replicas"):
        return True
    wanted = lookup(view.workload, "spec", "replicas", default=1)
    return bool(wanted and view.replica_sets)


def _plan_replica_set(
    view: WorkloadView, hold: Hold, current: Object, now: float, *, is_updated: bool
) -> WorkloadPlan:
    """``is_updated``: it has the template of the Deployment already."""
    workload, own = view.workload, template_of(current)
    template = template_of(workload)
    origin = _given_origin(workload) if is_updated else origin_of(workload, own, template)
    aim = aim_of(workload, {"": origin}, "", is_held=True)
    turns = Turns(view, aim, sorted(_controlled(view.pods, current), key=name_of), now)
    if is_updated and turns.is_finished and _is_observed(current):
        return turns.plan(_finish(turns, workload, hold))
    if not lookup(workload, *PAUSED):
        return WorkloadPlan((WriteWorkload(held(workload, hold)),))
    if not is_updated:
        return _update_replica_set(view, turns, current, hold, now)
    if turns.has(PodStanding.REVERT):
        return turns.revert(hold)
    return turns.plan(evictions=_evictions(turns, current))


def _update_replica_set(
    view: WorkloadView, turns: Turns, current: Object, hold: Hold, now: float
) -> WorkloadPlan:
    """The pods are looked at before anything is touched."""
    turns.look_ahead()
    for state in turns.states:
        if state.standing is PodStanding.RECREATE:
            why = f"{state.reason}: {state.message}: its controller rolls it out"
            return _release(view, hold, why, now)
    if turns.has(PodStanding.REVERT):
        return turns.revert(hold)
    if turns.states and all(state.standing is PodStanding.WAITS for state in turns.states):
        return turns.plan()
    template = template_of(view.workload)
    obsolete = [
        DeleteReplicaSet(one)
        for one in view.replica_sets
        if _age(one) < _age(current)
        and template_change(template_of(one), template) is TemplateChange.NONE
    ]
    label = ("metadata", "labels", TEMPLATE_HASH)
    tag = lookup(current, "spec", "template", *label)
    if tag is not None:
        template = evolve(template, label, tag)
    patched = _with_policies(evolve(current, ("spec", "template"), template), view.workload)
    return WorkloadPlan((*obsolete, SetReplicaSetTemplate(patched)))


def _with_policies(replica_set: Object, workload: Object) -> Object:
    """Its copy of the annotation may contradict the new template, which would be refused."""
    path = (*ANNOTATIONS, POLICIES)
    said = lookup(workload, *path)
    if said is None:
        return without(replica_set, path)
    return evolve(replica_set, path, said)


def _evictions(turns: Turns, current: Object) -> tuple[EvictPod, ...]:
    """One at a time: of pods that serve, none while another one of the ReplicaSet does not."""
    there = [state for state in turns.states if state.standing is not PodStanding.GONE]
    ready = sum(is_true(state.pod, ConditionType.READY) for state in there)
    is_whole = ready == len(there) >= lookup(current, "spec", "replicas", default=1)
    for place, state in enumerate(turns.states):
        serves = is_true(state.pod, ConditionType.READY)
        if state.standing is PodStanding.RECREATE and (is_whole or not serves):
            if turns.may_recreate(place):
                return (EvictPod(state.pod, f"{state.reason}: {state.message}"),)
            return ()
    return ()


def _given_origin(workload: Object) -> Origin:
    """Of pods whose ReplicaSet has the new template already: what they were made from is known from
    the sizes before the last resize, if at all."""
    former = previous_sizes(workload)
    if former is None:
        return Origin(None)
    containers = [{"name": name, "resources": sizes} for name, sizes in former.items()]
    policy = strongest_policy(workload, {"spec": {"containers": containers}})
    restarts = policy is ResizeAction.RESTART_CONTAINER
    return Origin(None, policy=policy if restarts else None)


def _controlled(pods: Sequence[Object], owner: Object) -> list[Object]:
    uid = uid_of(owner)
    return [
        pod
        for pod in pods
        if any(
            one.get("controller") and one.get("uid") == uid
            for one in lookup(pod, "metadata", "ownerReferences", default=())
        )
    ]


def _is_observed(replica_set: Object) -> bool:
    """Its controller has seen its template. The Deployment's controller sees it then, too: were it
    resumed before, it would not find the ReplicaSet, and make another one."""
    seen = lookup(replica_set, "status", "observedGeneration", default=0)
    return bool(seen >= generation_of(replica_set))


def _age(replica_set: Object) -> tuple[str, str]:
    return lookup(replica_set, "metadata", "creationTimestamp", default=""), name_of(replica_set)


# Both


def _finish(turns: Turns, workload: Object, hold: Hold) -> WriteWorkload:
    message = f"the resize is done: {len(turns.states)} pods have the sizes of the template"
    return WriteWorkload(released(workload, hold), EventReason.RESIZE_COMPLETED, message)


def _release(view: WorkloadView, hold: Hold, why: str, now: float) -> WorkloadPlan:
    """For a rollout, or because nothing is left to be held."""
    status = ResizeStatus(hold.generation, format_micro_time(now), 0, 0, [], why)
    path = (*ANNOTATIONS, RESIZE_STATUS)
    noted = evolve(released(view.workload, hold), path, format_status(status))
    return WorkloadPlan((WriteWorkload(noted, EventReason.RESIZE_RELEASED, why),))
