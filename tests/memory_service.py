"""The real API service on a memory store: the API server of tests that need no sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from livesize.api.kinds.registry import REGISTRY
from livesize.apiserver.namespaces import ensure_lasting_namespaces
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import encode, stored_bytes
from livesize.apiserver.service import ApiService
from livesize.machinery.context import Context
from livesize.store.memory import MemoryStore


class MemoryService:
    """``start`` it once. It ends with its event loop, or with ``stop``."""

    def __init__(
        self, context: Context, store: MemoryStore | None = None, **cache_settings: Any
    ) -> None:
        self.store = store or MemoryStore()
        self.cache = ObjectsCache(self.store, **cache_settings)
        self.service = ApiService(self.store, self.cache, context)
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._feeding is None:
            self._feeding = asyncio.create_task(self.cache.run())
            await self.cache.loaded.wait()
            await ensure_lasting_namespaces(self.service)

    async def check_nothing_was_changed_in_place(self) -> None:
        """Objects are shared and immutable: each still says what was encoded and stored."""
        for resource in REGISTRY.stored():
            for record in self.cache.records(resource):
                assert encode(record.served) == record.encoded
                entry = await self.store.get(record.key)
                assert entry is not None
                assert stored_bytes(record.stored) == entry.value

    async def stop(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.wait([self._feeding])
