"""Keeps a folder for one agent: two on one state folder would start everything twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from livesize.runtime.interface import RuntimeCallError


class FolderLock:
    """Held from ``take`` to ``release``, or until this process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    def take(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            self.release()
            raise RuntimeCallError(
                f"{self._folder} is used by another agent; give this one its own"
            ) from failure

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
