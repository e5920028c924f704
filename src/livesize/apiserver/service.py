"""The API below HTTP: every read and write of an object by an identity, with all its checks.

A write goes: authorize → take in → default → validate → admit → commit. Reads come from the watch
cache, brought up to the store's revision first. A write returns when it is durable and in the
cache, so whoever wrote can read it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from livesize.api.errors import (
    StatusError,
    bad_request,
    conflict,
    method_not_allowed,
    unsupported_media_type,
)
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.api.write_options import PLAIN_WRITE, WriteOptions
from livesize.apiserver.auth.authorize import Access, allows, authorize, refusal
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.node_reads import (
    Cluster,
    NodeRead,
    forbids_outright,
    forbids_reading,
    selected_name,
)
from livesize.apiserver.commit import Committer, ExtraWrite
from livesize.apiserver.creation import Creator
from livesize.apiserver.deletion import Deleted, Deleter
from livesize.apiserver.deletion_plan import DeletionOptions
from livesize.apiserver.eviction import EvictionGuard
from livesize.apiserver.listing import Page, open_watch, read_page
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.ownership import (
    applying_owner,
    names_owners,
    own_created,
    updating_owner,
)
from livesize.apiserver.quotas import QuotaLedger
from livesize.apiserver.records import ObjectRecord, encode
from livesize.apiserver.request_body import (
    apply_patch,
    names_policy,
    plain_sizes,
    take_object,
    take_part,
    take_sent,
)
from livesize.apiserver.request_types import ListOptions, Target, WatchOptions
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.attached_events import attached_event_errors
from livesize.apiserver.subresources.change import refuse_invalid
from livesize.apiserver.subresources.pod_eviction import parse_eviction
from livesize.apiserver.subresources.rules import change_rule, is_readable, post_rule, view_of
from livesize.apiserver.update import CurrentObject, Updater, UpdateRequest, merge_applied_part
from livesize.apiserver.watchers import Watcher
from livesize.apiserver.write_context import ATTEMPTS, WriteContext
from livesize.machinery.context import Context
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.store.interface import Store

_PATCHES_OF_VIEWS = (PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC)


class Applied(msgspec.Struct, frozen=True):
    record: ObjectRecord
    created: bool


class ApiService:
    def __init__(
        self,
        store: Store,
        cache: ObjectsCache,
        context: Context,
        points: CrashPoints = NO_CRASH_POINTS,
        *,
        trusts_editors: bool = True,
    ) -> None:
        self.cache = cache
        committer, quotas = Committer(store, cache, points), QuotaLedger(cache)
        self._context = WriteContext(
            cache, context.clock, context.ids, committer, quotas, trusts_editors
        )
        self._creator = Creator(self._context)
        self._updater = Updater(self._context)
        self._deleter = Deleter(self._context)

    # Reading

    async def get(
        self, identity: Identity, target: Target, *, any_age: bool = False
    ) -> ObjectRecord:
        await self._authorize_read(identity, target.access("get"))
        if not is_readable(target.resource, target.subresource):
            raise method_not_allowed()
        if not any_age:
            await self.cache.fresh()
        return _viewed(target, await self._context.newest(target))

    async def list(self, identity: Identity, resource: Resource, options: ListOptions) -> Page:
        name = selected_name(options.fields)
        access = Access("list", resource, namespace=options.namespace, name=name)
        await self._authorize_read(identity, access, options)
        return await read_page(self.cache, resource, options)

    async def watch(self, identity: Identity, resource: Resource, options: WatchOptions) -> Watcher:
        """The caller ends it with ``service.cache.end(watcher)``."""
        name = selected_name(options.fields)
        access = Access("watch", resource, namespace=options.namespace, name=name)
        await self._authorize_read(identity, access, options)
        return await open_watch(self.cache, resource, options, is_node=identity.role is Role.NODE)

    async def allows(self, identity: Identity, access: Access) -> bool:
        """Whether a request like this would be authorized; for access reviews."""
        return allows(identity, access) and not await self._unrelated(identity, access)

    async def _authorize_read(
        self,
        identity: Identity,
        access: Access,
        options: ListOptions | WatchOptions | None = None,
    ) -> None:
        authorize(identity, access)
        if identity.node:
            why = await self._unrelated(identity, access, options)
            if why:
                raise refusal(identity, access, why)

    async def _unrelated(
        self,
        identity: Identity,
        access: Access,
        options: ListOptions | WatchOptions | None = None,
    ) -> str:
        """Why a node may not read this; empty where it may."""
        labels, fields = ("", "") if options is None else (options.labels, options.fields)
        read = NodeRead(identity.node, access, labels, fields)
        if not read.is_limited:
            return ""
        outright = forbids_outright(read)
        if outright is not None:
            return outright
        why = forbids_reading(read, self._cluster())
        if why:  # the pod may have been bound a moment ago
            await self.cache.fresh()
            why = forbids_reading(read, self._cluster())
        return why

    def _cluster(self) -> Cluster:
        kinds = (PODS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
        return Cluster(*([one.stored for one in self.cache.records(kind)] for kind in kinds))

    # Writing

    async def create(
        self,
        identity: Identity,
        resource: Resource,
        namespace: str,
        obj: Any,
        options: WriteOptions = PLAIN_WRITE,
    ) -> ObjectRecord:
        given_name = lookup(obj, "metadata", "name", default="")
        authorize(identity, Access("create", resource, "", namespace, str(given_name)))
        if resource.namespaced and not namespace:
            raise bad_request("an empty namespace may not be set during creation")
        obj = take_object(resource, obj, options)
        if strategy_of(resource).reads_cluster:
            await self.cache.fresh()  # what admission gives it comes from there
        new = self._creator.begin(resource, namespace, obj)
        target = Target(resource, namespace, name_of(new))
        owner = updating_owner(identity, target, options)
        if owner is not None:
            new = own_created(target, new, self._context.timed(owner))
        return await self._creator.insert(identity, target, new, options)

    async def update(
        self, identity: Identity, target: Target, obj: Any, options: WriteOptions = PLAIN_WRITE
    ) -> ObjectRecord:
        edit = UpdateRequest.of(identity, "update", target, options)
        rule = change_rule(target.resource, target.subresource)
        taken = take_sent(target, obj, options)
        strategy = strategy_of(target.resource)

        def incoming(seen: CurrentObject) -> Object:
            return strategy.replaced(seen.stored, taken)

        return _viewed(target, await self._updater.modify(edit, rule, incoming))

    async def patch(
        self,
        identity: Identity,
        target: Target,
        patch: Any,
        patch_type: PatchType,
        options: WriteOptions = PLAIN_WRITE,
    ) -> ObjectRecord:
        sizes = plain_sizes(target, patch, patch_type, options)
        knows = sizes is None and names_policy(patch)
        edit = UpdateRequest.of(
            identity, "patch", target, options, sizes=sizes, knows_policies=knows
        )
        rule = change_rule(target.resource, target.subresource)
        with_owners, view = names_owners(patch), view_of(target.resource, target.subresource)

        def incoming(seen: CurrentObject) -> Object:
            served = seen.record.served if with_owners else seen.served
            if view is not None:
                served = view(target.resource, served)
            made = apply_patch(target.resource, served, patch, patch_type)
            return take_sent(target, made, options, patch=patch, patched=served)

        return _viewed(target, await self._updater.modify(edit, rule, incoming))

    async def apply(
        self, identity: Identity, target: Target, part: Any, options: WriteOptions
    ) -> Applied:
        """Make the object say what ``part`` says, and whatever of it others have said; create it
        where it is not there."""
        if view_of(target.resource, target.subresource) is not None:
            raise unsupported_media_type(PatchType.APPLY, _PATCHES_OF_VIEWS)
        part = take_part(target, part, options)
        edit = UpdateRequest.of(
            identity, "patch", target, options, applied=part, knows_policies=True
        )
        rule = change_rule(target.resource, target.subresource)
        for _ in range(ATTEMPTS):
            try:
                record = await self._updater.modify(
                    edit, rule, lambda now: merge_applied_part(edit, now)
                )
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

    async def _create_applied(self, edit: UpdateRequest) -> ObjectRecord:
        target, part = edit.target, edit.applied
        assert part is not None
        authorize(edit.identity, target.access("create"))
        if lookup(part, "metadata", "uid"):
            raise conflict(target.resource, target.name, "uid mismatch: the object is not there")
        named = evolve(part, ("metadata", "name"), target.name)
        new = self._creator.begin(target.resource, target.namespace, named)
        new = own_created(
            target, new, self._context.timed(applying_owner(target, edit.options)), part
        )
        return await self._creator.insert(edit.identity, target, new, edit.options)

    async def post(
        self, identity: Identity, target: Target, body: Any, options: WriteOptions = PLAIN_WRITE
    ) -> ObjectRecord:
        """POST to a subresource: binding, resizing."""
        edit = UpdateRequest.of(identity, "create", target, options, versioned=False)
        rule = post_rule(target.resource, target.subresource)
        taken = take_sent(target, body, options)
        events = self._attached_events(identity, target, taken)
        return await self._updater.modify(edit, rule, lambda _: taken, events)

    async def evict(
        self, identity: Identity, target: Target, body: Any, options: WriteOptions = PLAIN_WRITE
    ) -> Deleted:
        """POST of pods/X/eviction: who may evict needs no right to delete."""
        authorize(identity, target.access("create"))
        delete_options = parse_eviction(target, take_sent(target, body, options), options)
        pod = Target(target.resource, target.namespace, target.name)
        return await self._deleter.delete(identity, pod, delete_options, EvictionGuard(self.cache))

    async def delete(self, identity: Identity, target: Target, options: DeletionOptions) -> Deleted:
        authorize(identity, target.access("delete"))
        if target.subresource:
            raise method_not_allowed()
        return await self._deleter.delete(identity, target, options)

    async def delete_collection(
        self,
        identity: Identity,
        resource: Resource,
        selection: ListOptions,
        options: DeletionOptions,
    ) -> Sequence[Deleted]:
        access = Access("deletecollection", resource, namespace=selection.namespace)
        authorize(identity, access)
        page = await read_page(self.cache, resource, selection)
        deleted = []
        for record in page.records:
            target = Target(resource, record.namespace, record.name)
            this_one = msgspec.structs.replace(options, uid=record.stored["metadata"]["uid"])
            try:
                deleted.append(await self._deleter.delete(identity, target, this_one))
            except StatusError as error:
                if error.code not in (404, 409):  # gone, or another one of that name by now
                    raise
        return deleted

    async def finish_namespace(self, name: str) -> bool:
        """Remove a terminating namespace in which nothing is left; False where it has to wait."""
        return await self._deleter.finish_namespace(name)

    def _attached_events(
        self, identity: Identity, target: Target, body: Object
    ) -> Sequence[ExtraWrite]:
        """The events that come with what is said of an object: about that object, and no other."""
        attached = body.get("events") or []
        if not attached:
            return ()
        refuse_invalid(target, attached_event_errors(target, attached))
        authorize(identity, Access("create", EVENTS, "", target.namespace))
        return [
            ExtraWrite(EVENTS, self._creator.begin(EVENTS, target.namespace, one))
            for one in attached
        ]


def _viewed(target: Target, record: ObjectRecord) -> ObjectRecord:
    """The record with what clients are shown at the subresource."""
    view = view_of(target.resource, target.subresource)
    if view is None:
        return record
    shown = view(target.resource, record.served)
    return msgspec.structs.replace(record, served=shown, encoded=encode(shown))
