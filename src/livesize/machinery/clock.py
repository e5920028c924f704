"""The only way to time, so that a simulator can own it."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import math
import time
from typing import Protocol

_MICROS = 1_000_000  # of a second


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, of the clock by which the event loop's timers run: deadlines
        made of it agree with asyncio.timeout and call_later."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """``monotonic`` is the kernel's CLOCK_MONOTONIC, by which asyncio's and uvloop's timers run. It
    is not read from the loop: uvloop's time stands still during a turn and counts milliseconds, in
    which many a step of a resize is done; and threads have no loop."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def format_time(seconds: float) -> str:
    """RFC 3339 to the second, as Kubernetes writes it."""
    return _format_second(math.floor(seconds))


def format_micro_time(seconds: float) -> str:
    """RFC 3339 to the microsecond: leases, events, steps of a resize."""
    second = math.floor(seconds)
    micros = round((seconds - second) * 1e6)
    if micros == _MICROS:
        second, micros = second + 1, 0
    return f"{_format_second(second)[:-1]}.{micros:06}Z"


@functools.lru_cache(maxsize=256)
def _format_second(second: int) -> str:
    """Nearly everything written bears the time of now, or one that was read many times."""
    return dt.datetime.fromtimestamp(second, tz=dt.UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
