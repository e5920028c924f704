"""Runs controllers: events become keys, keys are reconciled, results decide what comes next.

    cache ──change──► inbox ──keys(delta, read)──► queue ──► reconcile(key, read, write) ─► Result
                                                     ▲                                        │
                                                     └── Again, conflict, failure: later ◄────┘

Each controller has an inbox of its own and takes from it a few changes at a time: one with much to
map does not hold the others, and a bug in its mapping costs only that one event. A key waits for
its turn until everything that the controller watches was listed, and until the caches show what was
written for it before (livesize.controllers.kit.expectations).

What ends a reconcile, once for all controllers:

    Done                              nothing more
    Again(seconds)                    the key comes again
    Never(reason)                     logged; an event may bring the key again
    404: the object has gone          nothing more; the watch tells
    409: it has changed meanwhile     the key comes again soon
    any other refusal, no connection  logged; the key comes again, later each time
    any other exception               a bug: logged with its traceback; the same
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta
from livesize.client.interface import Client
from livesize.controllers.kit.caches import Caches
from livesize.controllers.kit.expectations import Expectations
from livesize.controllers.kit.metrics import ControllerMetrics, CountedQueue, KitMetrics
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Never, Result
from livesize.controllers.kit.watches import After, Watch
from livesize.controllers.kit.writer import ApiWriter, WriteLog
from livesize.machinery.context import Context
from livesize.machinery.queue import LaterError, run_workers
from livesize.machinery.recorder import EventRecorder, ReportingComponent
from livesize.machinery.tasks import next_turn
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers")

CONFLICT_SECONDS = 0.05
CHANGES_AT_ONCE = 100
"""So many changes a controller maps to keys before it gives way to others."""

Key = TypeVar("Key", bound=Hashable)


class Controller(msgspec.Struct, Generic[Key], frozen=True, kw_only=True):
    """One controller, as data. ``component``: whose events they are; ``workers``: how many keys
    are reconciled at once."""

    name: str
    component: str
    watches: tuple[Watch, ...]
    reconcile: Callable[[Key, Reader, ApiWriter], Awaitable[Result]]
    workers: int = 1
    conflict_seconds: float = CONFLICT_SECONDS


async def run_controllers(
    controllers: Iterable[Controller[Any]], client: Client, context: Context, metrics: KitMetrics
) -> None:
    """Run them all on one set of caches, until cancelled."""
    caches = Caches(client, context)
    async with asyncio.TaskGroup() as group:
        group.create_task(caches.run())
        for controller in controllers:
            loop = ControllerLoop(controller, caches, client, context, metrics.of(controller.name))
            group.create_task(loop.run())


class ControllerInbox:
    """Changes on their way to one controller, in the order in which they arrived."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._wake = asyncio.Event()

    def put(self, take: Callable[[], None]) -> None:
        self._waiting.append(take)
        self._wake.set()

    async def run(self) -> None:
        while True:
            for _ in range(min(CHANGES_AT_ONCE, len(self._waiting))):
                self._waiting.popleft()()
            if self._waiting:
                await next_turn()
            else:
                self._wake.clear()
                await self._wake.wait()


class ControllerLoop(Generic[Key]):
    """One controller at work: ``await run()`` until cancelled."""

    def __init__(
        self,
        controller: Controller[Key],
        caches: Caches,
        client: Client,
        context: Context,
        metrics: ControllerMetrics,
    ) -> None:
        self._controller = controller
        self._caches = caches
        self._clock = context.clock
        self._metrics = metrics
        self._log = log.bind(controller=controller.name)
        self._queue: CountedQueue[Key] = CountedQueue(context, metrics)
        self._inbox = ControllerInbox()
        self._ready = {watch: asyncio.Event() for watch in controller.watches}
        self._expectations: Expectations[Key] = Expectations(context.clock, self._queue.add)
        self._recorder = EventRecorder(
            event_poster(client), context=context, source=ReportingComponent(controller.component)
        )
        watched = [watch.resource for watch in controller.watches]
        self._read = Reader(caches, client, watched)
        self._writes = WriteLog(
            client, caches, watched, self._expectations, self._recorder, self._queue.add
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inbox.run())
            group.create_task(self._recorder.run())
            for watch in self._controller.watches:
                group.create_task(self._follow(watch))
            await run_workers(self._queue, self._work, self._controller.workers)

    # Observe

    async def _follow(self, watch: Watch) -> None:
        if watch.once_there_is is not None:
            await self._caches.of(watch.once_there_is).has_objects.wait()
        cache = self._caches.start(watch.resource)

        def follower(delta: Delta) -> None:
            self._inbox.put(lambda: self._take(watch, delta))

        cache.follow(follower)
        try:
            await cache.synced.wait()
            self._inbox.put(self._ready[watch].set)
            await asyncio.Event().wait()
        finally:
            cache.unfollow(follower)

    def _take(self, watch: Watch, delta: Delta) -> None:
        self._expectations.observe(watch.resource, delta)
        try:
            for key in watch.keys(delta, self._read):
                if isinstance(key, After):
                    self._queue.add_after(key.key, key.seconds)
                else:
                    self._queue.add(key)
        except Exception:  # noqa: BLE001 - the controller outlives a bug in its mapping
            self._metrics.failed_events += 1
            self._log.exception("event not mapped to keys", kind=watch.resource.kind)

    async def _listed(self) -> None:
        """Return when all that is watched by now was listed."""
        for watch, ready in self._ready.items():
            other = watch.once_there_is
            if other is None or self._caches.of(other).has_objects.is_set():
                await ready.wait()

    # Reconcile

    async def _work(self, key: Key) -> float | None:
        await self._listed()
        held_seconds = self._expectations.seconds_held(key)
        if held_seconds > 0:
            return held_seconds
        began = self._clock.monotonic()
        try:
            result = await self._reconcile(key)
        except Exception:
            self._metrics.results["error"] += 1
            self._metrics.retries += 1
            raise
        finally:
            self._metrics.worked.add(self._clock.monotonic() - began)
        self._metrics.results[type(result).__name__.lower()] += 1
        match result:
            case Done():
                return None
            case Again(after_seconds=seconds):
                return seconds
            case Never(reason=reason):
                self._log.warning("given up", key=key, reason=reason)
                return None

    async def _reconcile(self, key: Key) -> Result:
        try:
            return await self._controller.reconcile(key, self._read, ApiWriter(self._writes, key))
        except StatusError as refusal:
            if refusal.code == 404:
                return Done()
            if refusal.code == 409:
                self._metrics.retries += 1
                return Again(self._controller.conflict_seconds)
            raise LaterError(refusal.message) from refusal
        except ConnectionError as failure:
            raise LaterError(str(failure)) from failure
