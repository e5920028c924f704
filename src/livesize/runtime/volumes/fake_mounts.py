"""Mounts that are only remembered: volumes without root, for tests and ``--runtime fake``."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from livesize.runtime.volumes.interface import MemorySize


class FakeMounts:
    """Volumes in memory are ordinary folders of which we know the size."""

    def __init__(self) -> None:
        self.points: dict[Path, int] = {}  # size in bytes; of a bind, 0

    def below(self, folder: Path) -> list[Path]:
        return [point for point in self.points if point.is_relative_to(folder)]

    def mount_memory(self, path: Path, size_bytes: int) -> None:
        self.points[path] = size_bytes

    def resize_memory(self, path: Path, size_bytes: int) -> None:
        if self.memory(path).used_bytes > size_bytes:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        self.points[path] = size_bytes

    def memory(self, path: Path) -> MemorySize:
        used = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return MemorySize(self.points[path], used)

    def bind(self, descriptor: int, path: Path) -> None:
        os.fstat(descriptor)
        self.points[path] = 0

    def unmount(self, path: Path) -> None:
        """What was in memory is gone."""
        del self.points[path]
        for file in path.rglob("*") if path.is_dir() else ():
            if not file.is_dir():
                file.unlink()
