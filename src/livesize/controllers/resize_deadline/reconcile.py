"""Follows pods whose resize has a deadline, and does what the plan says when it has passed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.reasons import EventReason
from livesize.api.resize_deadline import deadline_of
from livesize.api.resize_state import UNFINISHED, phase_of, resize_state
from livesize.api.times import parse_time
from livesize.client.informer import Delta
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch
from livesize.controllers.kit.writer import Writer
from livesize.controllers.resize_deadline.plan import Evict, Rest, Revert, Wait, plan_deadline
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

_TOO_MANY = 429
BUDGET_SECONDS = 5.0
"""So often a pod is tried again that its disruption budget does not let go."""

Key: TypeAlias = tuple[str, str]

log = get_logger("controllers.resize_deadline")


def resize_deadline_controller(context: Context) -> Controller[Key]:
    async def reconcile(key: Key, read: Reader, write: Writer) -> Result:
        return await _reconcile(key, read, write, context.clock)

    return Controller(
        name="resize-deadline",
        component="resize-controller",
        watches=(Watch(PODS, _unfinished),),
        reconcile=reconcile,
    )


def _unfinished(delta: Delta, _read: Reader) -> Iterator[Key]:
    pod = delta.new
    if pod is not None and phase_of(pod) in UNFINISHED and deadline_of(pod) is not None:
        yield namespace_of(pod), name_of(pod)


async def _reconcile(key: Key, read: Reader, write: Writer, clock: Clock) -> Result:
    namespace, name = key
    pod = read.get(PODS, name, namespace)
    if pod is None:
        return Done()
    match plan_deadline(pod, _waited(pod, clock)):
        case Rest():
            return Done()
        case Wait(seconds=seconds):
            return Again(seconds)
        case Revert(patch=patch):
            await _revert(pod, patch, write)
            return Done()
        case Evict():
            return await _evict(pod, write)


def _waited(pod: Object, clock: Clock) -> float:
    """Times are written in whole seconds, rounded down; no resize gets less than its deadline."""
    asked = resize_state(pod).get("requestedTime")
    return math.inf if not asked else clock.now() - parse_time(asked) - 1


async def _revert(pod: Object, patch: Object, write: Writer) -> None:
    why = "the resize was not done in time; its former sizes are asked for again"
    await write.patch(
        PODS,
        pod,
        patch,
        patch_type=PatchType.STRATEGIC,
        subresource="resize",
        any_version=True,
    )
    _tell(pod, EventReason.RESIZE_REVERTED, why, write)


async def _evict(pod: Object, write: Writer) -> Result:
    """As every client may: a disruption budget that protects the pod is heeded."""
    eviction = {
        "kind": "Eviction",
        "apiVersion": "policy/v1",
        "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
        "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
    }
    try:
        await write.post(PODS, pod, "eviction", eviction)
    except StatusError as refusal:
        if refusal.code == _TOO_MANY:
            return Again(BUDGET_SECONDS)
        if refusal.code != 409:  # another pod of this name
            raise
    else:
        why = "the resize was not done in time; the pod goes"
        _tell(pod, EventReason.RESIZE_EVICTED, why, write)
    return Done()


def _tell(pod: Object, reason: EventReason, message: str, write: Writer) -> None:
    log.warning("resize not done in time", pod=name_of(pod), then=reason.value)
    write.event(PODS, pod, reason, message)
