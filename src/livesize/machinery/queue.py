"""A work queue of keys, with the contract of client-go's.

- A key that is added several times before it is taken is handled once.
- A key is never handled twice at once; added while it is being handled, it runs again after.
- Keys come out in the order they went in. ``add_after`` waits on the clock; of several waits for
  one key only the earliest counts.

``run_workers(queue, handler, workers)`` takes keys until cancelled. The handler reads everything
it needs itself; it may return seconds after which to look again. When it raises, that is logged
and the key comes again after a backoff of its own. ``LaterError`` is logged in one line: the world
failed. Anything else is a bug, and logged with its traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from livesize.machinery.context import Context
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger

log = get_logger("queue")

Key = TypeVar("Key", bound=Hashable)
KeyHandler: TypeAlias = Callable[[Key], Awaitable[float | None]]

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 30.0


class LaterError(Exception):
    """The handler could not do its work now; the message says why."""


class _Wait(msgspec.Struct, frozen=True):
    due: float
    task: asyncio.Task[None] | None


class WorkQueue(Generic[Key]):
    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.random = context.random
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._running: set[Key] = set()
        self._waits: dict[Key, _Wait] = {}
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """Keys that are ready and not yet taken."""
        return self._ready.qsize()

    @property
    def idle(self) -> bool:
        """Nothing is ready or running; keys may still wait for their time."""
        return not self._queued and not self._running

    def add(self, key: Key) -> None:
        if key in self._queued:
            return
        self._queued.add(key)
        if key not in self._running:
            self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        waiting = self._waits.get(key)
        if waiting is not None:
            if waiting.due <= due:
                return
            if waiting.task is not None:
                waiting.task.cancel()
        self._wait(key, due)

    async def get(self) -> Key:
        key = await self._ready.get()
        self._queued.discard(key)
        self._running.add(key)
        return key

    def done(self, key: Key) -> None:
        self._running.discard(key)
        if key in self._queued:
            self._ready.put_nowait(key)

    def attach(self, group: asyncio.TaskGroup) -> None:
        """Delayed keys wait in tasks of this group; those added before begin to wait now."""
        self._group = group
        for key, waiting in list(self._waits.items()):
            self._wait(key, waiting.due)

    def detach(self) -> None:
        """The group has ended and with it the tasks; the keys are remembered."""
        self._group = None
        self._waits = {key: _Wait(waiting.due, None) for key, waiting in self._waits.items()}

    def _wait(self, key: Key, due: float) -> None:
        task = None if self._group is None else self._group.create_task(self._add_at(key, due))
        self._waits[key] = _Wait(due, task)

    async def _add_at(self, key: Key, due: float) -> None:
        await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        del self._waits[key]
        self.add(key)


async def run_workers(
    queue: WorkQueue[Key],
    handler: KeyHandler[Key],
    workers: int,
    *,
    backoff: Backoff | None = None,
) -> None:
    """Handle keys with ``workers`` tasks until cancelled."""
    waits = backoff or Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, queue.random)
    failures: dict[Key, int] = {}
    try:
        async with asyncio.TaskGroup() as group:
            queue.attach(group)
            for _ in range(workers):
                group.create_task(_work(queue, handler, waits, failures))
    finally:
        queue.detach()


async def _work(
    queue: WorkQueue[Key], handler: KeyHandler[Key], backoff: Backoff, failures: dict[Key, int]
) -> None:
    while True:
        key = await queue.get()
        try:
            again_seconds = await handler(key)
        except Exception as failure:  # the loop outlives every bug of a handler
            failures[key] = failures.get(key, 0) + 1
            again_seconds = backoff.seconds(failures[key])
            if isinstance(failure, LaterError):
                reason = str(failure)
                log.warning("trying again later", key=key, failures=failures[key], reason=reason)
            else:
                log.exception("handler failed", key=key, failures=failures[key])
        else:
            failures.pop(key, None)
        finally:
            queue.done(key)
        if again_seconds is not None:
            queue.add_after(key, again_seconds)
