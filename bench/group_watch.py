"""Sees a change of cgroup files the moment it is written, without looking again and again.

inotify tells of every write; the loop sleeps until then, so watching takes nothing from the
servers being measured.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_IN_MODIFY = 0x2
_EVENTS_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Waits until each of some files holds what it should."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wanted: Mapping[Path, str] = {}
        self._reached: asyncio.Future[float] | None = None

    def expect(self, wanted: Mapping[Path, str]) -> asyncio.Future[float]:
        """A future of the moment (``time.perf_counter``) at which every file holds its text."""
        self._wanted = wanted
        self._reached = asyncio.get_running_loop().create_future()
        return self._reached

    def look(self) -> None:
        """Something was written. The time is taken first: reading back is not what is measured."""
        now = time.perf_counter()
        os.read(self._descriptor, _EVENTS_BYTES)
        if self._reached is None or self._reached.done():
            return
        if all(path.read_text().strip() == text for path, text in self._wanted.items()):
            self._reached.set_result(now)


@contextmanager
def watching(*files: Path) -> Iterator[FileWatch]:
    descriptor = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    loop = asyncio.get_running_loop()
    try:
        for path in files:
            _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY))
        watch = FileWatch(descriptor)
        loop.add_reader(descriptor, watch.look)
        yield watch
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
