"""The only way to time, so that a simulator can own it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


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
