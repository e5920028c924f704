"""The service as one identity sees it: the Door of livesize.client.direct, without HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.apiserver.asked import ListOptions, Target, WatchOptions, WriteOptions
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.deletion import parse_delete_options
from livesize.apiserver.service import Service
from livesize.apiserver.subresources.pod_eviction import EVICTED
from livesize.apiserver.watchers import Delivery
from livesize.store.interface import StoreClosedError


class BoundService:
    """Satisfies livesize.client.direct.Door."""

    def __init__(self, service: Service, identity: Identity) -> None:
        self._service = service
        self._identity = identity

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        """A server that has stopped, or whose store is closed, cannot be reached."""
        if self._service.cache.stopped:
            raise ConnectionError("the API server has stopped")
        try:
            yield
        except StoreClosedError as error:
            raise ConnectionError(str(error)) from error

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            return (await self._service.get(self._identity, target)).served

    async def list(self, resource: Resource, selection: Selection) -> ObjectList:
        options = ListOptions(selection.namespace, selection.labels, selection.fields)
        with self._reachable():
            page = await self._service.list(self._identity, resource, options)
        return ObjectList(tuple(record.served for record in page.records), str(page.revision))

    async def watch(
        self, resource: Resource, selection: Selection, *, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        options = WatchOptions(
            selection.namespace, selection.labels, selection.fields, resource_version
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
        self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool = False
    ) -> Object:
        options = WriteOptions(dry_run=dry_run)
        with self._reachable():
            made = await self._service.create(self._identity, resource, namespace, obj, options)
        return made.served

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Object, *, subresource: str = ""
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            return (await self._service.update(self._identity, target, obj)).served

    async def patch(  # noqa: PLR0913 - the seven parts of a PATCH request
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        patch_type: PatchType,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        options = WriteOptions(dry_run=dry_run)
        with self._reachable():
            record = await self._service.patch(self._identity, target, patch, patch_type, options)
        return record.served

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: Object
    ) -> Object:
        target = Target(resource, namespace, name)
        with self._reachable():
            deleted = await self._service.delete(
                self._identity, target, parse_delete_options(options)
            )
        return deleted.record.served

    async def post(
        self, resource: Resource, namespace: str, name: str, subresource: str, body: Object
    ) -> Object:
        target = Target(resource, namespace, name, subresource)
        with self._reachable():
            if subresource == "eviction":
                await self._service.evict(self._identity, target, body)
                return EVICTED
            return (await self._service.post(self._identity, target, body)).served


def _event(delivery: Delivery) -> WatchEvent:
    event, kind = delivery.event, delivery.type
    if event is not None and event.after is not None and kind is not WatchEventType.DELETED:
        return WatchEvent(kind, event.after.served)
    shown = delivery.shown()
    return WatchEvent(kind, shown.served if shown is not None else delivery.bookmark or {})
