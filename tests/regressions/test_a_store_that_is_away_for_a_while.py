"""A store that could not be reached while a namespace was looked after ended the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.namespace import NAMESPACES
from livesize.apiserver.keys import key_of
from livesize.store.interface import Check, StoreUnavailableError, Write
from livesize.store.memory import MemoryStore
from unit.apiserver.conftest import Rig
from virtual_time import virtual_time

ROOT_CA = key_of(CONFIG_MAPS, "team", "kube-root-ca.crt")


class AwayStore(MemoryStore):
    away = False
    refused = 0

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        if self.away and any(write.key == ROOT_CA for write in writes):
            self.refused += 1
            raise StoreUnavailableError("it cannot be reached")
        return await super().commit(checks, writes)


@virtual_time
async def test_namespaces_are_looked_after_again_when_it_is_back() -> None:
    store = AwayStore()
    rig = Rig(store)
    await rig.start()
    store.away = True
    made = await rig.request("POST", NAMESPACES.path(), {"metadata": {"name": "team"}})
    assert made.status == 201
    async with asyncio.timeout(5):
        while not store.refused:
            await rig.clock.sleep(0.1)
        store.away = False
        while rig.cache.get(CONFIG_MAPS, ROOT_CA) is None:
            await rig.clock.sleep(0.1)
    await rig.stop()
