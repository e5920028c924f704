"""One watcher's bounded queue between the cache and whoever reads the watch.

A watcher that does not keep up is dropped with 410, so that nobody else pays for it; it may
list and watch again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from livesize.api.errors import StatusError, expired
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import INITIAL_EVENTS_END, WatchEventType
from livesize.api.objects import Object
from livesize.apiserver.events import CacheEvent, Matches, event_line
from livesize.apiserver.records import ObjectRecord, encode
from livesize.machinery.tasks import next_turn

CAPACITY = 4096


class WatchDelivery(msgspec.Struct, frozen=True):
    """One event for one watcher: a change, an object of the initial state, or a bookmark."""

    type: WatchEventType
    revision: int
    event: CacheEvent | None = None
    record: ObjectRecord | None = None
    bookmark: Object | None = None

    def shown(self) -> ObjectRecord | None:
        """The object told about; None for a bookmark."""
        return self.event.shown(self.type) if self.event is not None else self.record

    def line(self) -> bytes:
        if self.event is not None:
            return self.event.line(self.type)
        encoded = self.record.encoded if self.record is not None else encode(self.bookmark)
        return event_line(self.type, encoded)


class Watcher:
    """Filled by the cache, emptied by one reader."""

    def __init__(
        self,
        resource: Resource | None,
        namespace: str,
        matches: Matches | None,
        *,
        capacity: int = CAPACITY,
    ) -> None:
        self.resource = resource
        self.error: StatusError | None = None
        self.ended = False
        self.dropped = asyncio.Event()
        self._namespace = namespace
        self._matches = matches
        self._capacity = capacity
        self._queue: deque[WatchDelivery] = deque()
        self._wake = asyncio.Event()

    def selects(self, record: ObjectRecord) -> bool:
        if self._namespace and record.namespace != self._namespace:
            return False
        return self._matches is None or self._matches(record)

    def offer(self, event: CacheEvent) -> None:
        """Take the event if it concerns this watcher; drop the watcher if it is full."""
        if self.ended or (self._namespace and event.record.namespace != self._namespace):
            return
        kind = event.type if self._matches is None else event.type_for(self.selects)
        if kind is not None:
            self._put(WatchDelivery(kind, event.revision, event=event))

    def catch_up(self, events: Iterable[CacheEvent]) -> None:
        """What happened before the watch began; does not count against the capacity."""
        capacity = self._capacity
        for event in events:
            self._capacity += 1
            self.offer(event)
        self._capacity = capacity + len(self._queue)

    def preload(self, records: list[ObjectRecord]) -> None:
        """The state at the beginning, as ADDED events; does not count against the capacity."""
        for record in records:
            self._queue.append(WatchDelivery(WatchEventType.ADDED, record.revision, record=record))
        self._capacity += len(records)
        self._wake.set()

    def bookmark(self, revision: int, *, initial_end: bool = False) -> None:
        assert self.resource is not None
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        body = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        self._put(WatchDelivery(WatchEventType.BOOKMARK, revision, bookmark=body))

    def close(self, error: StatusError | None = None) -> None:
        """No more events; what is queued is still delivered."""
        if self.ended:
            return
        self.ended = True
        self.error = error
        self._wake.set()

    async def take(self, *, late: bool = False) -> list[WatchDelivery]:
        """All that has come since, at least one; an empty list is the end. ``late``: after those
        on the network, and after the answer to whoever made the change."""
        while not self._queue and not self.ended:
            self._wake.clear()
            await self._wake.wait()
            if late:
                await next_turn()
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def _put(self, delivery: WatchDelivery) -> None:
        if len(self._queue) >= self._capacity:
            self._queue.clear()
            self.close(expired("the watch did not keep up with the changes; list again"))
            self.dropped.set()
            return
        self._queue.append(delivery)
        self._wake.set()
