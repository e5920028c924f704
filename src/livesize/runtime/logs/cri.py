"""Logs as CRI has them: a time, a stream and a tag before each line; several files after rotation.

    2026-11-16T07:58:38.332943872Z stdout F hello
    2026-11-16T07:58:39.000000001Z stderr P the first part of a long line

The newest file is N.log, where N counts the starts of the container; older ones have the moment of
their rotation behind it. Following goes on from one to the next.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from livesize.runtime.logs.raw import LONGEST_LINE_BYTES, PIECE_BYTES, Growth, last_lines
from livesize.runtime.streams import LogLimits, LogLine, LogLines, LogQuery, NoLogError


def log_files(log: Path) -> list[Path]:
    """Of one start, oldest first."""
    older = sorted(log.parent.glob(f"{log.name}.*"))
    return [*older, log] if log.exists() else older


async def read_cri(log: Path, query: LogQuery, growth: Growth | None = None) -> LogLines:
    """Whole lines, several at once; with ``growth`` until the log has ended."""
    with _all_closed(_opened(log_files(log))) as files:
        if not files:
            raise NoLogError(f"there is no log at {log.name}")
        yield ()
        if query.tail_lines is not None:
            _skip_to_last(files, query.tail_lines)
        records = _Records(None if query.since is None else int(query.since * 1e9))
        while True:
            is_live = growth is not None and growth.is_live()
            while piece := files[0].read(PIECE_BYTES):
                lines = records.take(piece)
                if lines:
                    yield lines
            if len(files) > 1:
                files.popleft().close()
            elif newer := _newer(log, files[0]):
                files.extend(_opened(newer))
            elif growth is None or not is_live:
                break
            else:
                await growth.grown()
        rest = records.rest()
        if rest:
            yield rest


async def rotate(
    log: Path, limits: LogLimits, now: float, reopen: Callable[[], Awaitable[None]]
) -> None:
    """Put a log that is long enough aside, and remove the oldest where there are too many;
    ``reopen`` lets who writes it begin a new one."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        if log_files(log):  # put aside by somebody who was killed before it was opened again
            await reopen()
        return
    if size <= limits.max_bytes:
        return
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    aside = log.with_name(f"{log.name}.{moment:%Y%m%d-%H%M%S}")
    log.rename(aside)
    try:
        await reopen()
    except BaseException:
        if not log.exists():
            aside.rename(log)
        raise
    for path in log_files(log)[: -limits.max_files]:
        path.unlink(missing_ok=True)


class _Records:
    """Puts lines together from pieces of files, and parts of long lines."""

    def __init__(self, since_ns: int | None) -> None:
        self._since_ns = since_ns
        self._buffered = b""
        self._parts: dict[bytes, LogLine] = {}  # by stream

    def take(self, piece: bytes) -> Sequence[LogLine]:
        *whole, self._buffered = (self._buffered + piece).split(b"\n")
        lines = []
        for record in whole:
            line = self._read(record)
            if line is not None and (self._since_ns is None or line.time_ns >= self._since_ns):
                lines.append(line)
        return lines

    def rest(self) -> Sequence[LogLine]:
        return list(self._parts.values())

    def _read(self, record: bytes) -> LogLine | None:
        """None: the line goes on, or is none."""
        time, _, rest = record.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, content = rest.partition(b" ")
        time_ns = _time_ns(time)
        if time_ns is None:
            return None
        before = self._parts.pop(stream, None)
        if before is not None:
            time_ns, content = before.time_ns, before.data + content
        if tag[:1] == b"P" and len(content) < LONGEST_LINE_BYTES:
            self._parts[stream] = LogLine(time_ns, content)
            return None
        return LogLine(time_ns, content + b"\n")


def _time_ns(text: bytes) -> int | None:
    """RFC 3339 with up to nine digits of a second, which Python would cut."""
    try:
        whole = text[:19].decode()
        digits = text[20:].rstrip(b"Z")
        zone = b""
        for sign in (b"+", b"-"):
            digits, found, offset = digits.partition(sign)
            zone = zone or found + offset
        moment = dt.datetime.fromisoformat(whole + (zone.decode() or "+00:00"))
        return int(moment.timestamp()) * 1_000_000_000 + int(digits.ljust(9, b"0")[:9] or b"0")
    except ValueError:
        return None


@contextlib.contextmanager
def _all_closed(files: collections.deque[BinaryIO]) -> Iterator[collections.deque[BinaryIO]]:
    """Those that are left at the end."""
    try:
        yield files
    finally:
        for file in files:
            file.close()


def _opened(paths: Sequence[Path]) -> collections.deque[BinaryIO]:
    opened: collections.deque[BinaryIO] = collections.deque()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            opened.append(path.open("rb"))
    return opened


def _skip_to_last(files: collections.deque[BinaryIO], count: int) -> None:
    """Leave the last ``count`` lines of all files together."""
    for index in range(len(files) - 1, -1, -1):
        offset, found = last_lines(files[index], 0, count)
        files[index].seek(offset)
        count -= found
        if count <= 0:
            for _ in range(index):
                files.popleft().close()
            return


def _newer(log: Path, current: BinaryIO) -> list[Path]:
    """Files that have been begun since."""
    inode = os.fstat(current.fileno()).st_ino
    files = log_files(log)
    for index, path in enumerate(files):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                return files[index + 1 :]
    return files
