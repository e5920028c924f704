"""How one pod stands on its way to its workload's template, and what is next for it. Pure.

    QUEUED      it has not been asked, or for other sizes
    UNDER_WAY   its node applies the resize; or its containers have restarted and are not ready
    FAILED      they are not ready within the deadline: no other pod is begun
    WAITS       something keeps the resize from its end: it goes on by itself, or the user acts
    COUNTED     it has its sizes; what is left is to count it as updated
    RECREATE    it cannot be resized and may be recreated, or has to be (RestartOnly)
    REVERT      it cannot be resized, and the workload is to go back then
    GONE        it leaves or has ended: not touched
    ROLLOUT     it was made from a template that differs by more than a resize
    DONE

A resize that is deferred or in error waits until the deadline; one that is infeasible or invalid is
not waited for (decisions 16). Then ``livesize.dev/on-deadline`` of the workload decides, and
without it the action: InPlaceResize never recreates.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from livesize.api.conditions import find_condition, is_true
from livesize.api.objects import Object, generation_of, lookup, uid_of, without
from livesize.api.reasons import ConditionType
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_deadline import OnDeadline
from livesize.api.resize_policy import ResizeAction, strongest
from livesize.api.resize_progress import ReportedResize, ResizeProgress, report_of
from livesize.api.times import parse_time
from livesize.api.validation.pod import validate_pod_sizes
from livesize.api.validation.resize import validate_pod_resize
from livesize.api.workload_resize import (
    POLICIES,
    TemplateChange,
    action_of,
    asks_in_place,
    deadline_seconds,
    fallback_of,
    said_policies,
    strongest_policy,
    template_change,
    template_of,
)
from livesize.controllers.in_place.actions import AdjustPod, PodAction, ResizePod
from livesize.controllers.in_place.pod_patches import (
    TemplateSizes,
    comparable_pod,
    has_sizes,
    label_patch,
    marked,
    note_patch,
    notes_differ,
    removes_sizes,
    resized_pod,
    size_patch,
    template_sizes,
)
from livesize.controllers.in_place.view import (
    Answers,
    PatchRefusal,
    RefusalKind,
    noted_revision_of,
    revision_of,
)

RETRY_SECONDS = 30.0
"""So long after a refusal that may pass the pod is asked again."""
_ROUNDED_SECONDS = 1.0
"""Times are written in whole seconds, rounded down; no resize gets less than its deadline."""
_RESTART_ONLY = "its policy is RestartOnly for what has changed"
_RESTART_REQUESTED = "resizeAction is Restart"
ENDED = ("Failed", "Succeeded")


class PodStanding(enum.Enum):
    DONE = "done"
    COUNTED = "counted"
    QUEUED = "queued"
    UNDER_WAY = "under way"
    FAILED = "failed"
    WAITS = "waits"
    RECREATE = "recreate"
    REVERT = "revert"
    GONE = "gone"
    ROLLOUT = "rollout"


class PodState(msgspec.Struct, frozen=True):
    """``wait_seconds``: after which it stands differently by itself. ``disrupts``: containers
    restart for it. ``takes_turn``: its actions begin a resize."""

    pod: Object
    standing: PodStanding
    reason: str = ""
    message: str = ""
    wait_seconds: float | None = None
    disrupts: bool = False
    actions: tuple[PodAction, ...] = ()
    takes_turn: bool = False


class Origin(msgspec.Struct, frozen=True):
    """What the way from a pod's own template to the workload's is. ``template`` None: its own is
    not known, and the pod itself is looked at."""

    template: Object | None
    change: TemplateChange = TemplateChange.NONE
    policy: ResizeAction | None = None
    has_notes: bool = True
    removes: bool = False


_UNKNOWN = Origin(None)


class Aim(msgspec.Struct, frozen=True):
    """What all pods of a workload are to have, and what was said about the way. ``revision``: the
    one to be labelled with; empty: pods are not labelled. ``is_held``: all of them are to have the
    template's sizes, whoever has resized them."""

    workload: Object
    template: Object
    sizes: TemplateSizes
    origins: Mapping[str, Origin]
    revision: str
    is_held: bool
    is_on_delete: bool
    is_restart_requested: bool
    deadline_seconds: float
    fallback: PodStanding
    """At the deadline: WAITS (for ever), RECREATE or REVERT."""


def aim_of(workload: Object, origins: Mapping[str, Origin], revision: str, *, is_held: bool) -> Aim:
    template = template_of(workload)
    strategy = lookup(workload, "spec", "updateStrategy", "type")
    is_over = is_held and not asks_in_place(workload)
    return Aim(
        workload=workload,
        template=template,
        sizes=template_sizes(template),
        origins=origins,
        revision=revision,
        is_held=is_held,
        is_on_delete=strategy == "OnDelete",
        is_restart_requested=is_over or action_of(workload) is RequestedAction.RESTART,
        deadline_seconds=deadline_seconds(workload),
        fallback=PodStanding.RECREATE if is_over else _fallback(workload),
    )


def origin_of(workload: Object, own: Object, newest: Object) -> Origin:
    """``newest``: the workload's template as ``own`` was noted."""
    change = template_change(own, newest)
    target = template_of(workload)
    return Origin(
        own,
        change,
        strongest_policy(workload, own),
        has_notes=notes_differ(own, target),
        removes=removes_sizes(own, template_sizes(target)),
    )


class PodJudge(msgspec.Struct, frozen=True):
    """Judges the pods of one workload."""

    aim: Aim
    answers: Answers
    now: float

    def judge(self, pod: Object) -> PodState:
        """As it stands; of a pod that is QUEUED, ``begin`` says more."""
        if lookup(pod, "metadata", "deletionTimestamp") or lookup(pod, "status", "phase") in ENDED:
            return PodState(pod, PodStanding.GONE, "Leaving", "it is being deleted, or has ended")
        origin = self._origin(pod)
        if origin.change is TemplateChange.ROLLOUT and not self.aim.is_on_delete:
            return PodState(pod, PodStanding.ROLLOUT, "Rollout", "more than its sizes has changed")
        restart = self._restart(pod, origin.policy)
        if restart is not None:
            return restart
        report = report_of(pod)
        if report.progress is ResizeProgress.SETTLED:
            return self._judge_settled(pod, origin)
        if self._is_behind(pod, origin):
            return _queued(pod)
        return self._judge_unsettled(pod, origin, report)

    def begin(self, pod: Object) -> PodState:
        """What is done with a pod that is QUEUED: actions, or why there are none. Nothing is
        touched of a pod whose resize would be refused."""
        origin, before = self._origin(pod), comparable_pod(pod, self.aim.sizes)
        policy = strongest([origin.policy, strongest_policy(self.aim.workload, before)])
        restart = self._restart(pod, policy)
        if restart is not None:
            return restart
        why = self._impossible(pod, origin, before)
        if why:
            return self._give_up(pod, "Invalid", why)
        notes, sizes = self._notes(pod, origin), size_patch(pod, self.aim.sizes)
        if sizes is not None and self._is_to_be_marked(pod):
            notes = marked(notes, self.aim.revision)
        refused = self._refused(pod, notes) or self._refused(pod, sizes)
        if refused is not None:
            return refused
        actions: list[PodAction] = [] if notes is None else [AdjustPod(pod, notes)]
        if sizes is not None:
            actions.append(ResizePod(pod, sizes))
        return PodState(
            pod,
            PodStanding.UNDER_WAY,
            "InProgress",
            "its resize is requested",
            disrupts=sizes is not None and policy is ResizeAction.RESTART_CONTAINER,
            actions=tuple(actions),
            takes_turn=sizes is not None,
        )

    # What its node says

    def _judge_settled(self, pod: Object, origin: Origin) -> PodState:
        is_labelled = origin is self.aim.origins[self.aim.revision]
        is_untouched = noted_revision_of(pod) == revision_of(pod)
        if is_labelled and is_untouched and not self.aim.is_held:
            return PodState(pod, PodStanding.DONE)
        if self._is_behind(pod, origin):
            return _queued(pod)
        restarted = origin.policy is ResizeAction.RESTART_CONTAINER and _runs(pod)
        if restarted and not is_true(pod, ConditionType.READY):
            return self._judge_unready(pod)
        if is_labelled or origin.change is TemplateChange.ROLLOUT:
            return PodState(pod, PodStanding.DONE)
        label = AdjustPod(pod, label_patch(pod, self.aim.revision))
        return PodState(pod, PodStanding.COUNTED, actions=(label,))

    def _judge_unready(self, pod: Object) -> PodState:
        condition = find_condition(pod, ConditionType.READY) or {}
        left = self._seconds_left(str(condition.get("lastTransitionTime") or ""))
        message = "its containers have restarted and are not ready"
        if left > 0:
            return PodState(pod, PodStanding.UNDER_WAY, "NotReady", message, left, disrupts=True)
        return PodState(pod, PodStanding.FAILED, "NotReady", message, disrupts=True)

    def _judge_unsettled(self, pod: Object, origin: Origin, report: ReportedResize) -> PodState:
        match report.progress:
            case ResizeProgress.INFEASIBLE:
                return self._give_up(pod, "Infeasible", report.message)
            case ResizeProgress.DEFERRED | ResizeProgress.ERROR:
                reason, left = report.progress.name.capitalize(), self._seconds_left(report.since)
                if self.aim.fallback is not PodStanding.WAITS and left <= 0:
                    return self._give_up(pod, reason, report.message)
                wait = left if left > 0 else None
                return PodState(pod, PodStanding.WAITS, reason, report.message, wait)
            case ResizeProgress.UNJUDGED:
                return self._judge_silence(pod)
            case _:
                return self._judge_progress(pod, origin, report)

    def _judge_progress(self, pod: Object, origin: Origin, report: ReportedResize) -> PodState:
        """One that takes long, in a pod that does not run for instance, keeps no other waiting."""
        left, standing = self._seconds_left(report.since), PodStanding.UNDER_WAY
        disrupts = origin.policy is ResizeAction.RESTART_CONTAINER
        if left <= 0:
            standing = PodStanding.FAILED if disrupts else PodStanding.WAITS
        message = report.message or "its node applies the resize"
        return PodState(
            pod, standing, "InProgress", message, left if left > 0 else None, disrupts=disrupts
        )

    def _judge_silence(self, pod: Object) -> PodState:
        """A node that does not answer keeps no other pod waiting for longer than the deadline."""
        generation = generation_of(pod)
        about, since = self.answers.silences.get(uid_of(pod), (generation, self.now))
        waited = self.now - since if about == generation else 0.0
        left = self.aim.deadline_seconds - waited
        if left > 0:
            message = "its node has not judged the resize yet"
            return PodState(pod, PodStanding.UNDER_WAY, "NotJudged", message, left)
        return PodState(pod, PodStanding.WAITS, "NotJudged", "its node does not answer")

    # What becomes of it

    def _give_up(self, pod: Object, reason: str, message: str) -> PodState:
        if self.aim.fallback is PodStanding.RECREATE:
            return self._recreate(pod, reason, message)
        return PodState(pod, self.aim.fallback, reason, message)

    def _restart(self, pod: Object, policy: ResizeAction | None) -> PodState | None:
        """It takes another pod to change what ``policy`` is about; None where it does not."""
        if policy is not None and self.aim.is_restart_requested:
            return self._recreate(pod, "Restart", _RESTART_REQUESTED)
        if policy is ResizeAction.RESTART_POD:
            return self._recreate(pod, "RestartOnly", _RESTART_ONLY)
        return None

    def _recreate(self, pod: Object, reason: str, message: str) -> PodState:
        """Under OnDelete no pod is deleted but by the user (decisions 16)."""
        if self.aim.is_on_delete:
            how = f"{reason}: {message}; delete the pod to have it recreated with the new sizes"
            return PodState(pod, PodStanding.WAITS, "AwaitsDeletion", how)
        return PodState(pod, PodStanding.RECREATE, reason, message)

    def _refused(self, pod: Object, patch: Object | None) -> PodState | None:
        refusal = self.answers.refusals.get(uid_of(pod))
        if patch is None or refusal is None or refusal.patch != patch:
            return None
        match refusal.kind:
            case RefusalKind.CAPACITY:
                return self._give_up(pod, "Infeasible", refusal.message)
            case RefusalKind.INVALID:
                return self._give_up(pod, "Invalid", refusal.message)
            case RefusalKind.FORBIDDEN:
                return self._judge_forbidden(pod, refusal)

    def _judge_forbidden(self, pod: Object, refusal: PatchRefusal) -> PodState | None:
        """A new pod would be refused too, so that none is recreated; None: asked again now."""
        is_late = self.now - refusal.since >= self.aim.deadline_seconds
        if is_late and self.aim.fallback is PodStanding.REVERT:
            return PodState(pod, PodStanding.REVERT, "Forbidden", refusal.message)
        left = refusal.time + RETRY_SECONDS - self.now
        if left <= 0:
            return None
        return PodState(pod, PodStanding.WAITS, "Forbidden", refusal.message, left)

    def _impossible(self, pod: Object, origin: Origin, before: Object) -> str:
        """Why the resize would be refused, seen before anything is touched; or empty."""
        if self._rests_on_annotation(before):
            return (
                f"{POLICIES} says ContainerRestartOnly, and no policy of the container does:"
                " set its resizePolicy to RestartContainer"
            )
        own = None if origin.change is TemplateChange.ROLLOUT else origin.template
        known = validate_pod_sizes(pod)  # of a server that allows more than ours
        errors = validate_pod_resize(resized_pod(pod, self.aim.sizes, own), pod)
        return "; ".join(error.sentence() for error in errors if error not in known)

    def _rests_on_annotation(self, before: Object) -> bool:
        """A restart that only the annotation asks for: no node would do it."""
        if not said_policies(self.aim.workload):
            return False
        stored = self.aim.workload
        for place in (("metadata",), ("spec", "template", "metadata")):
            stored = without(stored, (*place, "annotations", POLICIES))
        own, said = strongest_policy(stored, before), strongest_policy(self.aim.workload, before)
        return said is ResizeAction.RESTART_CONTAINER and own is ResizeAction.LIVE

    # What it has

    def _origin(self, pod: Object) -> Origin:
        return self.aim.origins[revision_of(pod) if self.aim.revision else ""]

    def _is_to_be_marked(self, pod: Object) -> bool:
        """Where nothing is held, a labelled pod may have sizes that its user has given it alone."""
        return not self.aim.is_held and noted_revision_of(pod) != self.aim.revision

    def _is_behind(self, pod: Object, origin: Origin) -> bool:
        """Something of the template is still to be asked of it."""
        if origin.removes or not has_sizes(pod, self.aim.sizes):
            return True
        return self._notes(pod, origin) is not None

    def _notes(self, pod: Object, origin: Origin) -> Object | None:
        """It may have been given those of another revision than the one it is labelled with."""
        if self.aim.revision:
            origin = self.aim.origins.get(noted_revision_of(pod), _UNKNOWN)
        if not origin.has_notes:
            return None
        return note_patch(pod, self.aim.template, origin.template, self.aim.revision)

    def _seconds_left(self, since: str) -> float:
        began = parse_time(since) if since else self.now
        return began + _ROUNDED_SECONDS + self.aim.deadline_seconds - self.now


def _runs(pod: Object) -> bool:
    """What has not begun to run has not been restarted."""
    return bool(lookup(pod, "status", "phase") == "Running")


def _queued(pod: Object) -> PodState:
    return PodState(pod, PodStanding.QUEUED, "Queued", "its turn has not come")


def _fallback(workload: Object) -> PodStanding:
    match fallback_of(workload):
        case OnDeadline.KEEP:
            return PodStanding.WAITS
        case OnDeadline.REVERT:
            return PodStanding.REVERT
        case _:
            return PodStanding.RECREATE
