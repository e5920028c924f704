"""Mounts of the kernel that volumes need, by mount(2).

The program ``mount`` is not used: it refuses a change of size where it may not change owners, and
takes milliseconds.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Protocol

from livesize.runtime.volumes.interface import MemorySize

_MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 2, 4, 32, 4096
_DETACH = 2
_FLAGS = _MS_NOSUID | _MS_NODEV


class Mounts(Protocol):
    """All of these raise OSError."""

    def below(self, folder: Path) -> list[Path]:
        """Mount points in ``folder``, the newest last."""
        ...

    def mount_memory(self, path: Path, size_bytes: int) -> None: ...

    def resize_memory(self, path: Path, size_bytes: int) -> None: ...

    def memory(self, path: Path) -> MemorySize: ...

    def bind(self, descriptor: int, path: Path) -> None:
        """What the descriptor is open on appears at ``path`` too."""
        ...

    def unmount(self, path: Path) -> None: ...


class KernelMounts:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def below(self, folder: Path) -> list[Path]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = (Path(_unescaped(line.split()[4])) for line in lines)
        return [point for point in points if point.is_relative_to(folder)]

    def mount_memory(self, path: Path, size_bytes: int) -> None:
        self._mount(b"tmpfs", path, b"tmpfs", _FLAGS, f"size={_size(size_bytes)},mode=0777")

    def resize_memory(self, path: Path, size_bytes: int) -> None:
        self._mount(b"tmpfs", path, None, _FLAGS | _MS_REMOUNT, f"size={_size(size_bytes)}")

    def memory(self, path: Path) -> MemorySize:
        facts = os.statvfs(path)
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        return MemorySize(facts.f_blocks * facts.f_frsize, used)

    def bind(self, descriptor: int, path: Path) -> None:
        source = f"/proc/self/fd/{descriptor}".encode()
        self._mount(source, path, None, _MS_BIND, "")

    def unmount(self, path: Path) -> None:
        self._check(self._libc.umount2(os.fsencode(path), _DETACH), path)

    def _mount(
        self, source: bytes, path: Path, kind: bytes | None, flags: int, options: str
    ) -> None:
        answer = self._libc.mount(
            source, os.fsencode(path), kind, ctypes.c_ulong(flags), options.encode() or None
        )
        self._check(answer, path)

    def _check(self, answer: int, path: Path) -> None:
        if answer == -1:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))


def _size(size_bytes: int) -> int:
    """To the kernel zero is no limit at all."""
    return max(size_bytes, 1)


def _unescaped(point: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, letter)
    return point
