"""What every write needs: the newest state, what admission compares, the quotas, the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from livesize.api.apply.owners import FieldOwner
from livesize.api.errors import forbidden, not_found
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object
from livesize.api.times import format_time
from livesize.apiserver.admission.plan import AdmissionContext, AdmissionRequest, admit
from livesize.apiserver.admission.quota import CountedChange
from livesize.apiserver.admission_context import context_of
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.commit import Committer, ExtraWrite
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.quotas import QuotaLedger, QuotaLock
from livesize.apiserver.records import ObjectRecord, make_record
from livesize.apiserver.request_types import Target
from livesize.machinery.clock import Clock
from livesize.machinery.context import Ids
from livesize.store.interface import ConflictError

ATTEMPTS = 16
"""So often a write is judged anew when others come first; then the client gets 409."""


@dataclass(frozen=True)
class WriteContext:
    """What Creator, Updater and Deleter share."""

    cache: ObjectsCache
    clock: Clock
    ids: Ids
    committer: Committer
    quotas: QuotaLedger
    trusts_editors: bool = True

    def admission_context(self, access: Access) -> AdmissionContext:
        """The other objects that admission compares the change with."""
        return context_of(self.cache, access, trusts_editors=self.trusts_editors)

    async def newest(self, target: Target) -> ObjectRecord:
        """What the cache has: a stale one is found out at the commit, a missing one here."""
        key = key_of(target.resource, target.namespace, target.name)
        record = self.cache.get(target.resource, key)
        if record is None:
            await self.cache.fresh()
            record = self.cache.get(target.resource, key)
        if record is None:
            raise not_found(target.resource, target.name)
        return record

    async def charge(
        self, lock: QuotaLock, change: CountedChange, name: str
    ) -> Sequence[ExtraWrite] | None:
        """The quotas to be stored with the change; None: others came first, so look again."""
        extra = self.quotas.charge(change, name)
        return None if extra and await lock.must_look_again() else extra

    async def recounted(self, quota: ObjectRecord, old: Object | None) -> ObjectRecord:
        """A quota whose limits are new, with what was stored while it was counted; any other
        object as it is."""
        if not CountedChange(quota.resource, old, quota.stored, refusable=False).sets_limits:
            return quota
        for _ in range(ATTEMPTS):
            differing = self.quotas.recounted(quota)
            if differing is None:
                break
            newest, counted = differing
            try:
                return await self.committer.put(RESOURCE_QUOTAS, counted, newest)
            except ConflictError:
                await self.cache.fresh()
        return quota

    def timed(self, owner: FieldOwner) -> FieldOwner:
        return msgspec.structs.replace(owner, time=format_time(self.clock.now()))


def admit_or_refuse(attempt: AdmissionRequest) -> None:
    refusal = admit(attempt)
    if refusal is not None:
        access = attempt.access
        raise forbidden(access.resource, access.name, refusal.why, refusal.causes)


def dry_record(resource: Resource, new: Object, old: ObjectRecord | None) -> ObjectRecord:
    """What would have been stored; a new object has no resourceVersion yet."""
    return make_record(resource, new, old.revision if old is not None else 0)
