"""Changes of objects that are there: a rule, applied to the newest state until it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from livesize.api.errors import StatusError, conflict
from livesize.api.kinds.node import NODES
from livesize.api.objects import Object, evolve, lookup
from livesize.api.plain_resize import NewSizes, resize_plainly
from livesize.api.roles import Role
from livesize.api.times import format_time
from livesize.api.write_options import FieldValidation, WriteOptions
from livesize.apiserver.admission.plan import AdmissionRequest, may_resize
from livesize.apiserver.admission.quota import CountedChange
from livesize.apiserver.auth.authorize import Access, authorize
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.commit import ExtraWrite
from livesize.apiserver.deletion_plan import is_finished
from livesize.apiserver.object_metadata import check_version
from livesize.apiserver.ownership import (
    applying_owner,
    keep_owners,
    merge_into,
    own_applied,
    own_changed,
    refuse_conflicts,
    updating_owner,
    without_owners,
)
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_body import take_object
from livesize.apiserver.request_types import Target
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.change import SentChange, SubresourceRule
from livesize.apiserver.subresources.pod_resize import ask_plainly
from livesize.apiserver.write_context import ATTEMPTS, WriteContext, admit_or_refuse, dry_record
from livesize.store.interface import ConflictError


class UpdateRequest(msgspec.Struct, frozen=True):
    """Who changes what. ``versioned``: what is sent is an object with its resourceVersion;
    ``applied``: the part of it that is applied; ``sizes``: all that it asks, if it is plain;
    ``knows_policies``: of resize, so that one it leaves out is meant to go (ADR 0074)."""

    identity: Identity
    target: Target
    options: WriteOptions
    access: Access
    versioned: bool = True
    applied: Object | None = None
    sizes: NewSizes | None = None
    knows_policies: bool = False

    @classmethod
    def of(
        cls, identity: Identity, verb: str, target: Target, options: WriteOptions, **how: Any
    ) -> UpdateRequest:
        """Authorized, or 403."""
        access = target.access(verb)
        authorize(identity, access)
        return cls(identity, target, options, access, **how)

    def owned(self, old: Object, sent: Object, new: Object, now: str) -> Object:
        """``new`` with whom its fields belong to after this edit."""
        if self.applied is not None:
            owner = applying_owner(self.target, self.options)
            timed = msgspec.structs.replace(owner, time=now)
            return own_applied(self.target, old, new, self.applied, timed)
        updating = updating_owner(self.identity, self.target, self.options)
        if updating is None or not self.versioned:
            return keep_owners(old, new)
        timed = msgspec.structs.replace(updating, time=now)
        return own_changed(self.target, old, sent, new, timed)

    def counted(self, stored: Object, new: Object) -> CountedChange:
        """The change as quotas see it. A quota refuses no report of facts."""
        refusable = (
            self.target.subresource in ("", "resize") and self.identity.role is not Role.NODE
        )
        left = None if is_finished(self.target, new) else new
        return CountedChange(self.target.resource, stored, left, refusable)


class CurrentObject(msgspec.Struct, frozen=True):
    """The newest state, and both of its forms as rules see them: without owners."""

    record: ObjectRecord
    stored: Object
    served: Object

    @classmethod
    def of(cls, record: ObjectRecord) -> CurrentObject:
        return cls(record, without_owners(record.stored), without_owners(record.served))


class Updater:
    def __init__(self, context: WriteContext) -> None:
        self._context = context

    async def modify(
        self,
        edit: UpdateRequest,
        rule: SubresourceRule,
        incoming: Callable[[CurrentObject], Object],
        events: Sequence[ExtraWrite] = (),
    ) -> ObjectRecord:
        """Apply the rule to the newest state until it is committed; a client that named a
        resourceVersion gets 409 as soon as that is not the newest."""
        target = edit.target
        await self._context.cache.fresh()  # another server may have written what the client saw
        with self._context.quotas.lock(target.namespace) as lock:
            for _ in range(ATTEMPTS):
                record = await self._context.newest(target)
                new = self._resized(edit, record.stored)
                if new is None:
                    seen = CurrentObject.of(record)
                    new = self._next(edit, rule, seen, incoming(seen))
                node = await self._node_to_ask(edit.access, record.stored)
                context = self._context.admission_context(edit.access)
                admit_or_refuse(
                    AdmissionRequest(edit.identity, edit.access, record.stored, new, node, context)
                )
                if new == record.stored and not events:
                    return record
                extra = await self._context.charge(
                    lock, edit.counted(record.stored, new), target.name
                )
                if extra is None:
                    continue
                if edit.options.dry_run:
                    return dry_record(target.resource, new, record)
                try:
                    return await self._settle(target, new, record, [*extra, *events])
                except ConflictError:
                    await self._context.cache.fresh()
        raise conflict(target.resource, target.name)

    def _resized(self, edit: UpdateRequest, stored: Object) -> Object | None:
        """What a plain resize makes of the newest state; None where this is not one."""
        resized = None if edit.sizes is None else resize_plainly(stored, edit.sizes)
        if resized is None or not resized.changed:
            return None if resized is None else stored
        now = format_time(self._context.clock.now())
        new = ask_plainly(stored, resized, requested_by=edit.identity.name, now=now)
        return edit.owned(stored, stored, new, now)

    def _next(
        self, edit: UpdateRequest, rule: SubresourceRule, seen: CurrentObject, sent: Object
    ) -> Object:
        """What the rule makes of the newest state and what was sent."""
        target, record = edit.target, seen.record
        if edit.versioned:
            check_version(target, record.stored, sent)
        now = format_time(self._context.clock.now())
        knows = edit.knows_policies
        new = rule(SentChange(edit.identity, target, seen.stored, seen.served, sent, now, knows))
        new = edit.owned(record.stored, sent, new, now)
        return self._context.quotas.with_usage(target.resource, record.stored, new)

    async def _node_to_ask(self, access: Access, old: Object) -> Object | None:
        """The node a resize would concern, for admission; None where there is none."""
        bound_to = may_resize(access) and old["spec"].get("nodeName")
        if not bound_to:
            return None
        try:
            return (await self._context.newest(Target(NODES, "", bound_to))).stored
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _settle(
        self, target: Target, new: Object, record: ObjectRecord, extra: Sequence[ExtraWrite]
    ) -> ObjectRecord:
        also = self._context.quotas.unchanged(target.resource, target.namespace)
        strategy = strategy_of(target.resource)
        new = strategy.remembered(record.stored, new)
        if is_finished(target, new):
            return await self._context.committer.remove(record, also, extra)
        made = await self._context.committer.put(
            target.resource,
            new,
            record,
            also,
            extra,
            strategy.passed(target.subresource, record.stored, new),
        )
        return await self._context.recounted(made, record.stored)


def merge_applied_part(edit: UpdateRequest, seen: CurrentObject) -> Object:
    """The object with the applied part; raises 409 where others own what it changes."""
    target, part, record = edit.target, edit.applied, seen.record
    assert part is not None
    owner = applying_owner(target, edit.options)
    merged = merge_into(target, record.stored, seen.served, part, owner)
    options = msgspec.structs.replace(edit.options, field_validation=FieldValidation.IGNORE)
    taken = take_object(target.resource, merged.object, options, patch=part)
    if not edit.options.force:
        refuse_conflicts(target, record.stored, taken, owner)
    sent_version = lookup(part, "metadata", "resourceVersion", default="")
    return evolve(taken, ("metadata", "resourceVersion"), sent_version)
