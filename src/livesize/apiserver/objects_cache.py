"""The watch cache: every object decoded, derived and encoded once, and fanned out to watchers.

Fed by one watch of the store. Reads are served from here; a reader that needs the newest state
first asks the store for its revision and then ``wait_for`` it. Each resource keeps a ring of
recent changes, so that a watch can begin at an earlier resourceVersion; what is older is 410.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Sequence

from livesize.api.errors import Cause, StatusError, expired
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.apiserver.events import CacheEvent, Matches
from livesize.apiserver.keys import ROOT, prefix_of, resource_of
from livesize.apiserver.records import ObjectRecord, decode_record, make_record
from livesize.apiserver.watchers import CAPACITY, Watcher
from livesize.store.interface import (
    Change,
    ChangeKind,
    CompactedError,
    Listing,
    Store,
    StoreClosedError,
)

_log = logging.getLogger(__name__)

_NOTHING: tuple[bytes, Object] = (b"", {})
RING_EVENTS = 1024  # of one kind; a change of a pod weighs about 25 KB
AHEAD_TIMEOUT_SECONDS = 3.0
EARLIER_REVISIONS = 1000  # read again at the start, so that watches go on where they were


class _ResourceCache:
    """All objects of one resource, by key, with the ring of their recent changes."""

    def __init__(self, floor: int, ring_events: int) -> None:
        self.records: dict[str, ObjectRecord] = {}
        self.ring: deque[CacheEvent] = deque(maxlen=ring_events)
        self.floor = floor  # changes up to here are no longer in the ring
        self._sorted: list[str] | None = None

    def ordered(self) -> list[ObjectRecord]:
        if self._sorted is None:
            self._sorted = sorted(self.records)
        return [self.records[key] for key in self._sorted]

    def beginning_with(self, prefix: str) -> list[ObjectRecord]:
        """Those whose keys begin so, in key order."""
        if not self.records:
            return []
        if self._sorted is None:
            self._sorted = sorted(self.records)
        first = bisect.bisect_left(self._sorted, prefix)
        keys = itertools.islice(self._sorted, first, None)
        return [
            self.records[key]
            for key in itertools.takewhile(lambda key: key.startswith(prefix), keys)
        ]

    def put(self, record: ObjectRecord) -> ObjectRecord | None:
        before = self.records.get(record.key)
        if before is None:
            self._sorted = None
        self.records[record.key] = record
        return before

    def remove(self, key: str) -> ObjectRecord | None:
        self._sorted = None
        return self.records.pop(key, None)

    def remember(self, event: CacheEvent) -> None:
        if len(self.ring) == self.ring.maxlen:
            self.floor = self.ring[0].revision
        self.ring.append(event)


class ObjectsCache:
    """``run`` feeds it until cancelled; ``loaded`` is set once the store has been read."""

    def __init__(
        self, store: Store, *, ring_events: int = RING_EVENTS, watcher_capacity: int = CAPACITY
    ) -> None:
        self.revision = 0
        self.loaded = asyncio.Event()
        self.stopped = False
        self._store = store
        self._ring_events = ring_events
        self._watcher_capacity = watcher_capacity
        self._caches = {resource: _ResourceCache(0, ring_events) for resource in REGISTRY.stored()}
        # Nodes act on what they are told, while somebody waits for that; others look on.
        self._watchers_first: dict[Resource | None, dict[Watcher, None]] = {}
        self._watchers: dict[Resource | None, dict[Watcher, None]] = {}
        self._announced: dict[str, tuple[bytes, Object]] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._complete_at = 0

    async def run(self) -> None:
        """Load, then follow. When the store has compacted away what is missing, load again."""
        try:
            while True:
                await self._load()
                await self._follow()
        finally:
            self._give_up_waiting()

    # Reading

    def get(self, resource: Resource, key: str) -> ObjectRecord | None:
        return self._caches[resource].records.get(key)

    def records(self, resource: Resource, namespace: str = "") -> list[ObjectRecord]:
        """In key order: by namespace, then name."""
        cached = self._caches[resource]
        if not namespace:
            return cached.ordered()
        return cached.beginning_with(prefix_of(resource, namespace))

    def records_at(self, resource: Resource, revision: int) -> list[ObjectRecord]:
        """As ``records`` was at an earlier revision: what has happened since is taken back."""
        cached = self._caches[resource]
        if revision < cached.floor:
            raise expired(f"too old resource version: {revision} ({cached.floor})")
        if not cached.ring or cached.ring[-1].revision <= revision:
            return cached.ordered()
        records = dict(cached.records)
        for event in reversed(cached.ring):
            if event.revision <= revision:
                break
            if event.before is None:
                del records[event.record.key]
            else:
                records[event.before.key] = event.before
        return [records[key] for key in sorted(records)]

    def watcher_count(self) -> int:
        both = (*self._watchers_first.values(), *self._watchers.values())
        return sum(len(watchers) for watchers in both)

    def object_count(self, resource: Resource) -> int:
        return len(self._caches[resource].records)

    async def fresh(self) -> None:
        """Return when everything committed before this call is in the cache."""
        revision = await self._store.revision()
        if revision > self.revision or self.stopped:
            await self.wait_for(revision)

    async def wait_for(self, revision: int) -> None:
        if self.stopped:
            raise StoreClosedError("the watch cache has stopped")
        if revision <= self.revision:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, reached))
        try:
            await reached
        except asyncio.CancelledError:
            # Who named a revision that never comes has gone; the list must not grow with them.
            self._waiting = [one for one in self._waiting if one[1] is not reached]
            raise

    async def wait_for_version(self, revision: int) -> None:
        """As ``wait_for``, for a revision a client named: 504 if it does not come soon."""
        try:
            async with asyncio.timeout(AHEAD_TIMEOUT_SECONDS):
                await self.wait_for(revision)
        except TimeoutError:
            raise StatusError(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {revision}, current: {self.revision}",
                details={"retryAfterSeconds": 1},
                causes=[Cause("ResourceVersionTooLarge", "Too large resource version")],
            ) from None

    def announce(self, key: str, value: bytes, stored: Object) -> None:
        """``value`` is about to be committed: so it need not be decoded when it comes. Of several
        for one key only one can be, so the last is kept. ``retract`` it afterwards."""
        self._announced[key] = (value, stored)

    def retract(self, key: str, value: bytes) -> None:
        if self._announced.get(key, _NOTHING)[0] is value:
            del self._announced[key]

    # Watching

    def watch(
        self,
        resource: Resource | None,
        namespace: str = "",
        matches: Matches | None = None,
        *,
        after_revision: int | None = None,
        first: bool = False,
    ) -> Watcher:
        """Changes after that revision; None: the present state as ADDED events, then changes.

        ``resource`` None watches everything, from now on only. ``first``: told before those who
        are not. End it with ``end``.
        """
        watcher = Watcher(resource, namespace, matches, capacity=self._watcher_capacity)
        if resource is not None:
            self._catch_up(watcher, self._caches[resource], namespace, after_revision)
        watchers = self._watchers_first if first else self._watchers
        watchers.setdefault(resource, {})[watcher] = None
        return watcher

    def end(self, watcher: Watcher) -> None:
        for watchers in (self._watchers_first, self._watchers):
            watchers.get(watcher.resource, {}).pop(watcher, None)
        watcher.close()

    def close_watchers(self, error: StatusError | None = None) -> None:
        for watchers in (*self._watchers_first.values(), *self._watchers.values()):
            for watcher in watchers:
                watcher.close(error)
            watchers.clear()

    def _catch_up(
        self, watcher: Watcher, cached: _ResourceCache, namespace: str, after_revision: int | None
    ) -> None:
        if after_revision is None:
            assert watcher.resource is not None
            present = self.records(watcher.resource, namespace)
            watcher.preload([record for record in present if watcher.selects(record)])
            return
        if after_revision < cached.floor:
            raise expired(f"too old resource version: {after_revision} ({cached.floor})")
        watcher.catch_up(event for event in cached.ring if event.revision > after_revision)

    # Feeding

    async def _follow(self) -> None:
        """Apply changes until the store has compacted away what comes next."""
        try:
            async for changes in self._store.watch(ROOT, after_revision=self.revision):
                self._apply(changes)
        except CompactedError:
            _log.warning("cache fell behind compaction, loading again")
        else:
            raise StoreClosedError("the store ended the watch")

    def _give_up_waiting(self) -> None:
        self.stopped = True
        for _, reached in self._waiting:
            if not reached.done():
                reached.set_exception(StoreClosedError("the watch cache has stopped"))
        self._waiting.clear()

    async def _load(self) -> None:
        listing = await self._read()
        caches = {
            resource: _ResourceCache(listing.revision, self._ring_events)
            for resource in REGISTRY.stored()
        }
        for entry in listing.entries:
            resource = resource_of(entry.key)
            if resource is not None:
                caches[resource].put(decode_record(resource, entry.value, entry.mod_revision))
        self._caches = caches
        # In the same moment: who began to watch while it was read has missed something, too.
        self.close_watchers(expired("the watch cache was loaded again; list again"))
        self._advance(listing.revision)

    async def _read(self) -> Listing:
        """At the start the state of a while ago: what has happened since comes as changes, and
        clients that watched the server before this one find them. Later only the newest."""
        if self.loaded.is_set():
            return await self._store.list(ROOT)
        self._complete_at = await self._store.revision()
        try:
            earlier = max(0, self._complete_at - EARLIER_REVISIONS)
            return await self._store.list(ROOT, revision=earlier)
        except CompactedError as gone:
            return await self._store.list(ROOT, revision=gone.compact_revision)

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            resource = resource_of(change.entry.key)
            if resource is not None:
                self._apply_one(resource, change)
        self._advance(changes[-1].revision)

    def _apply_one(self, resource: Resource, change: Change) -> None:
        cached = self._caches[resource]
        key = change.entry.key
        if change.kind is ChangeKind.DELETE:
            before, after = cached.remove(key), None
            if before is None:
                return
        else:
            after = self._record(resource, change)
            before = cached.put(after)
        event = CacheEvent(change.revision, before, after)
        cached.remember(event)
        self._tell(resource, event)

    def _record(self, resource: Resource, change: Change) -> ObjectRecord:
        value, stored = self._announced.get(change.entry.key, _NOTHING)
        if value == change.entry.value:
            before = self.get(resource, change.entry.key)
            return make_record(resource, stored, change.revision, before)
        return decode_record(resource, change.entry.value, change.revision)

    def _tell(self, resource: Resource, event: CacheEvent) -> None:
        """Who acts on what is wanted comes first, unless the news is what it said itself."""
        hasty = self._watchers_first.get(resource)
        is_urgent = bool(hasty) and event.changes_wanted
        if hasty and is_urgent:
            self._fan_out(hasty, event)
        for watchers in (self._watchers.get(resource), self._watchers.get(None)):
            if watchers:
                self._fan_out(watchers, event)
        if hasty and not is_urgent:
            self._fan_out(hasty, event)

    def _fan_out(self, watchers: dict[Watcher, None], event: CacheEvent) -> None:
        ended = []
        # The newest first: parts of this process watched before anybody came in by the network,
        # and those on the network have the longer way.
        for watcher in reversed(watchers):
            watcher.offer(event)
            if watcher.ended:
                ended.append(watcher)
        _forget(watchers, ended)

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        if self.revision >= self._complete_at:
            self.loaded.set()
        waiting, self._waiting = self._waiting, []
        for wanted, reached in waiting:
            if wanted > self.revision:
                self._waiting.append((wanted, reached))
            elif not reached.done():
                reached.set_result(None)


def _forget(watchers: dict[Watcher, None], ended: Iterable[Watcher]) -> None:
    for watcher in ended:
        watchers.pop(watcher, None)
