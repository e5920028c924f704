"""The rigs of the unit tests, for bugs that were found and must not come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unit.agent.world import World
from unit.apiserver.conftest import Rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await made.start()
    yield made
    await made.check_nothing_was_changed_in_place()
    await made.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.stop()
    await made.api.server.check_nothing_was_changed_in_place()
