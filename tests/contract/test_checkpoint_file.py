"""What the checkpoint may rely on, of its file on a disk and of the one in memory alike."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Protocol

import apsw
import pytest

from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.checkpoint_file import CheckpointError, CheckpointFile, SyncMode
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.allocation.memory_file import MemoryDisk
from livesize.agent.allocation.sqlite_file import SqliteFile

Contents = tuple[tuple[str, bytes], ...]


class Machine(Protocol):
    """One disk, and processes that come and go."""

    async def start(self) -> CheckpointFile: ...
    def kill(self) -> None: ...
    async def lose_power(self) -> None:
        """The disk has nothing that was not synced."""
        ...

    def fail_syncs(self, count: int) -> None: ...
    def fill_disk(self) -> None: ...


class MemoryMachine:
    def __init__(self) -> None:
        self.disk = MemoryDisk()

    async def start(self) -> CheckpointFile:
        return self.disk.open()

    def kill(self) -> None:
        self.disk.kill()

    async def lose_power(self) -> None:
        self.disk.lose_power()

    def fail_syncs(self, count: int) -> None:
        self.disk.failing_syncs = count

    def fill_disk(self) -> None:
        self.disk.is_full = True


class SqliteMachine:
    """What a loss of power leaves is copied: SQLite's log as far as it was synced. A record that a
    failed sync has lost, and all that follow, are worthless until the log begins anew."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._path = folder / "0" / "checkpoint.db"
        self._monkeypatch = monkeypatch
        self._files: list[SqliteFile] = []
        self._failing = 0
        self._synced_bytes = 0
        self._has_gap = False
        self._fdatasync = os.fdatasync
        monkeypatch.setattr("os.fdatasync", self._sync)

    async def start(self) -> CheckpointFile:
        file = await SqliteFile.open(self._path)
        self._files.append(file)
        return file

    def kill(self) -> None:
        """A file that nobody closes looks to the next process like one whose process was killed."""

    async def lose_power(self) -> None:
        after = self._folder / f"{len(self._files)}" / "checkpoint.db"
        after.parent.mkdir()
        shutil.copy(self._path, after)
        left = self._log.read_bytes()[: self._synced_bytes]
        after.with_name("checkpoint.db-wal").write_bytes(left)
        self._path = after

    def fail_syncs(self, count: int) -> None:
        self._failing = count

    def fill_disk(self) -> None:
        def full(*_: object) -> None:
            raise apsw.FullError("database or disk is full")

        self._monkeypatch.setattr(SqliteFile, "_put", full)

    async def close(self) -> None:
        for file in self._files:
            await file.close()

    @property
    def _log(self) -> Path:
        return self._path.with_name("checkpoint.db-wal")

    def _sync(self, descriptor: int) -> None:
        self._fdatasync(descriptor)
        size_bytes = self._log.stat().st_size
        if self._failing:
            self._failing -= 1
            self._has_gap = True
            raise OSError(5, "Input/output error")
        if size_bytes <= self._synced_bytes:  # begun anew
            self._has_gap = False
        if not self._has_gap:
            self._synced_bytes = size_bytes


@pytest.fixture(params=["memory", "sqlite"])
async def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if request.param == "memory":
        yield MemoryMachine()
        return
    sqlite = SqliteMachine(tmp_path, monkeypatch)
    yield sqlite
    await sqlite.close()


@pytest.fixture(params=["now", "started"])
def sync(request: pytest.FixtureRequest):
    """Both ways to sync what was appended."""

    async def sync(file: CheckpointFile) -> None:
        if request.param == "now":
            file.sync_now()
        else:
            await file.start_sync(SyncMode.APPENDED)

    return sync


async def found(machine: Machine) -> Contents:
    return await (await machine.start()).read()


async def test_contents_are_read_in_order_of_uid(machine: Machine) -> None:
    file = await machine.start()
    assert await file.read() == ()
    file.write({"b": b"1", "c": b"2"})
    file.write({"a": b"3"})
    file.write({"b": b"4", "c": None, "never": None})
    assert await file.read() == (("a", b"3"), ("b", b"4"))


async def test_what_was_written_survives_a_kill(machine: Machine) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    machine.kill()
    assert await found(machine) == (("a", b"1"),)


async def test_a_loss_of_power_takes_what_was_not_synced(machine: Machine, sync) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    file.write({"b": b"1"})
    await sync(file)
    file.write({"a": b"2", "b": None})
    await machine.lose_power()
    assert await found(machine) == (("a", b"1"), ("b", b"1"))


async def test_a_process_that_starts_syncs_what_the_killed_one_wrote(machine: Machine) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    machine.kill()
    await machine.start()
    await machine.lose_power()
    assert await found(machine) == (("a", b"1"),)


async def test_a_write_that_fails_changes_nothing(machine: Machine) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    machine.fill_disk()
    with pytest.raises(CheckpointError, match="cannot write"):
        file.write({"a": b"2", "b": b"2"})
    assert await file.read() == (("a", b"1"),)


async def test_a_failed_sync_says_so(machine: Machine, sync) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    machine.fail_syncs(1)
    with pytest.raises(CheckpointError, match="cannot sync"):
        await sync(file)


async def test_after_a_failed_sync_only_a_rewritten_one_can_be_relied_on(
    machine: Machine, sync
) -> None:
    file = await machine.start()
    file.write({"a": b"1"})
    machine.fail_syncs(1)
    with pytest.raises(CheckpointError):
        await sync(file)
    file.write({"b": b"1"})
    await file.start_sync(SyncMode.REWRITTEN)
    file.write({"c": b"1"})
    await sync(file)
    await machine.lose_power()
    assert await found(machine) == (("a", b"1"), ("b", b"1"), ("c", b"1"))


async def test_what_a_failed_sync_lost_an_appended_one_does_not_bring_back(
    machine: Machine, sync
) -> None:
    """A kernel takes pages that it could not write for clean."""
    file = await machine.start()
    file.write({"a": b"1"})
    machine.fail_syncs(1)
    with pytest.raises(CheckpointError):
        await sync(file)
    file.write({"a": b"2"})
    await sync(file)
    await machine.lose_power()
    assert await found(machine) == ()


def entry(uid: str, generation: int = 1) -> Allocation:
    return Allocation(uid, "default", "db", generation, (), ())


async def test_the_checkpoint_keeps_its_word_over_either(machine: Machine) -> None:
    """Durable means: still there after a loss of power, also on a disk that failed before."""
    checkpoint = Checkpoint(await machine.start())
    await checkpoint.durable(checkpoint.save(entry("a")))
    machine.fail_syncs(1)
    lost = checkpoint.save(entry("b"))
    with pytest.raises(CheckpointError):
        await checkpoint.durable(lost)
    assert not checkpoint.is_sound
    await checkpoint.durable(checkpoint.save(entry("c")))
    assert checkpoint.is_sound
    await checkpoint.durable(lost)
    checkpoint.save(entry("a", generation=2))
    await machine.lose_power()
    again = Checkpoint(await machine.start())
    assert await again.load() == (entry("a"), entry("b"), entry("c"))


async def test_a_killed_process_in_memory_writes_no_more() -> None:
    """Its timers may still fire: the event loop is that of the whole simulation."""
    disk = MemoryDisk(syncs_quickly=False, sync_seconds=0.001)
    checkpoint = Checkpoint(disk.open())
    number = checkpoint.save(entry("a"))
    waiting = asyncio.ensure_future(checkpoint.durable(number))
    await asyncio.sleep(0)
    checkpoint.note(entry("b"))
    disk.kill()
    checkpoint.save(entry("c"))
    await asyncio.sleep(0.15)
    assert not waiting.done(), "nobody tells a dead process"
    waiting.cancel()
    assert list(disk.contents()) == ["a"]


@pytest.mark.parametrize(("survivors", "left"), [(0, []), (1, ["a"]), (2, ["a", "b"])])
def test_memory_may_keep_the_first_of_what_was_not_synced(survivors: int, left: list[str]) -> None:
    disk = MemoryDisk()
    file = disk.open()
    file.write({"a": b"1"})
    file.write({"b": b"1"})
    disk.lose_power(survivors)
    assert list(disk.contents()) == left
