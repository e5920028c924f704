"""Deletion of objects: at once, or marked until their finalizers and their node let them go."""

from __future__ import annotations

import msgspec

from livesize.api.errors import conflict
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.objects import lookup
from livesize.api.times import format_time
from livesize.apiserver.admission.plan import Attempt
from livesize.apiserver.admission.quota import Counted
from livesize.apiserver.asked import Target
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.deletion import (
    DeleteOptions,
    Leave,
    Mark,
    Remove,
    check_preconditions,
    plan_delete,
)
from livesize.apiserver.evicting import Evicting
from livesize.apiserver.keys import key_of
from livesize.apiserver.quotas import Lane
from livesize.apiserver.records import Record
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.writing import ATTEMPTS, Ground, admit_or_refuse, dry_record
from livesize.store.interface import ConflictError


class Deleted(msgspec.Struct, frozen=True):
    """What a DELETE did: ``gone`` at once, or marked and still there."""

    record: Record
    gone: bool


class Deleting:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def delete(
        self,
        identity: Identity,
        target: Target,
        options: DeleteOptions,
        evicting: Evicting | None = None,
    ) -> Deleted:
        await self._ground.cache.fresh()
        with self._ground.books.lane(target.namespace) as lane:
            for _ in range(ATTEMPTS):
                record = await self._ground.newest(target)
                check_preconditions(target, record.stored, options)
                admit_or_refuse(Attempt(identity, target.access("delete"), record.stored, None))
                try:
                    deleted = await self._delete_once(target, record, options, lane, evicting)
                except ConflictError:
                    await self._ground.cache.fresh()
                    continue
                if deleted is not None:
                    return deleted
        raise conflict(target.resource, target.name)

    async def _delete_once(
        self,
        target: Target,
        record: Record,
        options: DeleteOptions,
        lane: Lane,
        evicting: Evicting | None,
    ) -> Deleted | None:
        """None: others came first, so look again."""
        grace_seconds = strategy_of(target.resource).grace_seconds(
            record.stored, options.grace_seconds
        )
        now = format_time(self._ground.context.clock.now())
        budgets = () if evicting is None else evicting.charge(record, now)
        deadline = format_time(self._ground.context.clock.now() + grace_seconds)
        match plan_delete(target, record.stored, grace_seconds, deadline, options.propagation):
            case Leave():
                return Deleted(record, gone=False)
            case Remove():
                if options.dry_run:
                    return Deleted(record, gone=True)
                freed = Counted(target.resource, record.stored, None, asked=False)
                beside = await self._ground.charge(lane, freed, target.name)
                if beside is None:
                    return None
                also = self._ground.books.unchanged(target.resource, target.namespace)
                removed = await self._ground.committer.remove(record, also, [*beside, *budgets])
                return Deleted(removed, gone=True)
            case Mark(stored):
                if evicting is not None:
                    stored = evicting.mark(stored, now)
                if options.dry_run:
                    return Deleted(dry_record(target.resource, stored, record), gone=False)
                written = await self._ground.committer.put(
                    target.resource, stored, record, beside=budgets
                )
                return Deleted(written, gone=False)

    async def finish_namespace(self, name: str) -> bool:
        """Remove a terminating namespace in which nothing is left; no more come (see create).
        False where somebody changed it, or its finalizers hold it: the next change tells."""
        record = self._ground.cache.get(NAMESPACES, key_of(NAMESPACES, "", name))
        if record is None or lookup(record.stored, "metadata", "finalizers", default=[]):
            return False
        try:
            await self._ground.committer.remove(record)
        except ConflictError:
            await self._ground.cache.fresh()
            return False
        return True
