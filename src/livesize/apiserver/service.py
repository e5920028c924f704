"""The door below HTTP: every read and write of an object by somebody, with all its checks.

A write goes: authorize → take in → default → validate → admit → commit. Reads come from the watch
cache, brought up to the store's revision first. A write returns when it is durable and in the
cache, so whoever wrote can read it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from livesize.api.apply.owners import Owner
from livesize.api.defaults import default_object
from livesize.api.dialects import check_derived, derive_dialects, strip_dialects
from livesize.api.errors import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    method_not_allowed,
    not_found,
)
from livesize.api.kinds import EVENTS, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, Resource
from livesize.api.objects import Object, evolve, lookup, name_of, without
from livesize.api.resize_state import bind_allocated, is_bound
from livesize.api.validation import validate_create
from livesize.apiserver.admission.filling import fill_pod
from livesize.apiserver.admission.plan import Attempt, Refusal, admit, asks_for_resize
from livesize.apiserver.admission.quota import Counted
from livesize.apiserver.asked import (
    PLAIN_WRITE,
    FieldValidation,
    ListOptions,
    Target,
    WatchOptions,
    WriteOptions,
)
from livesize.apiserver.auth.authorize import Access, allows, authorize, refusal
from livesize.apiserver.auth.identities import Identity, Role
from livesize.apiserver.auth.node_reads import NodeRead, forbids_reading, selected_name
from livesize.apiserver.committing import Beside, Committer
from livesize.apiserver.deletion import (
    DeleteOptions,
    Leave,
    Mark,
    Remove,
    check_preconditions,
    grace_seconds_of,
    is_finished,
    plan_delete,
)
from livesize.apiserver.ids import Ids
from livesize.apiserver.intake import apply_patch, take_in, take_part
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.ownership import (
    applying_owner,
    keep_owners,
    merge_into,
    names_owners,
    own_applied,
    own_changed,
    own_created,
    refuse_conflicts,
    updating_owner,
    without_owners,
)
from livesize.apiserver.preparing import check_version, prepare_create
from livesize.apiserver.quotas import Lane, QuotaBooks
from livesize.apiserver.reading import Page, open_watch, read_page
from livesize.apiserver.records import Record, make_record
from livesize.apiserver.subresources.change import (
    Rule,
    SentChange,
    refuse_invalid,
)
from livesize.apiserver.subresources.rules import POSTED_KINDS, change_rule, post_rule
from livesize.apiserver.subresources.told import told_errors
from livesize.apiserver.surroundings import around_of
from livesize.apiserver.watchers import Watcher
from livesize.client.interface import PatchType
from livesize.machinery.clock import Clock, format_time
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.store.interface import Check, ConflictError, Store

ATTEMPTS = 16
_READABLE = frozenset({"", "resize", "status"})


class Deleted(msgspec.Struct, frozen=True):
    """What a DELETE did: ``gone`` at once, or marked and still there."""

    record: Record
    gone: bool


class Applied(msgspec.Struct, frozen=True):
    record: Record
    created: bool


class _Edit(msgspec.Struct, frozen=True):
    """Who changes what. ``versioned``: what is sent is an object with its resourceVersion;
    ``applied``: the part of it that is applied."""

    identity: Identity
    target: Target
    options: WriteOptions
    access: Access
    versioned: bool = True
    applied: Object | None = None

    @classmethod
    def of(
        cls, identity: Identity, verb: str, target: Target, options: WriteOptions, **how: Any
    ) -> _Edit:
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

    def counted(self, stored: Object, new: Object) -> Counted:
        """The change as quotas see it. Who reports facts is not asked whether they may be."""
        asked = self.target.subresource in ("", "resize") and self.identity.role is not Role.NODE
        left = None if is_finished(self.target, new) else new
        return Counted(self.target.resource, stored, left, asked)


class _Seen(msgspec.Struct, frozen=True):
    """The newest state, and both of its forms as rules see them: without owners."""

    record: Record
    stored: Object
    served: Object

    @classmethod
    def of(cls, record: Record) -> _Seen:
        return cls(record, without_owners(record.stored), without_owners(record.served))


class Service:
    def __init__(
        self,
        store: Store,
        cache: ObjectsCache,
        clock: Clock,
        ids: Ids,
        points: CrashPoints = NO_CRASH_POINTS,
    ) -> None:
        self.cache = cache
        self._clock = clock
        self._ids = ids
        self._committer = Committer(store, cache, points)
        self._books = QuotaBooks(cache)

    # Reading

    async def get(self, identity: Identity, target: Target, *, any_age: bool = False) -> Record:
        await self._authorize_read(identity, target.access("get"))
        if target.subresource not in _READABLE:
            raise method_not_allowed()
        if not any_age:
            await self.cache.fresh()
        return await self._newest(target)

    async def list(self, identity: Identity, resource: Resource, options: ListOptions) -> Page:
        name = selected_name(options.fields)
        await self._authorize_read(
            identity, Access("list", resource, namespace=options.namespace, name=name)
        )
        return await read_page(self.cache, resource, options)

    async def watch(self, identity: Identity, resource: Resource, options: WatchOptions) -> Watcher:
        """The caller ends it with ``service.cache.end(watcher)``."""
        name = selected_name(options.fields)
        await self._authorize_read(
            identity, Access("watch", resource, namespace=options.namespace, name=name)
        )
        return await open_watch(self.cache, resource, options, is_node=identity.role is Role.NODE)

    async def allows(self, identity: Identity, access: Access) -> bool:
        """Whether a request like this would be authorized; for access reviews."""
        return allows(identity, access) and not await self._unrelated(identity, access)

    async def _authorize_read(self, identity: Identity, access: Access) -> None:
        authorize(identity, access)
        if identity.node:
            why = await self._unrelated(identity, access)
            if why:
                raise refusal(identity, access, why)

    async def _unrelated(self, identity: Identity, access: Access) -> str:
        """Why a node may not read this Secret or ConfigMap; empty where it may."""
        read = NodeRead(identity.node, access)
        if not read.is_limited:
            return ""
        why = forbids_reading(read, (one.stored for one in self.cache.records(PODS)))
        if why:  # the pod may have been bound a moment ago
            await self.cache.fresh()
            why = forbids_reading(read, (one.stored for one in self.cache.records(PODS)))
        return why

    # Writing

    async def create(
        self,
        identity: Identity,
        resource: Resource,
        namespace: str,
        obj: Any,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Record:
        given_name = lookup(obj, "metadata", "name", default="")
        authorize(identity, Access("create", resource, "", namespace, str(given_name)))
        if resource.namespaced and not namespace:
            raise bad_request("an empty namespace may not be set during creation")
        obj = take_in(obj, kind=resource.kind, api_version=resource.api_version, options=options)
        if resource == PODS:
            await self.cache.fresh()  # what admission gives the pod comes from there
        new = self._begin(resource, namespace, obj)
        target = Target(resource, namespace, name_of(new))
        owner = updating_owner(identity, target, options)
        if owner is not None:
            new = own_created(target, new, self._timed(owner))
        return await self._insert(identity, target, new, options)

    async def _insert(
        self, identity: Identity, target: Target, new: Object, options: WriteOptions
    ) -> Record:
        """Store a new object, if nothing of its name is there."""
        resource, namespace = target.resource, target.namespace
        access = target.access("create")
        with self._books.lane(namespace) as lane:
            for _ in range(ATTEMPTS):
                made = await self._create_once(identity, access, new, options, lane)
                if made is not None:
                    return made
        raise conflict(resource, name_of(new))

    async def update(
        self, identity: Identity, target: Target, obj: Any, options: WriteOptions = PLAIN_WRITE
    ) -> Record:
        edit = _Edit.of(identity, "update", target, options)
        rule = change_rule(target.resource, target.subresource)
        taken = _take(target, obj, options)
        return await self._modify(edit, rule, lambda _: taken)

    async def patch(
        self,
        identity: Identity,
        target: Target,
        patch: Any,
        patch_type: PatchType,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Record:
        edit = _Edit.of(identity, "patch", target, options)
        rule = change_rule(target.resource, target.subresource)
        with_owners = names_owners(patch)

        def incoming(seen: _Seen) -> Object:
            served = seen.record.served if with_owners else seen.served
            made = apply_patch(target.resource, served, patch, patch_type)
            return _take(target, made, options, patch=patch, patched=served)

        return await self._modify(edit, rule, incoming)

    async def apply(
        self, identity: Identity, target: Target, part: Any, options: WriteOptions
    ) -> Applied:
        """Make the object say what ``part`` says, and whatever of it others have said; create it
        where it is not there."""
        part = take_part(target, part, options)
        edit = _Edit.of(identity, "patch", target, options, applied=part)
        rule = change_rule(target.resource, target.subresource)
        for _ in range(ATTEMPTS):
            try:
                record = await self._modify(edit, rule, lambda now: _merged(edit, now))
                return Applied(record, created=False)
            except StatusError as error:
                if error.code != 404 or target.subresource or error.reason != "NotFound":
                    raise
            try:
                return Applied(await self._create_applied(edit), created=True)
            except StatusError as error:
                if error.reason != "AlreadyExists" or options.dry_run:
                    raise
        raise conflict(target.resource, target.name)

    async def _create_applied(self, edit: _Edit) -> Record:
        target, part = edit.target, edit.applied
        assert part is not None
        authorize(edit.identity, target.access("create"))
        if lookup(part, "metadata", "uid"):
            raise conflict(target.resource, target.name, "uid mismatch: the object is not there")
        named = evolve(part, ("metadata", "name"), target.name)
        new = self._begin(target.resource, target.namespace, named)
        new = own_created(target, new, self._timed(applying_owner(target, edit.options)), part)
        return await self._insert(edit.identity, target, new, edit.options)

    async def post(
        self, identity: Identity, target: Target, body: Any, options: WriteOptions = PLAIN_WRITE
    ) -> Record:
        """POST to a subresource: binding, resizing."""
        edit = _Edit.of(identity, "create", target, options, versioned=False)
        rule = post_rule(target.resource, target.subresource)
        kind = POSTED_KINDS[target.resource, target.subresource]
        api_version = target.resource.api_version
        taken = take_in(body, kind=kind, api_version=api_version, options=options)
        events = self._events_told(identity, target, taken)
        return await self._modify(edit, rule, lambda _: taken, events)

    async def delete(self, identity: Identity, target: Target, options: DeleteOptions) -> Deleted:
        authorize(identity, target.access("delete"))
        if target.subresource:
            raise method_not_allowed()
        return await self._delete(identity, target, options)

    async def delete_collection(
        self, identity: Identity, resource: Resource, selection: ListOptions, options: DeleteOptions
    ) -> Sequence[Deleted]:
        access = Access("deletecollection", resource, namespace=selection.namespace)
        authorize(identity, access)
        page = await read_page(self.cache, resource, selection)
        deleted = []
        for record in page.records:
            target = Target(resource, record.namespace, record.name)
            this_one = msgspec.structs.replace(options, uid=record.stored["metadata"]["uid"])
            try:
                deleted.append(await self._delete(identity, target, this_one))
            except StatusError as error:
                if error.code not in (404, 409):  # gone, or another one of that name by now
                    raise
        return deleted

    async def finish_namespace(self, name: str) -> bool:
        """Remove a terminating namespace in which nothing is left; no more come (see create).
        False where somebody changed it, or its finalizers hold it: the next change tells."""
        record = self.cache.get(NAMESPACES, key_of(NAMESPACES, "", name))
        if record is None or lookup(record.stored, "metadata", "finalizers", default=[]):
            return False
        try:
            await self._committer.remove(record)
        except ConflictError:
            await self.cache.fresh()
            return False
        return True

    # The steps

    async def _newest(self, target: Target) -> Record:
        """What the cache has: a stale one is found out at the commit, a missing one here."""
        key = key_of(target.resource, target.namespace, target.name)
        record = self.cache.get(target.resource, key)
        if record is None:
            await self.cache.fresh()
            record = self.cache.get(target.resource, key)
        if record is None:
            raise not_found(target.resource, target.name)
        return record

    def _timed(self, owner: Owner) -> Owner:
        return msgspec.structs.replace(owner, time=format_time(self._clock.now()))

    def _begin(self, resource: Resource, namespace: str, obj: Object) -> Object:
        """The new object, defaulted and valid."""
        new = prepare_create(
            resource,
            namespace,
            obj,
            uid=self._ids.uid(),
            now=format_time(self._clock.now()),
            suffix="" if name_of(obj) else self._ids.suffix(),
        )
        sent, new = new, default_object(resource, strip_dialects(new))
        if resource == PODS:
            new = self._filled(namespace, new)
        target = Target(resource, namespace, name_of(new))
        refuse_invalid(target, validate_create(resource, new))
        if resource == PODS:
            # Status and resizeRequest of a copied manifest are dropped, not judged.
            sent = without(sent, ("spec", "resizeRequest"))
            refuse_invalid(target, check_derived(sent, derive_dialects(new), from_own_node=False))
            new = bind_allocated(new) if is_bound(new) else new
        return new

    def _filled(self, namespace: str, pod: Object) -> Object:
        """The pod with what admission gives it before it is validated."""
        access = Access("create", PODS, "", namespace, name_of(pod))
        filled = fill_pod(pod, around_of(self.cache, access))
        if isinstance(filled, Refusal):
            raise forbidden(PODS, access.name, filled.why, filled.causes)
        return pod if filled is pod else default_object(PODS, filled)

    async def _create_once(
        self,
        identity: Identity,
        access: Access,
        new: Object,
        options: WriteOptions,
        lane: Lane,
    ) -> Record | None:
        """None: somebody else was faster with something this depends on."""
        resource, namespace, name = access.resource, access.namespace, access.name
        checks = await self._namespace_check(resource, namespace, new)
        _admit(Attempt(identity, access, None, new, around=around_of(self.cache, access)))
        if self.cache.get(resource, key_of(resource, namespace, name)) is not None:
            raise already_exists(resource, name)
        if resource == RESOURCE_QUOTAS:
            new = self._books.counted(new)
        beside = await self._charge(lane, Counted(resource, None, new, asked=True), name)
        if beside is None:
            return None
        if options.dry_run:
            return _dry(resource, new, None)
        try:
            made = await self._committer.put(resource, new, None, checks, beside)
        except ConflictError as error:
            if error.key == key_of(resource, namespace, name):
                raise already_exists(resource, name) from None
            return None
        return await self._recounted(made) if resource == RESOURCE_QUOTAS else made

    async def _charge(self, lane: Lane, change: Counted, name: str) -> Sequence[Beside] | None:
        """The quotas to be stored with the change; None: others came first, so look again."""
        beside = self._books.charge(change, name)
        return None if beside and await lane.must_look_again() else beside

    async def _namespace_check(
        self, resource: Resource, namespace: str, new: Object
    ) -> Sequence[Check]:
        """The namespace is there and stays so until the commit."""
        await self.cache.fresh()  # what was there may be gone, through another server
        if not resource.namespaced:
            return []
        record = self.cache.get(NAMESPACES, key_of(NAMESPACES, "", namespace))
        if record is None:
            raise not_found(NAMESPACES, namespace)
        if lookup(record.stored, "metadata", "deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace}"
                " because it is being terminated"
            )
            message = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            raise forbidden(resource, name_of(new), why, [cause])
        return [Check(record.key, record.revision)]

    def _events_told(self, identity: Identity, target: Target, body: Object) -> Sequence[Beside]:
        """The events that come with what is said of an object: about that object, and no other."""
        told = body.get("events") or []
        if not told:
            return ()
        refuse_invalid(target, told_errors(target, told))
        authorize(identity, Access("create", EVENTS, "", target.namespace))
        return [Beside(EVENTS, self._begin(EVENTS, target.namespace, one)) for one in told]

    async def _modify(
        self,
        edit: _Edit,
        rule: Rule,
        incoming: Callable[[_Seen], Object],
        events: Sequence[Beside] = (),
    ) -> Record:
        """Apply the rule to the newest state until it is committed; a client that named a
        resourceVersion gets 409 as soon as that is not the newest."""
        target = edit.target
        await self.cache.fresh()  # another server may have written what the client has seen
        with self._books.lane(target.namespace) as lane:
            for _ in range(ATTEMPTS):
                record = await self._newest(target)
                seen = _Seen.of(record)
                new = self._next(edit, rule, seen, incoming(seen))
                node = await self._node_to_ask(edit.access, record.stored, new)
                around = around_of(self.cache, edit.access)
                _admit(Attempt(edit.identity, edit.access, record.stored, new, node, around))
                if new == record.stored and not events:
                    return record
                beside = await self._charge(lane, edit.counted(record.stored, new), target.name)
                if beside is None:
                    continue
                if edit.options.dry_run:
                    return _dry(target.resource, new, record)
                try:
                    return await self._settle(target, new, record, [*beside, *events])
                except ConflictError:
                    await self.cache.fresh()
        raise conflict(target.resource, target.name)

    def _next(self, edit: _Edit, rule: Rule, seen: _Seen, sent: Object) -> Object:
        """What the rule makes of the newest state and what was sent."""
        target, record = edit.target, seen.record
        if edit.versioned:
            check_version(target, record.stored, sent)
        now = format_time(self._clock.now())
        new = rule(SentChange(edit.identity, target, seen.stored, seen.served, sent, now))
        new = edit.owned(record.stored, sent, new, now)
        if target.resource == RESOURCE_QUOTAS and new.get("spec") != record.stored.get("spec"):
            return self._books.counted(new)
        return new

    async def _node_to_ask(self, access: Access, old: Object, new: Object) -> Object | None:
        """The node a resize concerns, for admission; None where there is none."""
        bound_to = lookup(old, "spec", "nodeName", default="")
        if not bound_to or not asks_for_resize(access, old, new):
            return None
        try:
            return (await self._newest(Target(NODES, "", bound_to))).stored
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _settle(
        self, target: Target, new: Object, record: Record, beside: Sequence[Beside]
    ) -> Record:
        also = self._books.unchanged(target.resource, target.namespace)
        if is_finished(target, new):
            return await self._committer.remove(record, also, beside)
        made = await self._committer.put(target.resource, new, record, also, beside)
        if target.resource == RESOURCE_QUOTAS and new.get("spec") != record.stored.get("spec"):
            return await self._recounted(made)
        return made

    async def _recounted(self, quota: Record) -> Record:
        """The quota, whose limits are new, with what was stored while it was counted."""
        for _ in range(ATTEMPTS):
            differing = self._books.recounted(quota)
            if differing is None:
                break
            newest, counted = differing
            try:
                return await self._committer.put(RESOURCE_QUOTAS, counted, newest)
            except ConflictError:
                await self.cache.fresh()
        return quota

    async def _delete(self, identity: Identity, target: Target, options: DeleteOptions) -> Deleted:
        await self.cache.fresh()
        with self._books.lane(target.namespace) as lane:
            for _ in range(ATTEMPTS):
                record = await self._newest(target)
                check_preconditions(target, record.stored, options)
                _admit(Attempt(identity, target.access("delete"), record.stored, None))
                try:
                    deleted = await self._delete_once(target, record, options, lane)
                except ConflictError:
                    await self.cache.fresh()
                    continue
                if deleted is not None:
                    return deleted
        raise conflict(target.resource, target.name)

    async def _delete_once(
        self, target: Target, record: Record, options: DeleteOptions, lane: Lane
    ) -> Deleted | None:
        """None: others came first, so look again."""
        grace_seconds = grace_seconds_of(target, record.stored, options)
        deadline = format_time(self._clock.now() + grace_seconds)
        match plan_delete(target, record.stored, grace_seconds, deadline, options.propagation):
            case Leave():
                return Deleted(record, gone=False)
            case Remove():
                if options.dry_run:
                    return Deleted(record, gone=True)
                freed = Counted(target.resource, record.stored, None, asked=False)
                beside = await self._charge(lane, freed, target.name)
                if beside is None:
                    return None
                also = self._books.unchanged(target.resource, target.namespace)
                removed = await self._committer.remove(record, also, beside)
                return Deleted(removed, gone=True)
            case Mark(stored):
                if options.dry_run:
                    return Deleted(_dry(target.resource, stored, record), gone=False)
                marked = await self._committer.put(target.resource, stored, record)
                return Deleted(marked, gone=False)


def _merged(edit: _Edit, seen: _Seen) -> Object:
    """The object with the applied part; raises 409 where others own what it changes."""
    target, part, record = edit.target, edit.applied, seen.record
    assert part is not None
    owner = applying_owner(target, edit.options)
    merged = merge_into(target, record.stored, seen.served, part, owner)
    options = msgspec.structs.replace(edit.options, field_validation=FieldValidation.IGNORE)
    taken = _take(target, merged.object, options, patch=part)
    if not edit.options.force:
        refuse_conflicts(target, record.stored, taken, owner)
    sent_version = lookup(part, "metadata", "resourceVersion", default="")
    return evolve(taken, ("metadata", "resourceVersion"), sent_version)


def _take(
    target: Target,
    obj: Any,
    options: WriteOptions,
    patch: Any = None,
    patched: Object | None = None,
) -> Object:
    return take_in(
        obj,
        kind=target.resource.kind,
        api_version=target.resource.api_version,
        options=options,
        patch=patch,
        patched=patched,
    )


def _admit(attempt: Attempt) -> None:
    refusal = admit(attempt)
    if refusal is not None:
        access = attempt.access
        raise forbidden(access.resource, access.name, refusal.why, refusal.causes)


def _dry(resource: Resource, new: Object, old: Record | None) -> Record:
    """What would have been stored; a new object has no resourceVersion yet."""
    return make_record(resource, new, old.revision if old is not None else 0)
