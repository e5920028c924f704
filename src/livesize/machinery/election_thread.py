"""An election whose renewals no work can hold up: they run in a thread with an event loop and a
connection of their own.

The work stays in the caller's event loop. Python switches threads every few hundred microseconds,
so a work that holds its loop for longer than the lease lasts is still the leader's work. A loop
that does not turn for ``STUCK_SECONDS`` counts as dead: then the thread renews no more, and another
process takes over when the lease has run out.

    thread   waiting ──won──► LEAD ──► renewing ──lost or stopped──► LOST ──► work ended ──► ...
    loop                       └─► work begins                        └─► work is cancelled ─┘
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from livesize.api.objects import Object
from livesize.machinery.context import Context
from livesize.machinery.election import run_elected
from livesize.machinery.lease import LeaseRecord, LeaseTerms

STUCK_SECONDS = 60.0

OpenRecord: TypeAlias = Callable[[], AbstractAsyncContextManager[LeaseRecord]]
LeaderWork: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def run_elected_in_thread(
    open_record: OpenRecord, terms: LeaseTerms, work: LeaderWork, *, context: Context
) -> None:
    """As ``run_elected``: until cancelled, ``work`` runs in this loop while we lead. The thread
    enters ``open_record`` in its own loop, and leaves it at the end."""
    await _WorkingLoop(open_record, terms, work, context).run()


class _Turn(enum.Enum):
    """What the thread tells the loop of the work."""

    LEAD = "lead"
    LOST = "lost"
    END = "end"


class _WorkingLoop:
    """The side of the work: begins and cancels it as the thread says."""

    def __init__(
        self, open_record: OpenRecord, terms: LeaseTerms, work: LeaderWork, context: Context
    ) -> None:
        self._clock = context.clock
        self._beat_seconds = terms.renew_seconds
        self._work = work
        self._working: asyncio.Task[None] | None = None
        self._turns: asyncio.Queue[_Turn] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._thread = _ElectionThread(
            open_record,
            terms,
            context,
            lambda turn: loop.call_soon_threadsafe(self._turns.put_nowait, turn),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat())
            self._thread.start()
            try:
                await self._follow(group)
            except asyncio.CancelledError:
                self._thread.stop()
                await self._follow(group)
                raise
            finally:
                beating.cancel()
        if self._thread.failure is not None:
            raise self._thread.failure

    async def _beat(self) -> None:
        """This loop still turns."""
        while True:
            self._thread.turned_at = self._clock.monotonic()
            await self._clock.sleep(self._beat_seconds)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Until the thread has ended."""
        while (turn := await self._turns.get()) is not _Turn.END:
            if turn is _Turn.LEAD:
                self._working = group.create_task(self._lead())
                self._working.add_done_callback(lambda _: self._thread.work_ended())
            elif self._working is not None:
                self._working.cancel()

    async def _lead(self) -> None:
        self._thread.failure = None
        try:
            await self._work()
        except Exception as failure:  # noqa: BLE001 - it ends the election, which raises it
            self._thread.failure = failure
        else:
            self._thread.failure = AssertionError("the work of a leader ends only when cancelled")


class _ElectionThread:
    """``tell`` is called from the thread. All methods are called from the loop of the work."""

    def __init__(
        self,
        open_record: OpenRecord,
        terms: LeaseTerms,
        context: Context,
        tell: Callable[[_Turn], object],
    ) -> None:
        self._open_record = open_record
        self._terms = terms
        self._context = context
        self._tell = tell
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._work_ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self.turned_at = context.clock.monotonic()
        self.failure: Exception | None = None
        """What the work, or the election itself, has failed with."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    def work_ended(self) -> None:
        self._loop.call_soon_threadsafe(self._work_ended.set)

    # In the thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._elect())
        except Exception as failure:  # noqa: BLE001 - the loop of the work raises it
            self.failure = self.failure or failure
        finally:
            self._loop.close()
            self._tell(_Turn.END)

    async def _elect(self) -> None:
        async with self._open_record() as record, asyncio.TaskGroup() as group:
            watched = _WatchedRecord(record, self._is_stuck)
            electing = group.create_task(
                run_elected(watched, self._terms, self._lead, context=self._context)
            )
            await self._stopping.wait()
            electing.cancel()

    async def _lead(self) -> None:
        """Return or raise when the work in its own loop has ended, not before."""
        self._work_ended.clear()
        self._tell(_Turn.LEAD)
        try:
            await self._work_ended.wait()
        except asyncio.CancelledError:
            self._tell(_Turn.LOST)
            await self._work_ended.wait()
            raise
        raise self.failure or AssertionError("the work was cancelled by others")

    def _is_stuck(self) -> bool:
        return self._context.clock.monotonic() - self.turned_at > STUCK_SECONDS


class _WatchedRecord:
    """A record that is not renewed for a loop that does not turn."""

    def __init__(self, record: LeaseRecord, is_stuck: Callable[[], bool]) -> None:
        self._record = record
        self._is_stuck = is_stuck

    async def load(self) -> Object | None:
        return await self._record.load()

    async def create(self, lease: Object) -> Object:
        return await self._record.create(lease)

    async def update(self, lease: Object) -> Object:
        if self._is_stuck():
            raise ConnectionError("the event loop of the work has not turned for too long")
        return await self._record.update(lease)
