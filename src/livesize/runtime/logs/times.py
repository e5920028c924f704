"""When which part of a log came: a file of pairs beside it, which only grows.

Each pair is an offset and a time: all before the offset was there at that time. The first pair is
where the log begins, since its beginning may have been given back to the disk. A workload writes
into its log directly, so this is what a line's time is taken from; a time is that at which the
growth was seen, ordinarily within 50 ms of it. What came while no agent was looking has the time of
the last write.
"""

from __future__ import annotations

import array
import bisect
import os
from pathlib import Path

MOST_BYTES = 1 << 20
"""What is noted of one log; a reader has it in memory. Beyond it the moments become coarser."""
_PAIR_BYTES = 16


class LogTimes:
    """The pairs as they were at the last ``refresh``."""

    def __init__(self, path: Path) -> None:
        self.offsets = array.array("Q")
        self.times = array.array("Q")
        self._path = path
        self._inode = 0
        self._read_bytes = 0
        self.refresh()

    @property
    def start(self) -> int:
        """Where the log begins."""
        return self.offsets[0] if self.offsets else 0

    @property
    def end(self) -> int:
        """Up to where times are noted."""
        return self.offsets[-1] if self.offsets else 0

    def refresh(self) -> None:
        try:
            with self._path.open("rb") as file:
                self._take(os.fstat(file.fileno()).st_ino)
                file.seek(self._read_bytes)
                content = file.read()
        except FileNotFoundError:
            return
        content = content[: len(content) // _PAIR_BYTES * _PAIR_BYTES]
        self._read_bytes += len(content)
        pairs = array.array("Q", content)
        self.offsets.extend(pairs[::2])
        self.times.extend(pairs[1::2])

    def at(self, offset: int, otherwise_ns: int) -> int:
        """When the byte at ``offset`` came; ``otherwise_ns`` where that is not noted yet."""
        found = bisect.bisect_right(self.offsets, offset, lo=min(1, len(self.offsets)))
        return self.times[found] if found < len(self.times) else otherwise_ns

    def offset_since(self, time_ns: int) -> int:
        """From where on everything came at that time or later, or has no time yet."""
        found = bisect.bisect_left(self.times, time_ns, lo=min(1, len(self.times)))
        return self.offsets[found - 1] if found else 0

    def _take(self, inode: int) -> None:
        """Written anew since (forget_before): then all of it is read again."""
        if inode != self._inode:
            self._inode, self._read_bytes = inode, 0
            del self.offsets[:], self.times[:]


def note(path: Path, offset: int, time_ns: int) -> None:
    """Append a pair; the first one begins the file."""
    with path.open("ab") as file:
        pairs = (offset, time_ns) if file.tell() else (0, 0, offset, time_ns)
        file.write(array.array("Q", pairs).tobytes())
        is_long = file.tell() > MOST_BYTES
    if is_long:
        _thin_out(path)


def forget_before(path: Path, start: int) -> None:
    """The log begins at ``start`` from now on."""
    times = LogTimes(path)
    kept = bisect.bisect_right(times.offsets, start, lo=min(1, len(times.offsets)))
    pairs = array.array("Q", (start, 0))
    for offset, time_ns in zip(times.offsets[kept:], times.times[kept:], strict=True):
        pairs.extend((offset, time_ns))
    _write_anew(path, pairs)


def _thin_out(path: Path) -> None:
    """Every other pair goes, but for the first and the last."""
    times = LogTimes(path)
    pairs = array.array("Q", (times.start, 0))
    for index in range(2 - len(times.offsets) % 2, len(times.offsets), 2):
        pairs.extend((times.offsets[index], times.times[index]))
    _write_anew(path, pairs)


def _write_anew(path: Path, pairs: array.array[int]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(pairs.tobytes())
    fresh.rename(path)
