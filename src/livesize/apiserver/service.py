"""The door below HTTP: every read and write of an object by somebody, with all its checks.

A write goes: authorize → take in → default → validate → admit → commit. Reads come from the watch
cache, brought up to the store's revision first. A write returns when it is durable and in the
cache, so whoever wrote can read it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

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
from livesize.api.kinds import NAMESPACES, NODES, PODS, Resource
from livesize.api.objects import Object, lookup, name_of, without
from livesize.api.resize_state import bind_allocated, is_bound
from livesize.api.validation import validate_create
from livesize.apiserver.admission.plan import Attempt, admit, asks_for_resize
from livesize.apiserver.asked import (
    PLAIN_WRITE,
    ListOptions,
    Target,
    WatchOptions,
    WriteOptions,
)
from livesize.apiserver.auth.authorize import Access, authorize
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.committing import Committer
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
from livesize.apiserver.intake import apply_patch, take_in
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.preparing import check_version, prepare_create
from livesize.apiserver.reading import Page, open_watch, read_page
from livesize.apiserver.records import Record, make_record
from livesize.apiserver.subresources.change import (
    Rule,
    SentChange,
    refuse_invalid,
)
from livesize.apiserver.subresources.rules import POSTED_KINDS, change_rule, post_rule
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


class _Edit(msgspec.Struct, frozen=True):
    """Who changes what. ``versioned``: what is sent is an object with its resourceVersion."""

    identity: Identity
    verb: str
    target: Target
    options: WriteOptions
    versioned: bool = True

    @property
    def access(self) -> Access:
        return self.target.access(self.verb)


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

    # Reading

    async def get(self, identity: Identity, target: Target, *, any_age: bool = False) -> Record:
        authorize(identity, target.access("get"))
        if target.subresource not in _READABLE:
            raise method_not_allowed()
        if not any_age:
            await self.cache.fresh()
        return await self._newest(target)

    async def list(self, identity: Identity, resource: Resource, options: ListOptions) -> Page:
        authorize(identity, Access("list", resource, namespace=options.namespace))
        return await read_page(self.cache, resource, options)

    async def watch(self, identity: Identity, resource: Resource, options: WatchOptions) -> Watcher:
        """The caller ends it with ``service.cache.end(watcher)``."""
        authorize(identity, Access("watch", resource, namespace=options.namespace))
        return await open_watch(self.cache, resource, options)

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
        new = self._begin(resource, namespace, obj)
        access = Access("create", resource, "", namespace, name_of(new))
        for _ in range(ATTEMPTS):
            checks = await self._namespace_check(resource, namespace, new)
            _admit(Attempt(identity, access, None, new))
            if options.dry_run:
                await self._refuse_existing(resource, new)
                return _dry(resource, new, None)
            try:
                return await self._committer.put(resource, new, None, checks)
            except ConflictError as error:
                if error.key == key_of(resource, namespace, name_of(new)):
                    raise already_exists(resource, name_of(new)) from None
        raise conflict(resource, name_of(new))

    async def update(
        self, identity: Identity, target: Target, obj: Any, options: WriteOptions = PLAIN_WRITE
    ) -> Record:
        edit = _Edit(identity, "update", target, options)
        authorize(identity, edit.access)
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
        edit = _Edit(identity, "patch", target, options)
        authorize(identity, edit.access)
        rule = change_rule(target.resource, target.subresource)

        def incoming(record: Record) -> Object:
            patched = apply_patch(target.resource, record.served, patch, patch_type)
            return _take(target, patched, options, patch=patch)

        return await self._modify(edit, rule, incoming)

    async def post(
        self, identity: Identity, target: Target, body: Any, options: WriteOptions = PLAIN_WRITE
    ) -> Record:
        """POST to a subresource: binding, resizing."""
        edit = _Edit(identity, "create", target, options, versioned=False)
        authorize(identity, edit.access)
        rule = post_rule(target.resource, target.subresource)
        kind = POSTED_KINDS[target.resource, target.subresource]
        api_version = target.resource.api_version
        taken = take_in(body, kind=kind, api_version=api_version, options=options)
        return await self._modify(edit, rule, lambda _: taken)

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

    def _begin(self, resource: Resource, namespace: str, obj: Object) -> Object:
        """The new object, defaulted and valid."""
        new = prepare_create(
            resource,
            namespace,
            obj,
            uid=self._ids.uid(),
            now=format_time(self._clock.now()),
            suffix=self._ids.suffix(),
        )
        sent, new = new, default_object(resource, strip_dialects(new))
        target = Target(resource, namespace, name_of(new))
        refuse_invalid(target, validate_create(resource, new))
        if resource == PODS:
            # Status and resizeRequest of a copied manifest are dropped, not judged.
            sent = without(sent, ("spec", "resizeRequest"))
            refuse_invalid(target, check_derived(sent, derive_dialects(new), from_own_node=False))
            new = bind_allocated(new) if is_bound(new) else new
        return new

    async def _namespace_check(
        self, resource: Resource, namespace: str, new: Object
    ) -> Sequence[Check]:
        """The namespace is there and stays so until the commit."""
        if not resource.namespaced:
            return []
        await self.cache.fresh()
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

    async def _refuse_existing(self, resource: Resource, new: Object) -> None:
        key = key_of(resource, lookup(new, "metadata", "namespace", default=""), name_of(new))
        if self.cache.get(resource, key) is not None:
            raise already_exists(resource, name_of(new))

    async def _modify(
        self, edit: _Edit, rule: Rule, incoming: Callable[[Record], Object]
    ) -> Record:
        """Apply the rule to the newest state until it is committed; a client that named a
        resourceVersion gets 409 as soon as that is not the newest."""
        target = edit.target
        await self.cache.fresh()  # another server may have written what the client has seen
        for _ in range(ATTEMPTS):
            record = await self._newest(target)
            sent = incoming(record)
            if edit.versioned:
                check_version(target, record.stored, sent)
            now = format_time(self._clock.now())
            new = rule(SentChange(edit.identity, target, record.stored, record.served, sent, now))
            node = await self._node_to_ask(edit.access, record.stored, new)
            _admit(Attempt(edit.identity, edit.access, record.stored, new, node))
            if new == record.stored:
                return record
            if edit.options.dry_run:
                return _dry(target.resource, new, record)
            try:
                return await self._settle(target, new, record)
            except ConflictError:
                await self.cache.fresh()
        raise conflict(target.resource, target.name)

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

    async def _settle(self, target: Target, new: Object, record: Record) -> Record:
        if is_finished(target, new):
            return await self._committer.remove(record)
        return await self._committer.put(target.resource, new, record)

    async def _delete(self, identity: Identity, target: Target, options: DeleteOptions) -> Deleted:
        await self.cache.fresh()
        for _ in range(ATTEMPTS):
            record = await self._newest(target)
            check_preconditions(target, record.stored, options)
            _admit(Attempt(identity, target.access("delete"), record.stored, None))
            try:
                return await self._delete_once(target, record, options)
            except ConflictError:
                await self.cache.fresh()
        raise conflict(target.resource, target.name)

    async def _delete_once(self, target: Target, record: Record, options: DeleteOptions) -> Deleted:
        grace_seconds = grace_seconds_of(target, record.stored, options)
        deadline = format_time(self._clock.now() + grace_seconds)
        match plan_delete(target, record.stored, grace_seconds, deadline):
            case Leave():
                return Deleted(record, gone=False)
            case Remove():
                if options.dry_run:
                    return Deleted(record, gone=True)
                return Deleted(await self._committer.remove(record), gone=True)
            case Mark(stored):
                if options.dry_run:
                    return Deleted(_dry(target.resource, stored, record), gone=False)
                marked = await self._committer.put(target.resource, stored, record)
                return Deleted(marked, gone=False)


def _take(target: Target, obj: Any, options: WriteOptions, patch: Any = None) -> Object:
    resource = target.resource
    return take_in(
        obj, kind=resource.kind, api_version=resource.api_version, options=options, patch=patch
    )


def _admit(attempt: Attempt) -> None:
    refusal = admit(attempt)
    if refusal is not None:
        access = attempt.access
        raise forbidden(access.resource, access.name, refusal.why, refusal.causes)


def _dry(resource: Resource, new: Object, old: Record | None) -> Record:
    """What would have been stored; a new object has no resourceVersion yet."""
    return make_record(resource, new, old.revision if old is not None else 0)
