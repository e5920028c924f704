"""The watch cache: loading, catching up, bounded watchers, and one encoding for everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.kinds.lease import LEASES
from livesize.api.list_watch import WatchEventType
from livesize.apiserver.keys import key_of
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.store.interface import Delete, Put, StoreClosedError
from livesize.store.memory import MemoryStore


def put(name: str, value: int) -> Put:
    body = {"kind": "Lease", "metadata": {"namespace": "ns", "name": name}, "spec": {"n": value}}
    return Put(key_of(LEASES, "ns", name), orjson.dumps(body))


class Fed:
    def __init__(self, **settings: Any) -> None:
        self.store = MemoryStore()
        self.cache = ObjectsCache(self.store, **settings)

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.cache.run())
        await self.cache.loaded.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def write(self, *writes: Any) -> None:
        await self.cache.wait_for(await self.store.commit([], list(writes)))


@pytest.fixture
async def fed() -> AsyncIterator[Fed]:
    async with Fed(ring_events=4, watcher_capacity=3) as made:
        yield made


async def test_who_asked_for_a_revision_that_never_comes_is_forgotten(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.apiserver.objects_cache.AHEAD_TIMEOUT_SECONDS", 0.01)
    ahead = fed.cache.revision + 1_000_000
    answers = await asyncio.gather(
        *(fed.cache.wait_for_version(ahead) for _ in range(20)), return_exceptions=True
    )
    assert {answer.code for answer in answers if isinstance(answer, StatusError)} == {504}
    assert not fed.cache._waiting
    await fed.write(put("a", 1))


async def test_loads_what_was_there(fed: Fed) -> None:
    await fed.write(put("a", 1), put("b", 2))
    again = ObjectsCache(fed.store)
    task = asyncio.create_task(again.run())
    await again.loaded.wait()
    assert [record.name for record in again.records(LEASES)] == ["a", "b"]
    assert again.revision == fed.cache.revision
    task.cancel()


async def test_a_watch_goes_on_over_a_restart(fed: Fed) -> None:
    for number in range(4):
        await fed.write(put("a", number))
    again = ObjectsCache(fed.store, ring_events=4)
    task = asyncio.create_task(again.run())
    await again.loaded.wait()
    watcher = again.watch(LEASES, after_revision=1)
    assert [delivery.revision for delivery in await watcher.take()] == [2, 3, 4]
    task.cancel()


async def test_history_that_was_compacted_is_not_missed_at_the_start(fed: Fed) -> None:
    for number in range(4):
        await fed.write(put("a", number))
    await fed.store.compact(3)
    again = ObjectsCache(fed.store)
    task = asyncio.create_task(again.run())
    await again.loaded.wait()
    assert again.revision == 4
    assert [one.revision for one in await again.watch(LEASES, after_revision=3).take()] == [4]
    with pytest.raises(StatusError):
        again.watch(LEASES, after_revision=2)
    task.cancel()


async def test_a_version_of_an_earlier_epoch_is_410() -> None:
    store = MemoryStore(epoch=2)
    cache = ObjectsCache(store)
    task = asyncio.create_task(cache.run())
    await cache.loaded.wait()
    await cache.wait_for(await store.commit([], [put("a", 1)]))
    for old in (1, 1_000, (2 << 20) - 1):
        for attempt in (cache.watch, cache.records_at):
            with pytest.raises(StatusError) as refused:
                attempt(LEASES, **{"after_revision" if attempt == cache.watch else "revision": old})
            assert refused.value.code == 410
    task.cancel()


async def test_a_watch_from_before_the_ring_is_410(fed: Fed) -> None:
    for number in range(6):
        await fed.write(put("a", number))
    with pytest.raises(StatusError) as refused:
        fed.cache.watch(LEASES, after_revision=1)
    assert refused.value.code == 410
    watcher = fed.cache.watch(LEASES, after_revision=2)
    assert [delivery.revision for delivery in await watcher.take()] == [3, 4, 5, 6]


async def test_a_watcher_that_does_not_read_is_dropped_and_nobody_else_pays(fed: Fed) -> None:
    stuck = fed.cache.watch(LEASES, after_revision=0)
    reading = fed.cache.watch(LEASES, after_revision=0)
    seen: list[int] = []
    for number in range(5):
        await fed.write(put("a", number))
        seen += [delivery.revision for delivery in await reading.take()]
    assert seen == [1, 2, 3, 4, 5]
    assert stuck.dropped.is_set()
    assert stuck.error is not None
    assert stuck.error.code == 410
    assert await stuck.take() == []
    assert fed.cache.watcher_count() == 1


async def test_an_event_is_encoded_once_for_all(fed: Fed) -> None:
    first = fed.cache.watch(LEASES, after_revision=0)
    second = fed.cache.watch(LEASES, after_revision=0)
    await fed.write(put("a", 1))
    (one,), (two,) = await first.take(), await second.take()
    assert one.line() is two.line()
    event = orjson.loads(one.line())
    assert event["type"] == "ADDED"
    assert event["object"]["metadata"]["resourceVersion"] == "1"


async def test_compaction_under_the_cache_loads_again(fed: Fed) -> None:
    watcher = fed.cache.watch(LEASES, after_revision=0)
    await fed.store.commit([], [put("a", 1)])
    await fed.store.commit([], [put("a", 2)])
    await fed.store.compact(2)
    await fed.cache.wait_for(await fed.store.commit([], [put("a", 3)]))
    (record,) = fed.cache.records(LEASES)
    assert record.stored["spec"] == {"n": 3}
    while await watcher.take():
        pass
    assert watcher.error is not None
    assert watcher.error.code == 410


async def test_a_closed_store_is_told_to_who_waits(fed: Fed) -> None:
    waiting = asyncio.create_task(fed.cache.wait_for(99))
    await asyncio.sleep(0)
    await fed.store.close()
    with pytest.raises(StoreClosedError):
        await waiting
    with pytest.raises(StoreClosedError):
        await fed.cache.wait_for(99)


WRITES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9) | st.none()),
        min_size=1,
        max_size=3,
        unique_by=lambda write: write[0],
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(writes=WRITES, at=st.integers(0, 12))
def test_replaying_a_watch_gives_the_list_and_earlier_lists_are_true(writes: Any, at: int) -> None:
    """State at a revision, plus the events after it, is the state now, whatever was written."""

    async def run() -> None:
        async with Fed(ring_events=1000) as fed:
            states = {0: {}}
            for batch in writes:
                commit = [
                    Delete(key_of(LEASES, "ns", name)) if value is None else put(name, value)
                    for name, value in batch
                ]
                await fed.write(*commit)
                now = {record.key: record.stored for record in fed.cache.records(LEASES)}
                states[fed.cache.revision] = now
            begin = min(at, fed.cache.revision)
            while begin not in states:
                begin -= 1
            replayed = {r.key: r.stored for r in fed.cache.records_at(LEASES, begin)}
            assert replayed == states[begin]
            watcher = fed.cache.watch(LEASES, after_revision=begin)
            watcher.close()
            for delivery in await watcher.take():
                record = delivery.shown()
                assert record is not None
                if delivery.type is WatchEventType.DELETED:
                    del replayed[record.key]
                else:
                    replayed[record.key] = record.stored
            assert replayed == states[fed.cache.revision]

    asyncio.run(run())


@pytest.mark.parametrize("node_comes", ["before", "after"])
async def test_who_is_to_be_told_first_is(fed: Fed, node_comes: str) -> None:
    told: list[str] = []

    async def listen(name: str) -> None:
        watcher = fed.cache.watch(LEASES, after_revision=0, first=name == "node")
        await watcher.take()
        told.append(name)
        fed.cache.end(watcher)

    names = ["node", "user"] if node_comes == "before" else ["user", "node"]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(listen(name))
        await asyncio.sleep(0)
        assert fed.cache.watcher_count() == 2
        await fed.write(put("a", 1))
    assert told == ["node", "user"]
    assert fed.cache.watcher_count() == 0


async def test_who_acts_on_what_is_wanted_hears_last_of_what_it_reported(fed: Fed) -> None:
    """A node told first of its own report would keep others from hearing of it."""

    def reported(number: int) -> Put:
        body = orjson.loads(put("a", 1).value)
        return Put(key_of(LEASES, "ns", "a"), orjson.dumps({**body, "status": {"n": number}}))

    await fed.write(put("a", 1))
    told: list[str] = []

    async def listen(name: str) -> None:
        begin = fed.cache.revision
        watcher = fed.cache.watch(LEASES, after_revision=begin, first=name == "node")
        await watcher.take()
        told.append(name)
        fed.cache.end(watcher)

    for write, order in (
        (reported(1), ["user", "node"]),
        (put("a", 2), ["node", "user"]),
        (Delete(key_of(LEASES, "ns", "a")), ["node", "user"]),
    ):
        told.clear()
        async with asyncio.TaskGroup() as group:
            for name in ("node", "user"):
                group.create_task(listen(name))
            await asyncio.sleep(0)
            await fed.write(write)
        assert told == order


async def test_who_is_patient_is_told_after_everybody_else(fed: Fed) -> None:
    told: list[str] = []

    async def listen(name: str) -> None:
        watcher = fed.cache.watch(LEASES, after_revision=0)
        await watcher.take(late=name == "here")
        told.append(name)
        fed.cache.end(watcher)

    async with asyncio.TaskGroup() as group:
        for name in ("network", "here"):  # the newest is woken first
            group.create_task(listen(name))
        await asyncio.sleep(0)
        await fed.write(put("a", 1))
    assert told == ["network", "here"]
