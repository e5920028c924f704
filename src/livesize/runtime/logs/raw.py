"""Logs that a workload writes by itself: plain bytes, with times beside them (times.py).

The file is one for the whole life of a container and its offsets never change: what is too old is
given back to the disk as a hole at its beginning, which no writer and no reader notices. So nothing
can be lost between two files, and following is reading on.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from livesize.runtime.logs.times import LogTimes, forget_before
from livesize.runtime.streams import LogLimits, LogLine, LogLines, LogQuery, NoLogError

PIECE_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 1024 * 1024
_PUNCH_HOLE_KEEP_SIZE = 0x2 | 0x1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Growth(msgspec.Struct, frozen=True):
    """How a log that is followed is waited for. ``is_live`` is asked before it is read to its end:
    what comes after a False is nothing."""

    is_live: Callable[[], bool]
    grown: Callable[[], Awaitable[None]]


def times_path(log: Path) -> Path:
    return log.with_suffix(".times")


async def read_raw(log: Path, query: LogQuery, growth: Growth | None = None) -> LogLines:
    """Whole lines, several at once; with ``growth`` until the log has ended."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        raise NoLogError(f"there is no log at {log.name}") from None
    with file:
        yield ()
        times = LogTimes(times_path(log))
        reader = _Lines(file, times, _first_offset(file, times, query))
        while True:
            is_live = growth is not None and growth.is_live()
            while lines := reader.take():
                yield lines
            if growth is None or not is_live:
                break
            await growth.grown()
        rest = reader.rest()
        if rest:
            yield rest


def shorten(log: Path, size: int, limits: LogLimits) -> int:
    """Give the oldest lines back to the disk; returns where the log begins now."""
    kept = limits.max_bytes * max(limits.max_files - 1, 1)
    with log.open("r+b") as file:
        start = _after_newline(file, max(size - kept, 0))
        # Told first: whoever begins to read in between must not see the hole.
        forget_before(times_path(log), start)
        if _libc.fallocate(file.fileno(), _PUNCH_HOLE_KEEP_SIZE, 0, start) == 0:
            return start
        # A file system without holes: all of it goes. The workload appends, so it goes on at 0.
        forget_before(times_path(log), 0)
        file.truncate(0)
        return 0


class _Lines:
    def __init__(self, file: BinaryIO, times: LogTimes, offset: int) -> None:
        self._file = file
        self._times = times
        self._offset = offset  # of what is in hand
        self._buffered = b""

    def take(self) -> Sequence[LogLine]:
        """The lines of the next piece, empty at the end of the file."""
        self._times.refresh()
        if self._offset < self._times.start:  # too slow: what was to come next has gone
            self._offset, self._buffered = self._times.start, b""
        while True:
            self._file.seek(self._offset + len(self._buffered))
            piece = self._file.read(PIECE_BYTES)
            if not piece:
                self._begin_again()
                return ()
            self._buffered += piece
            end = self._buffered.rfind(b"\n") + 1
            if not end and len(self._buffered) >= LONGEST_LINE_BYTES:
                end = len(self._buffered)
            if end:
                return self._split(end)

    def rest(self) -> Sequence[LogLine]:
        return self._split(len(self._buffered)) if self._buffered else ()

    def _split(self, end: int) -> list[LogLine]:
        now_ns = os.fstat(self._file.fileno()).st_mtime_ns
        lines = []
        position = 0
        while position < end:
            after = self._buffered.find(b"\n", position, end) + 1 or end
            time_ns = self._times.at(self._offset + position, now_ns)
            lines.append(LogLine(time_ns, self._buffered[position:after]))
            position = after
        self._offset += end
        self._buffered = self._buffered[end:]
        return lines

    def _begin_again(self) -> None:
        """Where all of a log had to go (``shorten``), it goes on from its beginning."""
        if os.fstat(self._file.fileno()).st_size < self._offset:
            self._offset, self._buffered = 0, b""


def _first_offset(file: BinaryIO, times: LogTimes, query: LogQuery) -> int:
    offset = times.start
    if query.since is not None:
        offset = max(offset, times.offset_since(int(query.since * 1e9)))
    if query.tail_lines is not None:
        offset = max(offset, last_lines(file, times.start, query.tail_lines)[0])
    return offset


def last_lines(file: BinaryIO, start: int, count: int) -> tuple[int, int]:
    """Where the last ``count`` lines begin, and how many they are; one not finished counts."""
    position = end = file.seek(0, os.SEEK_END)
    if end <= start or not count:
        return end, 0
    file.seek(end - 1)
    found = -1 if file.read(1) == b"\n" else 0  # line ends seen, without that of the last line
    while position > start:
        size = min(PIECE_BYTES, position - start)
        file.seek(position - size)
        piece = file.read(size)
        ends = piece.count(b"\n")
        if found + ends >= count:
            index = len(piece)
            for _ in range(count - found):
                index = piece.rfind(b"\n", 0, index)
            return position - size + index + 1, count
        found += ends
        position -= size
    return start, found + 1


def _after_newline(file: BinaryIO, offset: int) -> int:
    """The next beginning of a line, if one is near."""
    file.seek(offset)
    found = file.read(PIECE_BYTES).find(b"\n")
    return offset if found < 0 else offset + found + 1
