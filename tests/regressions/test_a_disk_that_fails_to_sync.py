"""What a disk loses is not told as promised, is written anew, and keeps nobody waiting for good.

After a failed fsync the kernel takes the pages for clean: the next one succeeds without them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.allocation.sqlite_file import SqliteFile, open_checkpoint
from livesize.api.resize_state import resize_state
from livesize.runtime.interface import PodGroup
from unit.agent.world import FileWorld, container


def entry(uid: str = "u") -> Allocation:
    size = {"name": "app", "requests": {"cpu": "1"}}
    return Allocation(uid, "default", "db", 1, (size,), (size,))


class Disk:
    """``fails``: so many syncs from now on."""

    def __init__(self) -> None:
        self.fails = 0
        self._sync = os.fdatasync

    def sync(self, descriptor: int) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError(5, "Input/output error")
        self._sync(descriptor)


@pytest.fixture(params=[0.0, float("inf")], ids=["slow", "quick"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A slow one is synced by a thread, a quick one by whoever waits for it."""
    disk = Disk()
    monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", request.param)
    monkeypatch.setattr("os.fdatasync", disk.sync)
    monkeypatch.setattr("livesize.agent.allocation.checkpoint.AGAIN_SECONDS", 0.05)
    return disk


@contextmanager
def loses() -> Iterator[None]:
    with pytest.raises(CheckpointError):
        yield


async def test_what_is_written_anew_does_not_hang_on_what_was_lost(
    tmp_path: Path, disk: Disk
) -> None:
    """SQLite reads its log up to the first record that is missing."""
    path = tmp_path / "checkpoint.db"
    checkpoint = await open_checkpoint(path)
    secured = SecuredEntry(checkpoint, None)
    disk.fails = 1
    secured.secure(entry())
    with loses():
        await secured.durable()
    secured.secure(entry())
    await secured.durable()
    copy = tmp_path / "without-its-log.db"
    shutil.copy(path, copy)
    found = await open_checkpoint(copy)
    assert await found.load() == (entry(),)
    await found.close()
    await checkpoint.close()


async def test_what_was_written_while_a_sync_failed_is_lost_too(tmp_path: Path, disk: Disk) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    disk.fails = 1
    first = checkpoint.save(entry("a"))
    checkpoint.sync()
    second = checkpoint.save(entry("b"))  # before the thread has come back
    for number in (first, second):
        with loses():
            await checkpoint.durable(number)
    await checkpoint.close()


async def test_two_failures_are_not_taken_for_one(tmp_path: Path, disk: Disk) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    disk.fails = 1
    first = checkpoint.save(entry("a"))
    with loses():
        await checkpoint.durable(first)
    disk.fails = 1
    second = checkpoint.save(entry("b"))
    with loses():
        await checkpoint.durable(second)
    with loses():
        await checkpoint.durable(first)
    await checkpoint.close()


async def test_what_was_lost_is_written_again_by_itself(tmp_path: Path, disk: Disk) -> None:
    checkpoint = await open_checkpoint(tmp_path / "checkpoint.db")
    disk.fails = 1
    number = checkpoint.save(entry())
    with loses():
        await checkpoint.durable(number)
    async with asyncio.timeout(5):
        while True:
            try:
                await checkpoint.durable(number)
                break
            except CheckpointError:
                await asyncio.sleep(0.01)
    await checkpoint.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FileWorld]:
    world = FileWorld(tmp_path)
    yield world
    await world.stop()


@pytest.fixture
def slow_to_tell(world: FileWorld) -> FileWorld:
    """As in production: what is applied at once is told as done only."""
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=5.0)
    return world


async def test_a_refusal_after_a_lost_promise_is_told_in_the_end(
    slow_to_tell: FileWorld, disk: Disk
) -> None:
    world = slow_to_tell
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    disk.fails = 1
    await world.api.resize("db", "app", cpu="1")
    await asyncio.sleep(0.03)
    await world.api.resize("db", "app", cpu="99999")
    await asyncio.sleep(0.03)
    world.machine.release_writes(PodGroup(uid))
    await world.phase("db", "Infeasible")


async def test_a_promise_that_could_not_be_written_is_not_told_by_a_refusal(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    await asyncio.sleep(0.2)  # what was noted is written

    def full(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteFile, "_put", full)
        with world.client.deaf():
            await world.api.resize("db", "app", cpu="1")
            await world.api.resize("db", "app", cpu="99999")
        await asyncio.sleep(0.1)
        told = resize_state(world.api.pod("db")).get("allocated", [])
        assert [one["requests"]["cpu"] for one in told] == ["500m"], "it never was in the file"
    await world.phase("db", "Infeasible")


async def test_that_a_resize_began_is_told_though_its_report_failed(
    slow_to_tell: FileWorld,
) -> None:
    world = slow_to_tell
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    await world.api.resize("db", "app", cpu="1")
    await asyncio.sleep(0.02)
    world.client.is_down = True
    world.machine.release_writes(PodGroup(uid))
    await world.until(lambda: world.quota_us(uid) == 100_000, "applied")
    await asyncio.sleep(0.02)
    await world.api.resize("db", "app", cpu="2")
    world.client.is_down = False
    await world.phase("db", "Done")
    await world.until(
        lambda: world.api.event_reasons("db").count("ResizeStarted") >= 2, "both have begun"
    )
