"""An agent may start while a child of a killed one still holds that one's lock.

A process that has just been made has the files of the agent until it becomes its program. An agent
that was started again in that moment was told that another one uses the folder, and ended.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from livesize.runtime.folder_lock import LET_GO_SECONDS, FolderLock
from livesize.runtime.interface import RuntimeCallError
from virtual_time import CLOCK, virtual_time


def held_lock(folder: Path) -> int:
    """The lock's file as another process has it open."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


@virtual_time
async def test_a_lock_that_is_let_go_in_time_is_taken(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    asyncio.get_running_loop().call_later(LET_GO_SECONDS / 2, os.close, held_lock(tmp_path))
    await lock.take(CLOCK)
    assert lock.is_held
    lock.release()


@virtual_time
async def test_another_agent_keeps_the_folder(tmp_path: Path) -> None:
    descriptor, lock = held_lock(tmp_path), FolderLock(tmp_path)
    with pytest.raises(RuntimeCallError, match="is used by another agent"):
        await lock.take(CLOCK)
    assert not lock.is_held
    os.close(descriptor)
