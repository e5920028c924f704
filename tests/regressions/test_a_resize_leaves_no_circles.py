"""An attempt and the line that tells its progress knew each other: eighty objects for each resize
waited for the garbage collector, which then kept the next resize waiting for two milliseconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.agent.resize.attempt import ResizeAttempt
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_what_a_resize_has_made_goes_without_the_collector(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    for cpu in ("1", "500m", "2"):
        await world.api.resize("db", "app", cpu=cpu)
        await world.phase("db", "Done")
    await world.stop()
    left = [one for one in gc.get_objects() if isinstance(one, ResizeAttempt)]
    assert left == []
