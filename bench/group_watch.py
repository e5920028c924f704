"""Sees a change of cgroup files the moment it is written, without looking again and again.

inotify tells of every write; a thread of its own sleeps until then, so watching takes nothing from
the servers being measured. The kernel likes to put whoever is woken on the core of whoever wakes
it, and there the eye would wait until the agent sleeps: it is let in before everybody else
(SCHED_FIFO), for the twentieth of a millisecond that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_IN_MODIFY = 0x2
_EVENTS_BYTES = 65536
_VALUE_BYTES = 64

_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """Waits until each of some files holds what it should."""

    def __init__(self, inotify: int, files: Mapping[Path, int], end: int) -> None:
        self._inotify = inotify
        self._files = files
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._wanted: Mapping[Path, bytes] = {}
        self._reached: asyncio.Future[float] | None = None

    def expect(self, wanted: Mapping[Path, str]) -> asyncio.Future[float]:
        """A future of the moment (``time.perf_counter``) at which every file holds its text."""
        self._reached = self._loop.create_future()
        self._wanted = {path: text.encode() for path, text in wanted.items()}
        return self._reached

    def run(self) -> None:
        """In the eye's own thread, until something can be read from ``end``. The time is taken
        first: reading back is not what is measured."""
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            ready, _, _ = select.select([self._inotify, self._end], [], [])
            now = time.perf_counter()
            if self._end in ready:
                return
            os.read(self._inotify, _EVENTS_BYTES)
            if self._wanted and all(self._holds(*one) for one in self._wanted.items()):
                self._wanted = {}
                self._loop.call_soon_threadsafe(self._settle, now)

    def _holds(self, path: Path, text: bytes) -> bool:
        return os.pread(self._files[path], _VALUE_BYTES, 0).strip() == text

    def _settle(self, at: float) -> None:
        if self._reached is not None and not self._reached.done():
            self._reached.set_result(at)


@contextmanager
def watching(*files: Path) -> Iterator[FileWatch]:
    with contextlib.ExitStack() as stack:
        inotify = _checked(_libc.inotify_init1(os.O_CLOEXEC))
        stack.callback(os.close, inotify)
        descriptors = {}
        for path in files:
            _checked(_libc.inotify_add_watch(inotify, os.fsencode(path), _IN_MODIFY))
            descriptors[path] = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptors[path])
        end, tell_end = os.pipe()
        stack.callback(os.close, end)
        watch = FileWatch(inotify, descriptors, end)
        thread = threading.Thread(target=watch.run, name="eye")
        thread.start()
        stack.callback(thread.join)
        stack.callback(os.close, tell_end)
        yield watch


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
