"""Waiting for something to happen, without polling for it where it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from livesize.runtime.vm import VmView

_QUIET_SECONDS = 0.25


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

    async def rest(self, seconds: float, beats: int) -> None:
        """Until it has not beaten for that long, or so often that nobody waits any longer."""
        for _ in range(beats):
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


class Asking:
    """Decides when a guest is asked while somebody waits. Asking holds it up: one that speaks up
    by itself is asked when its memory has come to rest, or when it has been quiet for long."""

    def __init__(self, *, speaks_up: bool, now: float) -> None:
        self._speaks_up = speaks_up
        self._quiet_since = now
        self._moved = False

    def spoke(self, now: float) -> None:
        self._quiet_since = now

    def is_due(self, *, settled: bool, now: float) -> bool:
        if not settled:
            self._moved = True
            return False
        came_to_rest, self._moved = self._moved, False
        if self._speaks_up and not came_to_rest and now - self._quiet_since < _QUIET_SECONDS:
            return False
        self._quiet_since = now
        return True


def may_hold(holds: Callable[[VmView], bool], known: VmView) -> bool:
    """By what the guest has said, if the domain has done by now all that it was asked to: else
    there is no use in looking at the domain yet."""
    moved = tuple(
        msgspec.structs.replace(one, current_bytes=one.requested_bytes) for one in known.devices
    )
    done = msgspec.structs.replace(known, devices=moved)
    return holds(known) or holds(done)
