"""Removes events whose time is over: woken when the oldest is due, or when there are too many."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from livesize.api.kinds.event import EVENTS
from livesize.api.objects import Object, lookup
from livesize.api.times import parse_time
from livesize.apiserver.commit import Committer
from livesize.apiserver.expiry.plan import EventTerms, StoredEvent, plan_expiry
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.watchers import Watcher
from livesize.machinery.clock import Clock
from livesize.store.interface import ConflictError, StoreUnavailableError

BATCH = 100  # in one commit
ROUNDS_IN_A_LIFE = 60
"""What is due soon goes in one round: a round reads every event, and where many are said one is due
at every moment. So an event of an hour goes up to a minute late, as in Kubernetes."""


class EventExpirer:
    """``await run()`` until the cache ends its watches for good."""

    def __init__(
        self, cache: ObjectsCache, committer: Committer, clock: Clock, terms: EventTerms
    ) -> None:
        self._cache = cache
        self._committer = committer
        self._clock = clock
        self._terms = terms

    async def run(self) -> None:
        while not self._cache.stopped:
            watcher = self._cache.watch(EVENTS, after_revision=self._cache.revision)
            try:
                while not watcher.ended:
                    await self._pause(watcher, await self._expire())
            finally:
                self._cache.end(watcher)
            if watcher.error is None:
                return

    async def _expire(self) -> float:
        """Remove what is due; return in how many seconds the next look is."""
        records = {record.key: record for record in self._cache.records(EVENTS)}
        now = self._clock.now()
        living = [StoredEvent(key, said_at(one.stored, now)) for key, one in records.items()]
        expiry = plan_expiry(living, now, self._terms)
        for begin in range(0, len(expiry.keys), BATCH):
            await self._remove([records[key] for key in expiry.keys[begin : begin + BATCH]])
        due_seconds = self._terms.life_seconds if expiry.due_seconds is None else expiry.due_seconds
        return max(due_seconds, self._terms.life_seconds / ROUNDS_IN_A_LIFE)

    async def _remove(self, records: Sequence[ObjectRecord]) -> None:
        with contextlib.suppress(StoreUnavailableError):  # the next round tries again
            try:
                await self._committer.remove_all(records)
            except ConflictError:
                # One of them was said again or deleted meanwhile: the next round sees it.
                await self._cache.fresh()

    async def _pause(self, watcher: Watcher, seconds: float) -> None:
        """Until the next event is due, or there are too many."""
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(seconds))
            crowd = group.create_task(self._await_crowd(watcher))
            timer.add_done_callback(lambda _: crowd.cancel())
            crowd.add_done_callback(lambda _: timer.cancel())

    async def _await_crowd(self, watcher: Watcher) -> None:
        while self._cache.object_count(EVENTS) <= self._terms.maximum:
            if not await watcher.take(late=True):
                return  # the watch has ended


def said_at(event: Object, now: float) -> float:
    """When the event was last said. Clients write these times: what cannot be read, or lies in
    the future, does not count."""
    times = (
        event.get("lastTimestamp"),
        lookup(event, "series", "lastObservedTime"),
        event.get("eventTime"),
        lookup(event, "metadata", "creationTimestamp"),
    )
    return max((time for time in map(_seconds, times) if time <= now), default=now)


def _seconds(text: object) -> float:
    try:
        return parse_time(text) if isinstance(text, str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
