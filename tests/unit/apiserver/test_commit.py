"""A commit: one record is made of it, shared by who wrote it, the cache and the watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.kinds.lease import LEASES
from livesize.api.objects import Object, evolve
from livesize.apiserver.commit import Committer
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import stored_bytes
from livesize.store.interface import ConflictError, Put
from livesize.store.memory import MemoryStore
from livesize.store.sqlite import SqliteStore

LEASE: Object = {
    "kind": "Lease",
    "apiVersion": "coordination.k8s.io/v1",
    "metadata": {"name": "a", "namespace": "team"},
    "spec": {"holderIdentity": "me"},
}
KEY = key_of(LEASES, "team", "a")


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def cache(store: MemoryStore) -> AsyncIterator[ObjectsCache]:
    cache = ObjectsCache(store)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        await cache.loaded.wait()
        yield cache
        running.cancel()


async def test_who_wrote_it_gets_the_very_record_of_the_cache(
    store: MemoryStore, cache: ObjectsCache
) -> None:
    record = await Committer(store, cache).put(LEASES, LEASE, None)
    assert cache.get(LEASES, KEY) is record
    assert record.stored["spec"] is LEASE["spec"], "it was not decoded again"
    assert record.stored["metadata"]["resourceVersion"] == str(record.revision)


async def test_what_others_write_is_decoded(store: MemoryStore, cache: ObjectsCache) -> None:
    revision = await store.commit([], [Put(KEY, stored_bytes(LEASE))])
    await cache.wait_for(revision)
    record = cache.get(LEASES, KEY)
    assert record is not None
    assert record.stored["spec"] == LEASE["spec"]
    assert record.stored["spec"] is not LEASE["spec"]


async def test_a_refused_commit_leaves_nothing_announced(
    store: MemoryStore, cache: ObjectsCache
) -> None:
    committer = Committer(store, cache)
    await committer.put(LEASES, LEASE, None)
    other = evolve(LEASE, ("spec", "holderIdentity"), "you")
    with pytest.raises(ConflictError):
        await committer.put(LEASES, other, None)
    assert cache._announced == {}


async def test_a_record_overtaken_before_it_was_read_is_still_its_own(
    store: MemoryStore, cache: ObjectsCache
) -> None:
    committer = Committer(store, cache)
    first = await committer.put(LEASES, LEASE, None)
    second = evolve(LEASE, ("spec", "holderIdentity"), "you")
    wait_for = cache.wait_for

    async def overtaken(revision: int) -> None:
        cache.wait_for = wait_for  # type: ignore[method-assign]
        third = evolve(LEASE, ("spec", "holderIdentity"), "they")
        await wait_for(await store.commit([], [Put(KEY, stored_bytes(third))]))

    cache.wait_for = overtaken  # type: ignore[method-assign]
    record = await committer.put(LEASES, second, first)
    assert record.stored["spec"] == {"holderIdentity": "you"}
    newest = cache.get(LEASES, KEY)
    assert newest is not None
    assert newest.revision == record.revision + 1


async def test_who_watches_hears_before_who_wrote_is_answered(tmp_path: Path) -> None:
    """On the store in which a commit is settled together with its feed."""
    told: list[str] = []
    store = await SqliteStore.open(tmp_path / "store.db")
    cache = ObjectsCache(store)

    async def watch() -> None:
        watcher = cache.watch(LEASES, after_revision=cache.revision)
        await watcher.take()
        told.append("watcher")
        cache.end(watcher)

    async def write() -> None:
        await Committer(store, cache).put(LEASES, LEASE, None)
        told.append("writer")

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cache.run())
        await cache.loaded.wait()
        async with asyncio.TaskGroup() as both:
            both.create_task(watch())
            both.create_task(write())
        running.cancel()
    await store.close()
    assert told == ["watcher", "writer"]
