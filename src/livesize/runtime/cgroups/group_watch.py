"""Says when a control group is removed, whoever removed it (inotify(7)).

The kernel tells of a directory's end only whoever watches the one above. What cannot be watched,
because the machine allows no more watches, is found by the next look of the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable

from livesize.machinery.telemetry import get_logger

_DELETED, _WATCH_ENDED = 0x200, 0x8000  # IN_DELETE, IN_IGNORED
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)

log = get_logger("runtime.cgroups")


class GroupWatch:
    """Must be made in the event loop. ``on_removed`` gets the folder and the name in it."""

    def __init__(self, on_removed: Callable[[str, str], None]) -> None:
        self._on_removed = on_removed
        self._folders: dict[int, str] = {}
        self._loop = asyncio.get_running_loop()
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            log.warning("groups are not watched", reason=os.strerror(ctypes.get_errno()))
            return
        self._loop.add_reader(self._descriptor, self._readable)

    def add(self, folder: str) -> None:
        """What is removed directly below it is told from now on; harmless when done again."""
        if self._descriptor < 0:
            return
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _DELETED)
        if number < 0:
            reason = os.strerror(ctypes.get_errno())
            log.warning("group is not watched", group=folder, reason=reason)
        else:
            self._folders[number] = folder

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._descriptor >= 0:
                self._take_in(os.read(self._descriptor, 65536))

    def _take_in(self, events: bytes) -> None:
        position = 0
        while position < len(events):
            number, mask, _, name_bytes = _HEAD.unpack_from(events, position)
            position += _HEAD.size
            name = os.fsdecode(events[position : position + name_bytes].rstrip(b"\0"))
            position += name_bytes
            if mask & _WATCH_ENDED:
                self._folders.pop(number, None)
            elif number in self._folders:
                self._on_removed(self._folders[number], name)
