"""What a controller reads: the caches, and the API server itself where a cache may be behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection
from livesize.api.objects import Object
from livesize.client.interface import Client
from livesize.client.pages import read_pages
from livesize.controllers.kit.caches import BY_NAMESPACE, Caches, Index, ObjectCache


class Reader:
    """Reads kinds that the controller watches. Objects are shared: no reader changes one."""

    def __init__(self, caches: Caches, client: Client, watched: Collection[Resource]) -> None:
        self._caches = caches
        self._client = client
        self._watched = frozenset(watched)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        return self._cache(resource).get(name, namespace)

    def list(self, resource: Resource, namespace: str = "") -> Sequence[Object]:
        """All of a namespace, or of all namespaces."""
        cache = self._cache(resource)
        return cache.select(BY_NAMESPACE, namespace) if namespace else cache.items()

    def select(self, resource: Resource, index: Index, value: str) -> Sequence[Object]:
        return self._cache(resource).select(index, value)

    async def newest(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """As the API server has it now; None: it is certainly not there."""
        try:
            return await self._client.get(resource, name, namespace)
        except StatusError as refusal:
            if refusal.code != 404:
                raise
            return None

    async def newest_items(self, resource: Resource, namespace: str) -> AsyncIterator[Object]:
        """All of a namespace, as the API server has them now."""
        async for page in read_pages(self._client, resource, Selection(namespace)):
            for obj in page.items:
                yield obj

    def _cache(self, resource: Resource) -> ObjectCache:
        assert resource in self._watched, f"the controller does not watch {resource.plural}"
        return self._caches.of(resource)
