"""Where the resize of a workload stands: read from the workload, its pods, and what the controller
in_place has noted on the workload. Pure.

Done means: the controller of its kind has seen the newest template, nothing holds the workload any
more, and as many pods as it wants have the template's sizes, by what their nodes report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, generation_of, lookup, name_of
from livesize.api.resize_deadline import ON_DEADLINE, OnDeadline
from livesize.api.workload_resize import fallback_of, hold_of, template_of
from livesize.api.workload_status import current_status
from livesize.api.workloads import replicas_of
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.resize.progress import (
    OVERTAKEN,
    FollowedProgress,
    ResizeDone,
    ResizeRefused,
    ResizeWaiting,
    progress_of,
    still_wanted,
)
from livesize.cli.resize.workload_plan import (
    WorkloadPatch,
    has_sizes,
    is_paused,
    own_partition,
    takes_part,
)

QUEUED = "Queued"


class PodProgress(msgspec.Struct, frozen=True):
    pod: Object
    progress: FollowedProgress

    @property
    def is_done(self) -> bool:
        return isinstance(self.progress, ResizeDone)

    @property
    def is_queued(self) -> bool:
        """It has not been asked, or for another size."""
        return isinstance(self.progress, ResizeWaiting) and self.progress.word == QUEUED


class WorkloadProgress(msgspec.Struct, frozen=True):
    """``pods``: those that the resize is about. ``wanted``: how many there are to be. ``stuck``:
    those that cannot have their size. ``waits_for``: what the workload itself waits for.
    ``overtaken``: why its template asks for other sizes."""

    pods: tuple[PodProgress, ...]
    wanted: int
    stuck: tuple[PodProgress, ...] = ()
    waits_for: str = ""
    overtaken: str = ""

    @property
    def done(self) -> int:
        return sum(one.is_done for one in self.pods)

    @property
    def is_done(self) -> bool:
        return not self.waits_for and self.done == len(self.pods) == self.wanted

    @property
    def is_at_an_end(self) -> bool:
        """Every pod has the size but those that cannot, and nothing will change that by itself."""
        left = len(self.pods) - self.done
        return bool(self.stuck) and left == len(self.stuck) and len(self.pods) == self.wanted


def workload_progress(
    workload: Object, pods: Iterable[Object], patch: WorkloadPatch
) -> WorkloadProgress:
    """``pods``: all that the workload controls."""
    template = template_of(workload)
    reasons = _noted_reasons(workload)
    found = tuple(
        PodProgress(pod, _pod_progress(pod, template, patch.sizes, reasons.get(name_of(pod))))
        for pod in sorted(pods, key=name_of)
        if not _is_leaving(pod) and takes_part(workload, pod)
    )
    return WorkloadProgress(
        pods=found,
        wanted=max(0, replicas_of(workload) - own_partition(workload)),
        stuck=tuple(one for one in found if _is_stuck(one, workload)),
        waits_for=_waits_for(workload, is_complete=all(one.is_done for one in found)),
        overtaken=_overtaken(workload, patch),
    )


def _noted_reasons(workload: Object) -> Mapping[str, ResizeWaiting]:
    status = current_status(workload)
    unfinished = [] if status is None else status.unfinished
    return {
        one.get("pod", ""): ResizeWaiting(one.get("reason", ""), one.get("message", ""))
        for one in unfinished
    }


def _is_leaving(pod: Object) -> bool:
    ended = lookup(pod, "status", "phase") in ("Succeeded", "Failed")
    return ended or lookup(pod, "metadata", "deletionTimestamp") is not None


def _pod_progress(
    pod: Object, template: Object, patches: Iterable[ResizePatch], noted: ResizeWaiting | None
) -> FollowedProgress:
    if not has_sizes(pod, template):
        return ResizeWaiting(QUEUED) if noted is None else noted
    if not lookup(pod, "spec", "nodeName"):
        condition = find_condition(pod, "PodScheduled") or {}
        return ResizeWaiting("Unscheduled", str(condition.get("message") or ""))
    for patch in patches:
        progress = progress_of(pod, generation_of(pod), patch)
        if not isinstance(progress, ResizeDone):
            return progress
    return ResizeDone()


def _is_stuck(one: PodProgress, workload: Object) -> bool:
    """Nothing will happen to it by itself: its node, or the API server, refuses the size for good,
    and it is kept; or it is recreated only when its user deletes it."""
    match one.progress:
        case ResizeRefused() | ResizeWaiting(word="Infeasible" | "Invalid"):
            return fallback_of(workload) is OnDeadline.KEEP
        case ResizeWaiting(word="AwaitsDeletion"):
            return True
        case _:
            return False


def _waits_for(workload: Object, *, is_complete: bool) -> str:
    if is_paused(workload) and not is_complete:
        return (
            f"it is paused; `kubectl rollout resume deployment/{name_of(workload)}` lets it go on"
        )
    if hold_of(workload) is not None:
        return "its rollout is held while its pods are resized"
    observed = int(lookup(workload, "status", "observedGeneration", default=0))
    return "its controller has not seen it yet" if observed < generation_of(workload) else ""


def _overtaken(workload: Object, patch: WorkloadPatch) -> str:
    template = template_of(workload)
    if all(still_wanted(template, one) for one in patch.sizes):
        return ""
    if fallback_of(workload) is OnDeadline.REVERT:
        return f"it asks for other sizes by now; {ON_DEADLINE} is Revert, its events say more"
    return OVERTAKEN
