"""Deletion of objects: at once, or marked until their finalizers and their node let them go."""

from __future__ import annotations

import msgspec

from livesize.api.errors import conflict
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.objects import lookup
from livesize.api.times import format_time
from livesize.apiserver.admission.plan import AdmissionRequest
from livesize.apiserver.admission.quota import CountedChange
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.deletion_plan import (
    DeletionOptions,
    Leave,
    Mark,
    Remove,
    check_preconditions,
    plan_delete,
)
from livesize.apiserver.eviction import EvictionGuard
from livesize.apiserver.keys import key_of
from livesize.apiserver.quotas import QuotaLock
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_types import Target
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.write_context import ATTEMPTS, WriteContext, admit_or_refuse, dry_record
from livesize.store.interface import ConflictError


class Deleted(msgspec.Struct, frozen=True):
    """What a DELETE did: ``gone`` at once, or marked and still there."""

    record: ObjectRecord
    gone: bool


class Deleter:
    def __init__(self, context: WriteContext) -> None:
        self._context = context

    async def delete(
        self,
        identity: Identity,
        target: Target,
        options: DeletionOptions,
        guard: EvictionGuard | None = None,
    ) -> Deleted:
        await self._context.cache.fresh()
        with self._context.quotas.lock(target.namespace) as lock:
            for _ in range(ATTEMPTS):
                record = await self._context.newest(target)
                check_preconditions(target, record.stored, options)
                admit_or_refuse(
                    AdmissionRequest(identity, target.access("delete"), record.stored, None)
                )
                try:
                    deleted = await self._delete_once(target, record, options, lock, guard)
                except ConflictError:
                    await self._context.cache.fresh()
                    continue
                if deleted is not None:
                    return deleted
        raise conflict(target.resource, target.name)

    async def _delete_once(
        self,
        target: Target,
        record: ObjectRecord,
        options: DeletionOptions,
        lock: QuotaLock,
        guard: EvictionGuard | None,
    ) -> Deleted | None:
        """None: others came first, so look again."""
        grace_seconds = strategy_of(target.resource).grace_seconds(
            record.stored, options.grace_seconds
        )
        now = format_time(self._context.clock.now())
        budgets = () if guard is None else guard.charge(record, now)
        deadline = format_time(self._context.clock.now() + grace_seconds)
        match plan_delete(target, record.stored, grace_seconds, deadline, options.propagation):
            case Leave():
                return Deleted(record, gone=False)
            case Remove():
                if options.dry_run:
                    return Deleted(record, gone=True)
                freed = CountedChange(target.resource, record.stored, None, refusable=False)
                extra = await self._context.charge(lock, freed, target.name)
                if extra is None:
                    return None
                also = self._context.quotas.unchanged(target.resource, target.namespace)
                removed = await self._context.committer.remove(record, also, [*extra, *budgets])
                return Deleted(removed, gone=True)
            case Mark(stored):
                if guard is not None:
                    stored = guard.mark(stored, now)
                if options.dry_run:
                    return Deleted(dry_record(target.resource, stored, record), gone=False)
                written = await self._context.committer.put(
                    target.resource, stored, record, extra=budgets
                )
                return Deleted(written, gone=False)

    async def finish_namespace(self, name: str) -> bool:
        """Remove a terminating namespace in which nothing is left; no more come (see create).
        False where somebody changed it, or its finalizers hold it: the next change tells."""
        record = self._context.cache.get(NAMESPACES, key_of(NAMESPACES, "", name))
        if record is None or lookup(record.stored, "metadata", "finalizers", default=[]):
            return False
        try:
            await self._context.committer.remove(record)
        except ConflictError:
            await self._context.cache.fresh()
            return False
        return True
