"""Whether to wait for the disk right here, or to let a thread wait for it.

To wake a thread and be woken by it takes longer than a quick disk takes to sync, and the thread
wants the interpreter just when its owner works on. A slow disk would hold up everybody else. The
last two times say which it is: one that was slow twice is left to the thread until it has been
quick again. Slow once means little: every disk is, now and then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

QUICK_SECONDS = 0.002
"""About as long as a loop is busy with one request anyway."""
_UNKNOWN = float("inf")


class DiskPace:
    """One for each file. May be asked and told by any thread."""

    def __init__(self) -> None:
        self._last_seconds = self._before_seconds = _UNKNOWN

    @property
    def is_quick(self) -> bool:
        return min(self._last_seconds, self._before_seconds) <= QUICK_SECONDS

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around whatever waits for the disk. What fails was not quick."""
        began, before_seconds = time.perf_counter(), self._last_seconds
        self._last_seconds = self._before_seconds = _UNKNOWN
        yield
        self._last_seconds = time.perf_counter() - began
        self._before_seconds = before_seconds
