"""Tells in which order cgroup files were written: inotify, the kernel's own record."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from system.groups import IS_V2, ROOT, GroupFiles

_IN_MODIFY = 0x2
_EVENT = struct.Struct("iIII")
CPU = ("", "cpu.max") if IS_V2 else ("cpu", "cpu.cfs_quota_us")
MEMORY = ("", "memory.max") if IS_V2 else ("memory", "memory.limit_in_bytes")


class Writes:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._names: dict[int, str] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)

    def follow(self, name: str, group: GroupFiles) -> Self:
        """Writes to its limits are told as NAME:cpu and NAME:memory."""
        for resource, (controller, file) in (("cpu", CPU), ("memory", MEMORY)):
            path: Path = ROOT / controller / group.path / file
            number = self._libc.inotify_add_watch(
                self._descriptor, os.fsencode(path), ctypes.c_uint32(_IN_MODIFY)
            )
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._names[number] = f"{name}:{resource}"
        return self

    def taken(self) -> list[str]:
        """What was written since the last call, each file once, in order of the first write."""
        try:
            queue = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        names = [self._names[event[0]] for event in _EVENT.iter_unpack(queue)]
        return list(dict.fromkeys(names))


@contextmanager
def following_writes() -> Iterator[Writes]:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        yield Writes(descriptor)
    finally:
        os.close(descriptor)
