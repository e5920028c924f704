"""The small file interface below the checkpoint: contents by uid, written at once, synced later.

``write`` returns when the change survives the end of the process. Only a sync makes it survive a
loss of power. The checkpoint decides what is written and synced, and when; a file makes no choice
but how to wait for its disk. SQLite (sqlite_file.py) and memory (memory_file.py) implement it, and
both pass one contract suite (tests/contract/test_checkpoint_file.py).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from typing import Protocol

Changes = Mapping[str, bytes | None]
"""New contents by uid; None removes one."""


class CheckpointError(Exception):
    """The file cannot be used: a newer livesize wrote it, or the disk failed."""


class SyncMode(enum.Enum):
    APPENDED = "appended"  # what was written since the last sync
    REWRITTEN = "rewritten"  # all contents, without relying on anything a failed sync may have lost


class CheckpointFile(Protocol):
    """All calls come from one event loop."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def syncs_quickly(self) -> bool:
        """A sync is likely to take no longer than the event loop may stand still."""
        ...

    async def read(self) -> tuple[tuple[str, bytes], ...]:
        """All contents, in order of uid; raises CheckpointError."""
        ...

    def write(self, changes: Changes) -> None:
        """Write all of ``changes`` or none, after all earlier ones; raises CheckpointError."""
        ...

    def sync_now(self) -> None:
        """Bring what was written since the last sync to disk, here; raises CheckpointError."""
        ...

    def start_sync(self, mode: SyncMode) -> asyncio.Future[None]:
        """The same, without holding up the event loop; the future may fail with CheckpointError."""
        ...

    async def close(self) -> None: ...
