"""Carries the progress of a long step from the step to the attempt, which posts it.

A step reports as often as it likes. The line posts only the newest progress, if it is news, never
two within a set distance, and never while another post of the same resize is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from livesize.agent.shape import Progress


class ProgressLine:
    """One for each attempt. It drops what a step reports before ``begin`` or after ``end``."""

    def __init__(self, distance_seconds: float) -> None:
        self._distance_seconds = distance_seconds
        self._newest: Progress | None = None
        self._reported: Progress | None = None
        self._begin: Callable[[], asyncio.Task[None]] | None = None
        self._posting: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def begin(self, tasks: asyncio.TaskGroup, post: Callable[[Progress], Awaitable[None]]) -> None:
        self._begin = lambda: tasks.create_task(self._post_all(post))

    def report(self, progress: Progress) -> None:
        if self._begin is None or self._ended.is_set() or progress == self._reported:
            return
        self._newest = self._reported = progress
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
