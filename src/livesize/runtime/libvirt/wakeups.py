"""Wakes waiting tasks when something has happened, and bounds how often one is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Broadcast:
    """Wakes every task that waits, as often as it is told to."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def wake_all(self) -> None:
        passed, self._next = self._next, asyncio.Event()
        passed.set()

    async def wait(self, seconds: float) -> bool:
        """False: the time was up first."""
        try:
            async with asyncio.timeout(seconds):
                await self._next.wait()
        except TimeoutError:
            return False
        return True

    async def rest(self, seconds: float, wakeups: int) -> None:
        """Until nothing has happened for that long, or so many wakeups have come."""
        for _ in range(wakeups):
            if not await self.wait(seconds):
                return


class Throttle:
    """Calls back when asked to: at once, or when the last time is so long ago."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._next = 0.0
        self._later: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._later is not None:
            return
        if loop.time() >= self._next:
            self._fire()
        else:
            self._later = loop.call_at(self._next, self._fire)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _fire(self) -> None:
        self._later = None
        self._next = asyncio.get_running_loop().time() + self._seconds
        self._call()
