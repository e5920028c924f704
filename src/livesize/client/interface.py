"""The one way to speak to an API server: ours or any Kubernetes.

Objects are plain JSON dicts (livesize.api.objects). Refusals are livesize.api.errors.StatusError
with code, reason and causes; ConnectionError means the server could not be reached, and the
call may or may not have happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent
from livesize.api.objects import Object
from livesize.api.patch import PatchType


class Client(Protocol):
    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object: ...

    async def list(self, resource: Resource, selection: Selection = EVERYTHING) -> ObjectList: ...

    def watch(
        self, resource: Resource, selection: Selection = EVERYTHING, *, resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        """Changes after ``resource_version``. Ends when the server ends it (watch again from the
        last version seen); StatusError 410 means: list again."""
        ...

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object: ...

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """PUT the whole object; name, namespace and resourceVersion are taken from it."""
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Object: ...

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
        """``propagation``: Background, Foreground or Orphan, for what the object owns."""
        ...

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        """POST to a subresource: binding, resizing, eviction."""
        ...

    async def close(self) -> None: ...
