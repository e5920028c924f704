"""Keeps a folder for one agent: two on one state folder would start everything twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.runtime.interface import RuntimeCallError

LET_GO_SECONDS = 2.0
"""A process that a killed agent had just begun to start holds its files until it is the program."""
_TRY_SECONDS = 0.02


class FolderLock:
    """Held from ``take`` to ``release``, or until this process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    async def take(self, clock: Clock) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = clock.monotonic() + LET_GO_SECONDS
        while not self._is_free():
            if clock.monotonic() >= until:
                self.release()
                raise RuntimeCallError(
                    f"{self._folder} is used by another agent; give this one its own"
                )
            await clock.sleep(_TRY_SECONDS)

    def _is_free(self) -> bool:
        """Then it is ours."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
