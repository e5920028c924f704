"""Lowers the memory limit of a version 2 group without killing anybody in it.

The kernel takes any limit and kills whoever holds more. So pages that can be had are given back
first, piece by piece; and the limit falls only when all that is in use fits below it, and what
cannot be had fits with a margin. Between that last look and the limit the workload may not grow:

    note     what memory.high was, and that the group ran, on the group itself
    high     the target: whoever grows beyond it now is slowed down, not killed
    reclaim  what came back meanwhile
    freeze   nobody in the group runs any more
    look     once more; what does not fit is refused, and the limit stays as it was
    max      the limit
    thaw, high as it was, note away

The note is an extended attribute of the group: it lasts as long as the group and is there for the
next agent when this one is killed in the middle (``restore_limits``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterator

from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.files import (
    read_number,
    read_table,
    read_text,
    write_raw,
    write_text,
)
from livesize.runtime.cgroups.interface import unreclaimable_bytes
from livesize.runtime.interface import GoneError, MemoryInUseError, RuntimeCallError

RECLAIM_SECONDS = 2.0  # so long pages are given back before the workload is held up
WINDOW_SECONDS = 2.0  # so long it may be held up
FREEZE_SECONDS = 0.2  # a group that has not stopped by then goes on
_PIECE_BYTES = 64 * 1024 * 1024
_NOTE = "user.livesize.narrowing"
_NOT_THERE = (errno.ENODATA, errno.EOPNOTSUPP)


def narrow(group: str, target_bytes: int, margin_bytes: int, clock: Clock) -> None:
    """Lower memory.max of the group in this directory; refuse with MemoryInUseError, and leave
    everything as it was, where that would kill."""
    _look(group, target_bytes, margin_bytes)
    if _usage(group) + margin_bytes <= target_bytes:
        write_text(f"{group}/memory.max", str(target_bytes))
        return
    aim_bytes = target_bytes - margin_bytes
    _reclaim(group, aim_bytes, clock, RECLAIM_SECONDS)
    _look_at_all(group, target_bytes, margin_bytes)
    with _window(group, target_bytes):
        _reclaim(group, aim_bytes, clock, WINDOW_SECONDS)
        with _frozen(group):
            _look_at_all(group, target_bytes, margin_bytes)
            write_text(f"{group}/memory.max", str(target_bytes))


def restore_limits(group: str) -> bool:
    """Undo what an agent that was killed in the middle left behind; true if there was any."""
    try:
        high, _, frozen = os.getxattr(group, _NOTE).decode().partition(" ")
    except OSError as failure:
        if failure.errno in _NOT_THERE or isinstance(failure, FileNotFoundError):
            return False
        raise
    _put_back(group, high, frozen)
    return True


def _look(group: str, target_bytes: int, margin_bytes: int) -> None:
    """What cannot be had, and a margin, fit."""
    held_bytes = unreclaimable_bytes(read_table(f"{group}/memory.stat"))
    if held_bytes + margin_bytes > target_bytes:
        raise _in_use(group, target_bytes, held_bytes, margin_bytes)


def _look_at_all(group: str, target_bytes: int, margin_bytes: int) -> None:
    """And all that is in use fits: pages that wait for a disk cannot be had in time."""
    _look(group, target_bytes, margin_bytes)
    usage_bytes = _usage(group)
    if usage_bytes > target_bytes:
        raise _in_use(group, target_bytes, usage_bytes, 0)


def _reclaim(group: str, aim_bytes: int, clock: Clock, seconds: float) -> None:
    """Until usage is down there, nothing more is to be had, or time is up."""
    deadline = clock.monotonic() + seconds
    while (excess_bytes := _usage(group) - aim_bytes) > 0 and clock.monotonic() < deadline:
        before_bytes = excess_bytes
        with contextlib.suppress(OSError):  # EAGAIN: not all of it; ENOENT: before Linux 5.19
            write_raw(f"{group}/memory.reclaim", str(min(excess_bytes, _PIECE_BYTES)))
        if _usage(group) - aim_bytes >= before_bytes:
            return


@contextlib.contextmanager
def _window(group: str, target_bytes: int) -> Iterator[None]:
    """Noted also where somebody slows it down below that already, and memory.high stays: it will
    be frozen."""
    high = read_text(f"{group}/memory.high")
    frozen = read_text(f"{group}/cgroup.freeze")
    try:
        os.setxattr(group, _NOTE, f"{high} {frozen}".encode())
    except FileNotFoundError as failure:
        raise GoneError(f"{group} is gone") from failure
    except OSError as failure:
        raise RuntimeCallError(f"cannot note on {group} that it is made smaller") from failure
    try:
        if high == "max" or int(high) > target_bytes:
            write_text(f"{group}/memory.high", str(target_bytes))
        yield
    finally:
        with contextlib.suppress(GoneError):
            _put_back(group, high, frozen)


@contextlib.contextmanager
def _frozen(group: str) -> Iterator[None]:
    """A group that somebody else has stopped stays so. One that cannot be stopped in time is
    looked at all the same: its growth is slowed down, and the margin is there for the rest."""
    was = read_text(f"{group}/cgroup.freeze")
    write_text(f"{group}/cgroup.freeze", "1")
    try:
        _wait_frozen(group)
        yield
    finally:
        with contextlib.suppress(GoneError):
            write_text(f"{group}/cgroup.freeze", was)


def _wait_frozen(group: str) -> None:
    """The kernel tells of it on cgroup.events."""
    descriptor = os.open(f"{group}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLPRI)
        for _ in range(3):  # the group may have been emptied meanwhile, which is told too
            if b"frozen 1" in os.pread(descriptor, 4096, 0):
                return
            poller.poll(FREEZE_SECONDS * 1000 / 3)
    finally:
        os.close(descriptor)


def _put_back(group: str, high: str, frozen: str) -> None:
    write_text(f"{group}/cgroup.freeze", frozen)
    write_text(f"{group}/memory.high", high)
    with contextlib.suppress(OSError):
        os.removexattr(group, _NOTE)


def _usage(group: str) -> int:
    return read_number(f"{group}/memory.current")


def _in_use(group: str, target_bytes: int, usage_bytes: int, margin_bytes: int) -> MemoryInUseError:
    limit = read_text(f"{group}/memory.max")
    stays_bytes = None if limit == "max" else int(limit)
    return MemoryInUseError(group, target_bytes, usage_bytes, stays_bytes, margin_bytes)
