"""What every write needs: the newest state, the quotas, and the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from livesize.api.apply.owners import Owner
from livesize.api.errors import forbidden, not_found
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object
from livesize.api.times import format_time
from livesize.apiserver.admission.plan import Around, Attempt, admit
from livesize.apiserver.admission.quota import Counted
from livesize.apiserver.asked import Target
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.committing import Beside, Committer
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.quotas import Lane, QuotaBooks
from livesize.apiserver.records import Record, make_record
from livesize.apiserver.surroundings import around_of
from livesize.machinery.context import Context
from livesize.store.interface import ConflictError

ATTEMPTS = 16
"""So often a write is judged anew when others come first; then the client gets 409."""


@dataclass(frozen=True)
class Ground:
    """What creating, editing and deleting stand on."""

    cache: ObjectsCache
    context: Context
    committer: Committer
    books: QuotaBooks
    trusts_editors: bool = True

    def around(self, access: Access) -> Around:
        """What admission has to know beside the object itself."""
        return around_of(self.cache, access, trusts_editors=self.trusts_editors)

    async def newest(self, target: Target) -> Record:
        """What the cache has: a stale one is found out at the commit, a missing one here."""
        key = key_of(target.resource, target.namespace, target.name)
        record = self.cache.get(target.resource, key)
        if record is None:
            await self.cache.fresh()
            record = self.cache.get(target.resource, key)
        if record is None:
            raise not_found(target.resource, target.name)
        return record

    async def charge(self, lane: Lane, change: Counted, name: str) -> Sequence[Beside] | None:
        """The quotas to be stored with the change; None: others came first, so look again."""
        beside = self.books.charge(change, name)
        return None if beside and await lane.must_look_again() else beside

    async def recounted(self, quota: Record, old: Object | None) -> Record:
        """A quota whose limits are new, with what was stored while it was counted; any other
        object as it is."""
        if not Counted(quota.resource, old, quota.stored, asked=False).sets_limits:
            return quota
        for _ in range(ATTEMPTS):
            differing = self.books.recounted(quota)
            if differing is None:
                break
            newest, counted = differing
            try:
                return await self.committer.put(RESOURCE_QUOTAS, counted, newest)
            except ConflictError:
                await self.cache.fresh()
        return quota

    def timed(self, owner: Owner) -> Owner:
        return msgspec.structs.replace(owner, time=format_time(self.context.clock.now()))


def admit_or_refuse(attempt: Attempt) -> None:
    refusal = admit(attempt)
    if refusal is not None:
        access = attempt.access
        raise forbidden(access.resource, access.name, refusal.why, refusal.causes)


def dry_record(resource: Resource, new: Object, old: Record | None) -> Record:
    """What would have been stored; a new object has no resourceVersion yet."""
    return make_record(resource, new, old.revision if old is not None else 0)
