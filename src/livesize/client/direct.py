"""Speaks to an API server in the same process, below HTTP, with the semantics of the wire.

``Door`` is what the API server offers to one identity; ``DirectClient`` is the Client over it.
Objects are shared and immutable: what a call returns may be the very dict the server keeps.
A door raises StatusError like the wire answers it, and ConnectionError once it is closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.patch import PatchType


class Door(Protocol):
    """The API server's service, bound to one identity. Knows no HTTP."""

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object: ...

    async def list(self, resource: Resource, selection: Selection) -> ObjectList:
        """Every selected object as of ``resource_version``; items carry kind and apiVersion."""
        ...

    def watch(
        self, resource: Resource, selection: Selection, *, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after that version, bookmarks included; raises StatusError 410 when it is too
        old. Closing the generator ends the watch; the door ends it when it stops."""
        ...

    async def create(
        self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool = False
    ) -> Object: ...

    async def update(
        self, resource: Resource, namespace: str, name: str, obj: Object, *, subresource: str = ""
    ) -> Object: ...

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
    ) -> Object: ...

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: Object
    ) -> Object:
        """``options`` is a DeleteOptions as on the wire: gracePeriodSeconds, preconditions."""
        ...

    async def post(
        self, resource: Resource, namespace: str, name: str, subresource: str, body: Object
    ) -> Object: ...


class DirectClient:
    """Client over a Door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._closed = False

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return await self._open().get(resource, namespace, name)

    async def list(self, resource: Resource, selection: Selection = EVERYTHING) -> ObjectList:
        return await self._open().list(resource, selection)

    async def watch(
        self, resource: Resource, selection: Selection = EVERYTHING, *, resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        stream = self._open().watch(resource, selection, resource_version=resource_version)
        async with aclosing(stream):
            async for event in stream:
                yield event

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        return await self._open().create(resource, namespace or namespace_of(obj), obj)

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        return await self._open().update(
            resource, namespace_of(obj), name_of(obj), obj, subresource=subresource
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Object:
        return await self._open().patch(
            resource, namespace, name, patch, patch_type=patch_type, subresource=subresource
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> Object:
        options = delete_options(grace_period_seconds, uid, propagation)
        return await self._open().delete(resource, namespace, name, options)

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        return await self._open().post(resource, namespace, name, subresource, body)

    async def close(self) -> None:
        self._closed = True

    def _open(self) -> Door:
        if self._closed:
            raise ConnectionError("this client was closed")
        return self._door


def delete_options(grace_period_seconds: int | None, uid: str, propagation: str = "") -> Object:
    """The body of a DELETE."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if uid:
        options["preconditions"] = {"uid": uid}
    if propagation:
        options["propagationPolicy"] = propagation
    return options
