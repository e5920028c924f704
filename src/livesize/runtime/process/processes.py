"""Processes that are not always our children: found again, watched and signalled, never mistaken.

A pid alone may have been given to somebody else since. A descriptor (pidfd) is opened first and
the identity checked afterwards, so a check that passes holds for as long as the descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path


class ProcessWatch:
    """Calls back once, from the event loop, when a process has ended."""

    def __init__(self, pid: int, descriptor: int, on_end: Callable[[], None]) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._ended)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _ended(self) -> None:
        self.close()
        with contextlib.suppress(ChildProcessError):  # not our child: init reaps it
            os.waitpid(self.pid, os.WNOHANG)
        self._on_end()


def open_process(pid: int, is_same: Callable[[int], bool]) -> int | None:
    """A descriptor of the process if it lives and is the one meant. The caller closes it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as failure:
        if failure.errno != errno.EINVAL:  # the number is that of a thread now (before Linux 6.9)
            raise
        return None
    if is_same(pid):
        return descriptor
    os.close(descriptor)
    return None


def signal_process(pid: int, is_same: Callable[[int], bool], number: signal.Signals) -> bool:
    """False: it does not live any more."""
    descriptor = open_process(pid, is_same)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def started_at_ticks(start_ticks: int) -> Callable[[int], bool]:
    """Is it the process that started then?"""
    return lambda pid: read_start_ticks(pid) == start_ticks


def has_argument(argument: str) -> Callable[[int], bool]:
    """Is it the process that was started with this argument? A dead one has none."""
    return lambda pid: argument.encode() in _command_line(pid)


def read_start_ticks(pid: int) -> int | None:
    """From /proc/PID/stat (proc(5)); None for one that has ended, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
