"""Carries word of how far a long step is, from the step to whoever posts it.

A step tells as often as it likes; only the newest word is posted, if it is news, never two within
a set distance, and never while another post of the same resize is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from livesize.agent.shape import Progress


class ProgressLine:
    """One for each attempt. What is told before ``begin`` or after ``end`` is not posted."""

    def __init__(self, distance_seconds: float) -> None:
        self._distance_seconds = distance_seconds
        self._newest: Progress | None = None
        self._told: Progress | None = None
        self._begin: Callable[[], asyncio.Task[None]] | None = None
        self._posting: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def begin(self, tasks: asyncio.TaskGroup, post: Callable[[Progress], Awaitable[None]]) -> None:
        self._begin = lambda: tasks.create_task(self._post_all(post))

    def tell(self, progress: Progress) -> None:
        if self._begin is None or self._ended.is_set() or progress == self._told:
            return
        self._newest = self._told = progress
        if self._posting is None or self._posting.done():
            self._posting = self._begin()

    async def end(self) -> None:
        """Return when nothing is under way any more."""
        self._ended.set()
        self._begin = None  # it knows the attempt, which knows us: a circle
        if self._posting is not None:
            await self._posting

    async def _post_all(self, post: Callable[[Progress], Awaitable[None]]) -> None:
        while self._newest is not None and not self._ended.is_set():
            newest, self._newest = self._newest, None
            await post(newest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._distance_seconds):
                    await self._ended.wait()
