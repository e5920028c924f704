"""An agent whose disk is slow, or fails: a thread waits for it, in real time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from livesize.runtime.interface import ContainerGroup
from unit.agent.world import FileWorld, container


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FileWorld]:
    world = FileWorld(tmp_path)
    yield world
    await world.stop()


class Disk:
    """A disk that takes its time, or fails. It was slow before, so a thread waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = threading.Event()
        self.fails = False
        monkeypatch.setattr("livesize.machinery.disk_pace.QUICK_SECONDS", -1.0)
        monkeypatch.setattr("os.fdatasync", self._sync)

    def release(self) -> None:
        self._free.set()

    def _sync(self, _descriptor: int) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the loop stands still"
        assert self._free.wait(10)
        if self.fails:
            raise OSError(5, "Input/output error")


async def test_the_machine_does_not_wait_for_the_disk_but_whoever_is_told_does(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    disk, slow = Disk(monkeypatch), ContainerGroup(uid, "app")
    world.machine.hold_writes(slow)  # what is done at once is told with Done (ADR 0065)
    try:
        await world.api.resize("db", "app", cpu="1")
        await world.until(lambda: world.pod_quota_us(uid) == 100_000, "it has begun")
        with apsw.Connection(str(world.path)) as other:  # sees what a crash would leave
            left = other.execute("SELECT entry ->> 'generation' FROM allocations").get
        assert left == 2
        await asyncio.sleep(0.05)
        assert world.api.phase("db") == "Requested", "not told before it is on disk"
    finally:
        disk.release()
    await world.phase("db", "InProgress")
    world.machine.release_writes(slow)
    await world.phase("db", "Done")


async def test_a_promise_that_does_not_reach_the_disk_is_not_told(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    disk = Disk(monkeypatch)
    disk.fails = True
    disk.release()
    slow = ContainerGroup(uid, "app")
    world.machine.hold_writes(slow)
    await world.api.resize("db", "app", cpu="1")
    await world.until(lambda: world.pod_quota_us(uid) == 100_000, "it has begun")
    await asyncio.sleep(0.1)  # it tries again and again
    assert world.api.phase("db") == "Requested"
    disk.fails = False
    world.machine.release_writes(slow)
    await world.phase("db", "Done")
