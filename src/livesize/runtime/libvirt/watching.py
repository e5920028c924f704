"""Waiting for something to happen, without polling for it."""

from __future__ import annotations

import asyncio


class Pulse:
    """Wakes everybody who waits, each time it beats."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def beat(self) -> None:
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
