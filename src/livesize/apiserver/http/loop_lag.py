"""Measures how late the event loop is: every request waits at least that long."""

from __future__ import annotations

from collections.abc import Callable

from livesize.machinery.clock import Clock

PERIOD_SECONDS = 0.25


async def run_loop_lag(clock: Clock, observe: Callable[[float], None]) -> None:
    """Sleep, and tell how much later than asked it woke up; for ever."""
    while True:
        due = clock.monotonic() + PERIOD_SECONDS
        await clock.sleep(PERIOD_SECONDS)
        observe(max(0.0, clock.monotonic() - due))
