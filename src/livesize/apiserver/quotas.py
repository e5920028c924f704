"""Keeps the ledger of ResourceQuotas: what a change costs is stored in its own commit.

Changes that cost something are made one after the other in each namespace that has a quota, so
that they do not fight for it; another API server on the same store is noticed by compare and set.

A change that is under way while a quota comes must not be missed. Every change checks that its
namespace is as it was, and a quota with new limits writes its namespace too: what did not know of
the quota is refused by the store and made again. What was stored before the quota is counted after
it (``recounted``), when nothing can come unnoticed any more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator, Sequence
from typing import Self

from livesize.api.errors import forbidden
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.quota import is_counted, recount
from livesize.apiserver.admission.plan import AdmissionRefusal
from livesize.apiserver.admission.quota import CountedChange, plan_charge
from livesize.apiserver.commit import ExtraWrite
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord
from livesize.store.interface import Check


class QuotaLedger:
    def __init__(self, cache: ObjectsCache) -> None:
        self._cache = cache
        self._lanes: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def charge(self, change: CountedChange, name: str) -> Sequence[ExtraWrite]:
        """The quotas to be stored with the change; raises 403 where one does not bear it."""
        shown = change.new if change.new is not None else change.old
        assert shown is not None
        if not is_counted(change.resource):
            return ()
        namespace = namespace_of(shown)
        noticed = self._noticed(namespace) if change.sets_limits else ()
        quotas = self._cache.records(RESOURCE_QUOTAS, namespace)
        if not quotas:
            return noticed
        own = key_of(change.resource, namespace, name_of(shown))
        records = {record.key: record for record in quotas if record.key != own}
        match plan_charge([record.stored for record in records.values()], change):
            case AdmissionRefusal(why=why, causes=causes):
                raise forbidden(change.resource, name, why, causes)
            case charged:
                return [*noticed, *(_quota_write(quota, records) for quota in charged)]

    def unchanged(self, resource: Resource, namespace: str) -> Sequence[Check]:
        """What the commit of a change checks besides the change: that no quota has come since."""
        if not is_counted(resource):
            return ()
        record = self._cache.get(NAMESPACES, key_of(NAMESPACES, "", namespace))
        return () if record is None else (Check(record.key, record.revision),)

    def _noticed(self, namespace: str) -> Sequence[ExtraWrite]:
        """The namespace as it is, written so that changes under way notice."""
        record = self._cache.get(NAMESPACES, key_of(NAMESPACES, "", namespace))
        return () if record is None else (ExtraWrite(NAMESPACES, record.stored, record),)

    def recounted(self, quota: ObjectRecord) -> tuple[ObjectRecord, Object] | None:
        """The quota as it is stored now, and as it should be, where that is not the same."""
        newest = self._cache.get(RESOURCE_QUOTAS, quota.key)
        if newest is None:
            return None
        counted = self.counted(newest.stored)
        return None if counted == newest.stored else (newest, counted)

    def counted(self, quota: Object) -> Object:
        """A quota that is new or has a new spec, with what is used of it by now."""
        namespace = namespace_of(quota)
        own = key_of(RESOURCE_QUOTAS, namespace, name_of(quota))
        return recount(quota, [*self._others(namespace, own), (RESOURCE_QUOTAS, quota)])

    def with_usage(self, resource: Resource, old: Object | None, new: Object) -> Object:
        """``new`` with what is used of it, where it is a quota that sets limits."""
        change = CountedChange(resource, old, new, refusable=False)
        return self.counted(new) if change.sets_limits else new

    def lock(self, namespace: str) -> QuotaLock:
        return QuotaLock(self._lanes, namespace)

    def _others(self, namespace: str, own: str) -> Iterator[tuple[Resource, Object]]:
        for resource in REGISTRY.stored():
            if is_counted(resource):
                for record in self._cache.records(resource, namespace):
                    if record.key != own:
                        yield resource, record.stored


class QuotaLock:
    """The right to change what costs something in one namespace, taken when it turns out to be
    needed and given back at the end."""

    def __init__(
        self, locks: weakref.WeakValueDictionary[str, asyncio.Lock], namespace: str
    ) -> None:
        self._locks = locks
        self._namespace = namespace
        self._held: asyncio.Lock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.release()

    async def must_look_again(self) -> bool:
        """Take it. True: others had it meanwhile, so what was read may be old."""
        if self._held is not None:
            return False
        lock = self._locks.get(self._namespace)
        if lock is None:
            self._locks[self._namespace] = lock = asyncio.Lock()
        waited = lock.locked()
        await lock.acquire()
        self._held = lock
        return waited


def _quota_write(quota: Object, records: dict[str, ObjectRecord]) -> ExtraWrite:
    record = records[key_of(RESOURCE_QUOTAS, namespace_of(quota), name_of(quota))]
    return ExtraWrite(RESOURCE_QUOTAS, quota, record)
