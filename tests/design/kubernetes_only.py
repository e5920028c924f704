"""A client to our API server that shows and takes only what any Kubernetes API server has.

Whoever works through it works on other people's clusters: fields, conditions and subresources that
only Livesize serves are not there, and writing one is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.write_options import PLAIN_WRITE, WriteOptions
from livesize.client.interface import Client

_FIELDS = {"resourcesAllocated", "resizeRequest", "resizeState", "virtualMachine", "resize"} | {
    "virtualMachineStatus"
}
_CONDITIONS = {"PodResized"}
_SUBRESOURCES = {"", "binding", "eviction", "resize", "status"}


def without_ours(value: Any) -> Any:
    if isinstance(value, list):
        kept = [
            one
            for one in value
            if not (isinstance(one, dict) and one.get("type") in _CONDITIONS and "status" in one)
        ]
        return [without_ours(one) for one in kept]
    if isinstance(value, dict):
        return {key: without_ours(one) for key, one in value.items() if key not in _FIELDS}
    return value


def check(body: Any, subresource: str) -> None:
    assert subresource in _SUBRESOURCES, f"no Kubernetes serves {subresource}"
    assert without_ours(body) == body, "no Kubernetes knows a field of this"


class KubernetesOnly:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        check({}, subresource)
        found: Object = without_ours(
            await self._client.get(resource, name, namespace, subresource=subresource)
        )
        return found

    async def list(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        continue_token: str = "",
    ) -> ObjectList:
        page = await self._client.list(
            resource, selection, limit=limit, continue_token=continue_token
        )
        items = tuple(without_ours(one) for one in page.items)
        return ObjectList(items, page.resource_version, page.continue_token)

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        stream = self._client.watch(
            resource, selection, resource_version=resource_version, initial_events=initial_events
        )
        async for event in stream:
            yield WatchEvent(event.type, without_ours(event.object))

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        check(obj, "")
        made: Object = without_ours(
            await self._client.create(resource, obj, namespace, options=options)
        )
        return made

    async def update(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Object:
        check(obj, subresource)
        written: Object = without_ours(
            await self._client.update(resource, obj, subresource=subresource, options=options)
        )
        return written

    async def patch(
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
        check(patch, subresource)
        written: Object = without_ours(
            await self._client.patch(
                resource,
                name,
                patch,
                namespace=namespace,
                patch_type=patch_type,
                subresource=subresource,
                options=options,
            )
        )
        return written

    async def delete(self, *given: Any, **more: Any) -> Object:
        gone: Object = without_ours(await self._client.delete(*given, **more))
        return gone

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        check(body, subresource)
        answer: Object = without_ours(
            await self._client.post(resource, name, namespace, subresource, body)
        )
        return answer

    async def close(self) -> None:
        await self._client.close()
