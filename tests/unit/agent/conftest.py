"""The world of the agent's tests, cleared away after each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.sim.loop import VirtualClock
from unit.agent.world import World


@pytest.fixture
async def world(tmp_path: Path, virtual_clock: VirtualClock) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.stop()
    await world.api.server.check_nothing_was_changed_in_place()
