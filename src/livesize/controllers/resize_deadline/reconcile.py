"""Follows pods whose resize has a deadline, and does what the plan says when it has passed.

Reads and writes only what any Kubernetes API server serves (livesize.api.resize_progress), so that
it runs on other people's clusters too.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, ObjectKey, generation_of, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.reasons import EventReason
from livesize.api.resize_progress import (
    ContainerSizes,
    ResizeProgress,
    actual_sizes,
    desired_sizes,
    progress_of,
    report_of,
)
from livesize.api.times import format_time, parse_time
from livesize.client.informer import Delta
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Never, Result
from livesize.controllers.kit.watches import Watch
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.resize_deadline.began import (
    BEGAN,
    ResizeBegan,
    began_of,
    format_began,
    has_come_true,
    is_noted,
)
from livesize.controllers.resize_deadline.plan import (
    Evict,
    LeaveAlone,
    Revert,
    Wait,
    acting_deadline,
    plan_deadline,
)
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

_FORBIDDEN = 403
_INVALID = 422
_ROUNDED_SECONDS = 1.0
"""Times are written in whole seconds, rounded down; no resize gets less than its deadline."""
BUDGET_SECONDS = 5.0
"""So often a pod is tried again that its disruption budget does not let go."""

log = get_logger("controllers.resize_deadline")


def resize_deadline_controller(context: Context) -> Controller[ObjectKey]:
    deadlines = ResizeDeadlines(context.clock)
    return Controller(
        name="resize-deadline",
        component="resize-controller",
        watches=(Watch(PODS, deadlines.unfinished),),
        reconcile=deadlines.reconcile,
    )


class ResizeDeadlines:
    """Remembers of each pod that is being resized the sizes before, from the moment it sees the
    change. Only what has to wait is written into the pod's annotation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._former: dict[str, ContainerSizes] = {}

    def unfinished(self, delta: Delta, _read: Reader) -> Iterator[ObjectKey]:
        pod = delta.new
        if pod is None or acting_deadline(pod) is None:
            self._former.pop(uid_of(delta.object), None)
        elif delta.old is not None:
            self._remember(delta.old, pod)
        if pod is not None and (is_noted(pod) or not _is_over(pod)):
            yield namespace_of(pod), name_of(pod)

    def _remember(self, old: Object, new: Object) -> None:
        """The sizes before the first request that is unfinished."""
        former = desired_sizes(old)
        if former != desired_sizes(new) and progress_of(old) is ResizeProgress.SETTLED:
            self._former[uid_of(new)] = former

    async def reconcile(self, key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
        namespace, name = key
        pod = read.get(PODS, name, namespace)
        if pod is None:
            return Done()
        if _is_over(pod):
            if is_noted(pod):
                await _annotate(pod, None, write)
            return Done()
        began = self._began(pod)
        waited = self._clock.now() - parse_time(began.time) - _ROUNDED_SECONDS
        match plan_deadline(pod, waited, began.former):
            case LeaveAlone():
                return Done()
            case Wait(seconds=seconds):
                if began != began_of(pod):
                    await _annotate(pod, format_began(began), write)
                return Again(seconds)
            case Revert(patch=patch):
                return await _revert(pod, patch, write)
            case Evict():
                return await _evict(pod, write)

    def _began(self, pod: Object) -> ResizeBegan:
        """As the annotation says. A newer request begins now, and goes back to the sizes before
        the first one that is unfinished. Of a request that began unseen: since the node's last
        word, back to what the node reports."""
        noted, generation = began_of(pod), generation_of(pod)
        if noted is not None and noted.generation == generation:
            return noted
        now, desired = format_time(self._clock.now()), desired_sizes(pod)
        former = self._former.get(uid_of(pod))
        if former is None and noted is not None:
            # It may have come true while no controller looked.
            former = noted.desired if has_come_true(noted, pod) else noted.former
        if former is not None:
            return ResizeBegan(generation, now, former, desired)
        return ResizeBegan(generation, report_of(pod).since or now, actual_sizes(pod), desired)


def _is_over(pod: Object) -> bool:
    """Nothing is waited for: the resize is done, or its deadline was taken back."""
    return acting_deadline(pod) is None or progress_of(pod) is ResizeProgress.SETTLED


async def _annotate(pod: Object, began: str | None, write: ApiWriter) -> None:
    await write.patch(PODS, pod, {"metadata": {"annotations": {BEGAN: began}}}, any_version=True)


async def _revert(pod: Object, patch: Object, write: ApiWriter) -> Result:
    try:
        await write.patch(
            PODS,
            pod,
            patch,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
            any_version=True,
        )
    except StatusError as refusal:
        if refusal.code in (_FORBIDDEN, _INVALID):
            why = f"the resize was not done in time and cannot be taken back: {refusal.message}"
            _tell(pod, EventReason.RESIZE_NOT_REVERTED, why, write)
        if refusal.code != _INVALID:
            raise
        return Never(refusal.message)
    why = "the resize was not done in time; its former sizes are asked for again"
    _tell(pod, EventReason.RESIZE_REVERTED, why, write)
    return Done()


async def _evict(pod: Object, write: ApiWriter) -> Result:
    if not await write.evict(pod):
        return Again(BUDGET_SECONDS)
    _tell(pod, EventReason.RESIZE_EVICTED, "the resize was not done in time; the pod goes", write)
    return Done()


def _tell(pod: Object, reason: EventReason, message: str, write: ApiWriter) -> None:
    log.warning("resize not done in time", pod=name_of(pod), then=reason.value)
    write.event(PODS, pod, reason, message)
