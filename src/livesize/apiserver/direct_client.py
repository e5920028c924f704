"""The Client for parts in the same process: it calls the service below HTTP, as one identity.

It has the semantics of the wire (tests/contract/test_client_contract.py): it raises StatusError
where HTTP would answer one, and ConnectionError once it is closed or the server has stopped.
Objects are shared and immutable: a call may return the very dict that the server keeps.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.patch import PatchType
from livesize.api.write_options import PLAIN_WRITE, WriteOptions
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.deletion_plan import parse_delete_options
from livesize.apiserver.request_types import ListOptions, Target, WatchOptions
from livesize.apiserver.service import ApiService
from livesize.apiserver.subresources.pod_eviction import EVICTED
from livesize.apiserver.watchers import WatchDelivery
from livesize.client.interface import delete_options
from livesize.store.interface import StoreClosedError

_FIELD_MANAGER = "livesize"
"""Of what a part applies without naming its manager: what HttpClient says of itself, too."""


class DirectClient:
    """Satisfies livesize.client.interface.Client."""

    def __init__(self, service: ApiService, identity: Identity) -> None:
        self._service = service
        self._identity = identity
        self._closed = False

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            return (await self._service.get(self._identity, target)).served

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        options = ListOptions(
            namespace=selection.namespace,
            labels=selection.labels,
            fields=selection.fields,
            limit=limit,
            continue_token=continue_token,
        )
        with self._reachable():
            page = await self._service.list(self._identity, resource, options)
        items = tuple(record.served for record in page.records)
        return ObjectList(items, str(page.revision), page.continue_token)

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        options = WatchOptions(
            namespace=selection.namespace,
            labels=selection.labels,
            fields=selection.fields,
            version=resource_version,
            initial=initial_events or None,
            bookmarks=initial_events,
        )
        with self._reachable():
            watcher = await self._service.watch(self._identity, resource, options)
        try:
            while deliveries := await watcher.take(late=True):
                for delivery in deliveries:
                    yield _event(delivery)
            if watcher.error is not None:
                raise watcher.error
        finally:
            self._service.cache.end(watcher)

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        namespace = namespace or namespace_of(obj)
        with self._reachable():
            made = await self._service.create(self._identity, resource, namespace, obj, options)
        return made.served

    async def update(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        target = Target(resource, namespace_of(obj), name_of(obj), subresource)
        with self._reachable():
            return (await self._service.update(self._identity, target, obj, options)).served

    async def patch(  # noqa: PLR0913 - the parts of a PATCH request
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            if patch_type is PatchType.APPLY:
                return await self._apply(target, patch, options)
            record = await self._service.patch(self._identity, target, patch, patch_type, options)
        return record.served

    async def _apply(self, target: Target, part: Any, options: WriteOptions) -> Object:
        named = msgspec.structs.replace(options, manager=options.manager or _FIELD_MANAGER)
        return (await self._service.apply(self._identity, target, part, named)).record.served

    async def delete(  # noqa: PLR0913 - the parts of a DELETE request
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> Object:
        body = delete_options(grace_period_seconds, uid, propagation, dry_run=dry_run)
        target, options = Target(resource, namespace, name), parse_delete_options(body)
        with self._reachable():
            return (await self._service.delete(self._identity, target, options)).record.served

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            if subresource == "eviction":
                await self._service.evict(self._identity, target, body)
                return EVICTED
            return (await self._service.post(self._identity, target, body)).served

    async def close(self) -> None:
        self._closed = True

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        """A server that has stopped, or whose store is closed, cannot be reached."""
        if self._closed:
            raise ConnectionError("this client was closed")
        if self._service.cache.stopped:
            raise ConnectionError("the API server has stopped")
        try:
            yield
        except StoreClosedError as error:
            raise ConnectionError(str(error)) from error


def _event(delivery: WatchDelivery) -> WatchEvent:
    event, kind = delivery.event, delivery.type
    if event is not None and event.after is not None and kind is not WatchEventType.DELETED:
        return WatchEvent(kind, event.after.served)
    shown = delivery.shown()
    return WatchEvent(kind, shown.served if shown is not None else delivery.bookmark or {})
