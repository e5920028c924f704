"""Follows pods whose resize has a deadline, and does what the plan says when it has passed."""

from __future__ import annotations

import asyncio
import math

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.reasons import EventReason, event_type
from livesize.api.resize_deadline import deadline_of
from livesize.api.resize_state import UNFINISHED, phase_of, resize_state
from livesize.api.times import parse_time
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.resize_deadline.plan import Evict, Rest, Revert, Wait, plan_deadline
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.recorder import EventRecorder, EventSource
from livesize.machinery.telemetry import get_logger

_TOO_MANY = 429
_BUDGET_SECONDS = 5.0
"""So often a pod is tried again that its disruption budget does not let go."""

log = get_logger("controllers.resize_deadline")


class ResizeDeadlines:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._clock = context.clock
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(context)
        self._pods = Informer(client, PODS, context=context, on_change=self._observe)
        self._recorder = EventRecorder(
            event_poster(client), context=context, source=EventSource("resize-controller")
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._recorder.run())
            await self._pods.synced.wait()
            await run_workers(self._queue, self._reconcile, 1)

    def _observe(self, delta: Delta) -> None:
        pod = delta.new
        if pod is not None and phase_of(pod) in UNFINISHED and deadline_of(pod) is not None:
            self._queue.add((namespace_of(pod), name_of(pod)))

    async def _reconcile(self, key: tuple[str, str]) -> float | None:
        pod = self._pods.get(*key)
        if pod is None:
            return None
        match plan_deadline(pod, self._waited(pod)):
            case Rest():
                return None
            case Wait(seconds=seconds):
                return seconds
            case Revert(patch=patch):
                await self._revert(pod, patch)
            case Evict():
                return await self._evict(pod)
        return None

    def _waited(self, pod: Object) -> float:
        """Times are written in whole seconds, rounded down; nobody is to wait less than he said."""
        asked = resize_state(pod).get("requestedTime")
        return math.inf if not asked else self._clock.now() - parse_time(asked) - 1

    async def _revert(self, pod: Object, patch: Object) -> None:
        why = "the resize was not done in time; its former sizes are asked for again"
        with_uid = {**patch, "metadata": {"uid": uid_of(pod)}}
        try:
            await self._client.patch(
                PODS,
                name_of(pod),
                with_uid,
                namespace=namespace_of(pod),
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
            )
        except StatusError as refusal:
            if refusal.code != 404:
                raise
            return
        self._tell(pod, EventReason.RESIZE_REVERTED, why)

    async def _evict(self, pod: Object) -> float | None:
        """As anybody else may: a disruption budget that protects the pod is heeded."""
        eviction = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
        }
        try:
            await self._client.post(PODS, name_of(pod), namespace_of(pod), "eviction", eviction)
        except StatusError as refusal:
            if refusal.code == _TOO_MANY:
                return _BUDGET_SECONDS
            if refusal.code not in (404, 409):
                raise
        else:
            why = "the resize was not done in time; the pod goes"
            self._tell(pod, EventReason.RESIZE_EVICTED, why)
        return None

    def _tell(self, pod: Object, reason: EventReason, message: str) -> None:
        log.warning("resize not done in time", pod=name_of(pod), then=reason.value)
        about = {"kind": "Pod", "apiVersion": "v1", "metadata": pod["metadata"]}
        self._recorder.record(about, event_type(reason), reason.value, message)
