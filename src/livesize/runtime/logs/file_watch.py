"""Says when files have grown, without looking at them again and again (inotify(7)).

What happens within PAUSE_SECONDS is told once: a container that writes without pause costs
twenty wake-ups a second, not thousands.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

PAUSE_SECONDS = 0.05
_CHANGED = 0x2 | 0x400 | 0x800  # IN_MODIFY, IN_DELETE_SELF, IN_MOVE_SELF
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Must be made in the event loop. ``on_change`` is called with a path that was added."""

    def __init__(self, on_change: Callable[[Path], None]) -> None:
        self._on_change = on_change
        self._paths: dict[int, Path] = {}
        self._numbers: dict[Path, int] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(
                number,
                f"logs cannot be watched: {os.strerror(number)}; where there are too many watchers,"
                " raise fs.inotify.max_user_instances",
            )
        self._loop.add_reader(self._descriptor, self._readable)

    def add(self, path: Path) -> bool:
        """False: the file is not there, or the kernel watches no more files for us."""
        if path in self._numbers:
            return True
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _CHANGED)
        if number < 0:
            return False
        before = self._paths.get(number)  # another name of the same file
        if before is not None:
            self._numbers.pop(before, None)
        self._paths[number] = path
        self._numbers[path] = number
        return True

    def drop(self, path: Path) -> None:
        number = self._numbers.pop(path, None)
        if number is not None:
            del self._paths[number]
            _libc.inotify_rm_watch(self._descriptor, number)

    def close(self) -> None:
        if self._descriptor < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _readable(self) -> None:
        changed: dict[Path, None] = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                for number in _numbers(os.read(self._descriptor, 65536)):
                    path = self._paths.get(number)
                    if path is not None:
                        changed[path] = None
        self._loop.remove_reader(self._descriptor)
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._listen_again)
        for path in changed:
            self._on_change(path)

    def _listen_again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._descriptor, self._readable)


def _numbers(events: bytes) -> list[int]:
    found, position = [], 0
    while position < len(events):
        number, _, _, name_bytes = _HEAD.unpack_from(events, position)
        found.append(number)
        position += _HEAD.size + name_bytes
    return found
