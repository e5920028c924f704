"""What asyncio has no word for: tasks that an object owns, a task for one piece of work, a turn.

``OwnedTasks`` is for an object that has ``close`` and no ``async with``, where a TaskGroup cannot
stand. It is the only place that makes a task outside a TaskGroup (tests/unit/test_house_tasks.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger

log = get_logger("tasks")

_TURN_SECONDS = 0.0002


class OwnedTasks:
    """The owner closes it: then no task is left. A task that fails has a bug, which the log says at
    once; the others go on."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        task = asyncio.get_running_loop().create_task(_guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """``wait`` for them afterwards."""
        for task in tuple(self._tasks):
            task.cancel()

    async def wait(self, seconds: float | None = None) -> None:
        """Until all have ended, those that begin meanwhile too, or until the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            return

    async def close(self) -> None:
        self.cancel()
        await self.wait()


async def run_in_own_task(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in a task that no caller has cancelled.

    A task that was cancelled tidies up within itself. There, asyncio.timeout of Python before
    3.11.4 takes the end of its time for the cancellation, and skips the rest.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(work)


def next_turn() -> Awaitable[None]:
    """Let whatever else is ready in the event loop go first, once."""
    return _NEXT_TURN


class TurnTimer:
    """For a round of many short pieces of work: ``is_over`` says after each whether the round has
    held the event loop long enough to be noticed; then ``await next_turn()``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()

    def is_over(self) -> bool:
        now = self._clock.monotonic()
        if now - self._since < _TURN_SECONDS:
            return False
        self._since = now
        return True


class _NextTurn:
    def __await__(self) -> Generator[None, None, None]:
        yield


_NEXT_TURN = _NextTurn()


async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("task failed", task=name)
