"""Tracks which writes of the checkpoint are in its file, on disk, or lost. Pure bookkeeping.

The checkpoint tells the tracker what happened (an entry was added, a write or a sync succeeded or
failed) and asks what to do next. Promises (tests/unit/agent/test_durability.py):

- A write is ON_DISK only when a sync that began after it has succeeded.
- A failed sync loses everything that is not on disk, also what was written while it ran: a disk
  that failed once may report success later and still not have the data. All of it is pending
  again, and so part of the next write; the next sync is REWRITTEN. Until that sync succeeds,
  every lost write stays LOST.
- Writes keep their order: no entry is in the file without all entries that were added before it.
"""

from __future__ import annotations

import enum

from livesize.agent.allocation.checkpoint_file import Changes, SyncMode


class WriteState(enum.Enum):
    IN_FILE = "in file"  # survives the end of the process
    ON_DISK = "on disk"  # survives a loss of power, too
    LOST = "lost"


class DurabilityTracker:
    """Numbers the writes of one file, from 1."""

    def __init__(self) -> None:
        self._pending: dict[str, bytes | None] = {}
        self._written = self._synced = 0
        self._unsynced: dict[str, bytes | None] = {}  # in the file, and part of no sync yet
        self._lost = range(0)
        self._syncing: int | None = None  # the newest write that the running sync covers
        self._being_synced: dict[str, bytes | None] = {}

    # Writing

    def add(self, uid: str, content: bytes | None) -> None:
        """The next write contains it; None removes the entry."""
        self._pending[uid] = content

    @property
    def pending(self) -> Changes:
        """What the next write has to contain. It stays so until ``wrote``."""
        return self._pending

    def wrote(self) -> int:
        """All that was pending is in the file. Return the number of this write."""
        self._unsynced |= self._pending
        self._pending = {}
        self._written += 1
        return self._written

    # Syncing

    @property
    def written(self) -> int:
        """The number of the newest write."""
        return self._written

    @property
    def is_sound(self) -> bool:
        """No write is lost."""
        return not self._lost

    def state_of(self, number: int) -> WriteState:
        if number in self._lost:
            return WriteState.LOST
        return WriteState.IN_FILE if number > self._synced else WriteState.ON_DISK

    def is_alone(self, number: int) -> bool:
        """This write is the only one to sync, and nothing speaks against syncing it on the spot.
        Where there are more, other tasks are at work, and should not have to wait."""
        alone = number == self._written == self._synced + 1
        return alone and self._syncing is None and not self._lost

    def begin_sync(self) -> SyncMode | None:
        """The sync to begin now; None while one runs, or where all is on disk."""
        if self._syncing is not None or self._synced == self._written:
            return None
        self._syncing = self._written
        self._being_synced, self._unsynced = self._unsynced, {}
        return SyncMode.REWRITTEN if self._lost else SyncMode.APPENDED

    def synced(self) -> int:
        """The running sync succeeded. Return the newest write that is on disk."""
        assert self._syncing is not None, "begin_sync comes first"
        self._synced, self._syncing, self._being_synced = self._syncing, None, {}
        self._lost = range(0)
        return self._synced

    def sync_failed(self) -> int:
        """The running sync failed. Return the newest write that is lost."""
        assert self._syncing is not None, "begin_sync comes first"
        self._lost = range(self._lost.start or self._synced + 1, self._written + 1)
        self._pending = {**self._being_synced, **self._unsynced, **self._pending}
        self._unsynced, self._being_synced, self._syncing = {}, {}, None
        self._synced = self._written
        return self._written
