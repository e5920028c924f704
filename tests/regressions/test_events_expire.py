"""Events were kept for ever: memory and disk grew with every pod that came and went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from livesize.api.kinds.event import EVENTS
from livesize.api.times import format_time
from livesize.apiserver.commit import Committer
from livesize.apiserver.expiry.expirer import EventExpirer
from livesize.apiserver.expiry.plan import EventTerms
from livesize.apiserver.namespaces import ensure_lasting_namespaces
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.service import ApiService
from livesize.store.memory import MemoryStore
from unit.apiserver.conftest import ADMIN, Rig
from virtual_time import CLOCK, virtual_context, virtual_time


@pytest.fixture
async def kept(rig: Rig) -> AsyncIterator[Rig]:
    """An API server whose events live 100 s, at most 20 of them."""
    committer = Committer(rig.store, rig.cache)
    terms = EventTerms(life_seconds=100.0, maximum=20)
    expirer = asyncio.create_task(EventExpirer(rig.cache, committer, rig.clock, terms).run())
    yield rig
    expirer.cancel()
    await asyncio.gather(expirer, return_exceptions=True)


async def _say(rig: Rig, name: str, **fields: Any) -> None:
    event = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod"}, **fields}
    await rig.service.create(ADMIN, EVENTS, "default", event)


async def _names(rig: Rig) -> list[str]:
    for _ in range(50):
        await asyncio.sleep(0)
    return [record.name for record in rig.cache.records(EVENTS)]


async def _after(rig: Rig, seconds: float) -> list[str]:
    await _names(rig)  # the expirer has come to rest
    await rig.clock.sleep(seconds)
    return await _names(rig)


async def test_an_event_goes_after_its_life(kept: Rig) -> None:
    await _say(kept, "old")
    assert await _after(kept, 99) == ["old"]
    await _say(kept, "young")
    assert await _after(kept, 1) == ["young"]
    assert await _after(kept, 99) == []


async def test_an_event_that_is_said_again_lives_on(kept: Rig) -> None:
    await _say(kept, "again")
    await kept.patch(
        "/api/v1/namespaces/default/events/again", {"lastTimestamp": format_time(CLOCK.now() + 60)}
    )
    assert await _after(kept, 100) == ["again"]
    assert await _after(kept, 60) == []


@pytest.mark.parametrize("time", ["9999-01-01T00:00:00Z", "yesterday", "0001-01-01T00:00:00Z"])
async def test_a_client_cannot_make_an_event_last(kept: Rig, time: str) -> None:
    await _say(kept, "odd", lastTimestamp=time)
    assert await _after(kept, 100) == []


async def test_of_too_many_the_oldest_go_at_once(kept: Rig) -> None:
    for number in range(21):
        await kept.clock.sleep(1)
        await _say(kept, f"e{number:02}")
    assert await _names(kept) == [f"e{number:02}" for number in range(3, 21)]


class ReadCounter(ObjectsCache):
    reads = 0

    def records(self, *selection: Any) -> list[ObjectRecord]:
        self.reads += 1
        return super().records(*selection)


@virtual_time
async def test_events_that_are_due_one_by_one_are_read_a_few_times_in_their_life() -> None:
    """While events expired, all of them were read every second."""
    store = MemoryStore()
    cache = ReadCounter(store)
    service = ApiService(store, cache, virtual_context())
    terms = EventTerms(life_seconds=600.0)
    expirer = EventExpirer(cache, Committer(store, cache), CLOCK, terms)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(cache.run())]
        await cache.loaded.wait()
        await ensure_lasting_namespaces(service)
        running.append(tasks.create_task(expirer.run()))
        for number in range(600):
            event = {"metadata": {"name": f"e{number}"}, "involvedObject": {"kind": "Pod"}}
            await service.create(ADMIN, EVENTS, "default", event)
            await CLOCK.sleep(1.0)
        cache.reads = 0
        await CLOCK.sleep(620.0)
        assert cache.object_count(EVENTS) == 0
        assert cache.reads <= 62
        for task in running:
            task.cancel()
