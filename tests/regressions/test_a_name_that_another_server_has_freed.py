"""What had been deleted through one API server could not be made again through another, where its
kind is of no namespace, until that one had heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from livesize.api.kinds.priority_class import PRIORITY_CLASSES
from livesize.store.interface import Change
from livesize.store.memory import MemoryStore
from unit.apiserver.conftest import Rig
from virtual_time import virtual_time

NAME = f"{PRIORITY_CLASSES.path()}/c"
CLASS = {"metadata": {"name": "c"}, "value": 5}


class LateStore(MemoryStore):
    """Those who watch while ``late`` is set hear of nothing until ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False
        self.go = asyncio.Event()

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        late = self.late
        async for batch in super().watch(prefix, after_revision=after_revision):
            if late:
                await self.go.wait()
            yield batch


@virtual_time
async def test_it_is_free_for_all_at_once() -> None:
    store = LateStore()
    first, second = Rig(store), Rig(store)
    await first.start()
    assert (await first.request("POST", PRIORITY_CLASSES.path(), CLASS)).status == 201
    store.late = True
    store.go.set()
    await second.start()
    store.go.clear()
    assert (await first.request("DELETE", NAME)).status == 200
    made = asyncio.create_task(second.request("POST", PRIORITY_CLASSES.path(), CLASS))
    for _ in range(20):
        await asyncio.sleep(0)
    store.go.set()
    async with asyncio.timeout(5):
        assert (await made).status == 201
    for rig in (first, second):
        await rig.stop()
