"""The checkpoint's file in memory, for the simulator and tests: no thread, no clock of its own.

``MemoryDisk`` is what a machine has; each agent process opens a ``MemoryFile`` on it. What a file
has written survives ``kill``. ``lose_power`` may take whatever was not synced: all of it, or all
but the first writes, since later records of a log are worthless without the earlier ones. After a
failed sync, appended syncs report success and bring nothing to disk, as a kernel's do.
"""

from __future__ import annotations

import asyncio

from livesize.agent.allocation.checkpoint_file import Changes, CheckpointError, SyncMode


class MemoryDisk:
    def __init__(self, *, syncs_quickly: bool = True, sync_seconds: float = 0.0) -> None:
        self.syncs_quickly = syncs_quickly
        self.sync_seconds = sync_seconds  # by the event loop's time, where the loop goes on
        self.is_full = False
        self.failing_syncs = 0  # so many, from now on
        self._synced: dict[str, bytes] = {}
        self._unsynced: list[Changes] = []
        self._has_gap = False
        self._file: MemoryFile | None = None

    def open(self) -> MemoryFile:
        """For a new process, after the end of the one before. It syncs what it finds."""
        self.kill()
        if not self._has_gap:
            self._synced, self._unsynced = self.contents(), []
        self._file = MemoryFile(self)
        return self._file

    def kill(self) -> None:
        """The process ends, at this moment: it writes and syncs no more."""
        if self._file is not None:
            self._file.is_open = False
            self._file = None

    def lose_power(self, surviving_writes: int = 0) -> None:
        """``surviving_writes``: so many of those that were not synced reached the disk anyway."""
        self.kill()
        survivors = 0 if self._has_gap else surviving_writes
        self._unsynced, self._has_gap = self._unsynced[:survivors], False

    def contents(self) -> dict[str, bytes]:
        """What the next process would find."""
        found = dict(self._synced)
        for changes in self._unsynced:
            _apply(changes, found)
        return found

    def write(self, changes: Changes) -> None:
        if self.is_full:
            raise CheckpointError("cannot write to memory: the disk is full")
        self._unsynced.append(dict(changes))

    def sync(self, mode: SyncMode, writes: int) -> None:
        """The first ``writes`` of those that are not synced, or all contents."""
        if self.failing_syncs:
            self.failing_syncs -= 1
            self._has_gap = True
            raise CheckpointError("cannot sync memory: the disk failed")
        if mode is SyncMode.REWRITTEN:
            self._synced, self._unsynced, self._has_gap = self.contents(), [], False
        elif not self._has_gap:
            for changes in self._unsynced[:writes]:
                _apply(changes, self._synced)
            del self._unsynced[:writes]

    @property
    def unsynced_writes(self) -> int:
        return len(self._unsynced)


class MemoryFile:
    name = "memory"

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.is_open = True

    @property
    def syncs_quickly(self) -> bool:
        return self._disk.syncs_quickly

    async def read(self) -> tuple[tuple[str, bytes], ...]:
        return tuple(sorted(self._disk.contents().items()))

    def write(self, changes: Changes) -> None:
        if self.is_open:
            self._disk.write(changes)

    def sync_now(self) -> None:
        if self.is_open:
            self._disk.sync(SyncMode.APPENDED, self._disk.unsynced_writes)

    def start_sync(self, mode: SyncMode) -> asyncio.Future[None]:
        """The future of a process that was killed never ends."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        loop.call_later(
            self._disk.sync_seconds, self._finish_sync, mode, self._disk.unsynced_writes, done
        )
        return done

    def _finish_sync(self, mode: SyncMode, writes: int, done: asyncio.Future[None]) -> None:
        if not self.is_open or done.done():
            return
        try:
            self._disk.sync(mode, writes)
        except CheckpointError as failure:
            done.set_exception(failure)
        else:
            done.set_result(None)

    async def close(self) -> None:
        self.is_open = False


def _apply(changes: Changes, contents: dict[str, bytes]) -> None:
    for uid, content in changes.items():
        if content is None:
            contents.pop(uid, None)
        else:
            contents[uid] = content
