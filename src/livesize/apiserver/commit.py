"""The only place that writes to the store, but for a leader's lease (store_lease.py): one object,
checked against its last known revision, and what goes with it in the same commit.

Returns when the write is durable and the cache shows it. Crash points: apiserver/commit/before and
apiserver/commit/after.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.entries import MAX_ENTRIES, count_own_entries, may_be_many, too_many_entries
from livesize.api.errors import too_large
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, name_of, namespace_of
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord, make_record, stored_bytes
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.machinery.tasks import next_turn
from livesize.store.interface import Check, Delete, Put, Store, Write

MAX_OBJECT_BYTES = 1_500_000  # what etcd takes


class ExtraWrite(msgspec.Struct, frozen=True):
    """A further object that is stored in the same commit: in place of ``old``, which must still be
    the newest; or, where that is None, whatever was there (events, whose names are new)."""

    resource: Resource
    new: Object
    old: ObjectRecord | None = None

    @property
    def checks(self) -> Sequence[Check]:
        return () if self.old is None else (Check(self.old.key, self.old.revision),)

    def put(self) -> Put:
        value = stored_bytes(self.new)
        if len(value) > MAX_OBJECT_BYTES:
            raise too_large(MAX_OBJECT_BYTES)
        if may_be_many(value):
            self._refuse_more_entries()
        if self.old is not None:
            return Put(self.old.key, value)
        return Put(key_of(self.resource, namespace_of(self.new), name_of(self.new)), value)

    def _refuse_more_entries(self) -> None:
        """What has too many already may still be changed otherwise, and deleted."""
        before = 0 if self.old is None else count_own_entries(self.old.stored)
        if count_own_entries(self.new) > max(before, MAX_ENTRIES):
            raise too_many_entries()


class Committer:
    def __init__(
        self, store: Store, cache: ObjectsCache, points: CrashPoints = NO_CRASH_POINTS
    ) -> None:
        self._store = store
        self._cache = cache
        self._points = points

    async def put(
        self,
        resource: Resource,
        new: Object,
        old: ObjectRecord | None,
        also: Sequence[Check] = (),
        extra: Sequence[ExtraWrite] = (),
        on_the_way: Object | None = None,
    ) -> ObjectRecord:
        """Store ``new`` in place of ``old`` (None: where nothing was), and what goes with it, all
        or nothing; where there is something ``on_the_way``, that at a revision just before. Raises
        ConflictError."""
        key = old.key if old is not None else key_of(resource, namespace_of(new), name_of(new))
        checks = [Check(key, old.revision if old is not None else 0), *also]
        if extra:
            checks += [one for other in extra for one in other.checks]
        first = () if on_the_way is None else (ExtraWrite(resource, on_the_way, old).put(),)
        written = [ExtraWrite(resource, new, old), *extra]
        revision = await self._store_all(checks, written, first=first)
        record = self._cache.get(resource, key)
        if record is not None and record.revision == revision:
            return record
        return make_record(resource, new, revision)  # another write has replaced it already

    async def remove(
        self, record: ObjectRecord, also: Sequence[Check] = (), extra: Sequence[ExtraWrite] = ()
    ) -> ObjectRecord:
        """Remove it; returns the last state, at the revision of its end. Raises ConflictError."""
        checks = [Check(record.key, record.revision), *also]
        checks += [one for other in extra for one in other.checks]
        revision = await self._store_all(checks, extra, [Delete(record.key)])
        return make_record(record.resource, record.stored, revision)

    async def remove_all(self, records: Sequence[ObjectRecord]) -> None:
        """Remove several in one commit, all or none. Raises ConflictError."""
        checks = [Check(record.key, record.revision) for record in records]
        revision = await self._commit(checks, [Delete(record.key) for record in records])
        await self._cache.wait_for(revision)

    async def _store_all(
        self,
        checks: Sequence[Check],
        written: Sequence[ExtraWrite],
        deletes: Sequence[Delete] = (),
        first: Sequence[Put] = (),
    ) -> int:
        """One commit, announced to the cache; returns when the cache shows it. ``first``: what is
        committed before it, in turn."""
        puts = [one.put() for one in written]
        for put, one in zip(puts, written, strict=True):
            self._cache.announce(put.key, put.value, one.new)
        try:
            revision = await self._commit(checks, [*puts, *deletes], first)
            await self._cache.wait_for(revision)
            # Who watches has been woken, and goes before the answer: a node begins sooner, and a
            # node's report reaches others while the node is still busy with its own answer.
            await next_turn()
        finally:
            for put in puts:
                self._cache.retract(put.key, put.value)
        return revision

    async def _commit(
        self, checks: Sequence[Check], writes: Sequence[Write], first: Sequence[Put] = ()
    ) -> int:
        self._points.reach("apiserver/commit/before")
        if first:
            revision = await self._store.commit_in_turn(checks, first, writes)
        else:
            revision = await self._store.commit(checks, writes)
        self._points.reach("apiserver/commit/after")
        return revision
