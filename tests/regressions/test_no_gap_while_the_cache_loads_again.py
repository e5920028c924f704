"""Who began to watch while the cache was loaded again, after it had fallen behind a compaction, was
not told of what had happened meanwhile, and not that it had missed something."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from livesize.api.kinds.lease import LEASES
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.store.interface import Listing, Put
from livesize.store.memory import MemoryStore


class SlowList(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def list(self, prefix: str, **more: Any) -> Listing:
        listing = await super().list(prefix, **more)
        self.asked.set()
        await self.go.wait()
        return listing


def put(value: int) -> Put:
    body = {"kind": "Lease", "metadata": {"namespace": "ns", "name": "a"}, "spec": {"n": value}}
    return Put(key_of(LEASES, "ns", "a"), orjson.dumps(body))


async def test_who_comes_in_between_is_told_to_list_again() -> None:
    store = SlowList()
    cache = ObjectsCache(store)
    running = asyncio.create_task(cache.run())
    await cache.loaded.wait()
    store.asked.clear()
    store.go.clear()
    for value in (1, 2):
        await store.commit([], [put(value)])
    await store.compact(2)
    async with asyncio.timeout(5):
        await store.asked.wait()
        watcher = cache.watch(LEASES, after_revision=cache.revision)
        store.go.set()
        assert await watcher.take() == []
    assert watcher.error is not None
    assert watcher.error.code == 410
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
