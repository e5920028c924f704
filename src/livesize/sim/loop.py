"""An event loop with virtual time: when nothing is ready, time jumps to the next timer.

Everything that runs on it is repeated exactly by the next run: there are no threads, no sockets,
and tasks hash by their number, so that sets of tasks have one order. Two failures have a name.
``DeadlockError``: nothing is ready and no timer is set. ``LivelockError``: so much happened at one
instant that time will hardly go on.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

EPOCH_SECONDS = 1_800_000_000.0
"""The wall clock at the beginning of every simulation: 2027-01-15T08:00:00Z."""
_TURNS_AT_ONE_INSTANT = 1_000_000
_COLLECT_SECONDS = 1800.0

T = TypeVar("T")


class DeadlockError(Exception):
    """Every task waits for another one, and no timer would wake any."""


class LivelockError(Exception):
    """Tasks wake each other for ever, and time stands still."""


class VirtualClock:
    """The clock of components on a VirtualLoop."""

    def now(self) -> float:
        return EPOCH_SECONDS + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` from virtual second 0 on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._clock_resolution = 1e-9
        self._selector = _TimeJump(self)
        self._tasks_made = 0
        self.set_task_factory(_make_task)  # type: ignore[arg-type]  # it takes a name and a context

    def time(self) -> float:
        return self._seconds

    def jump(self, seconds: float) -> None:
        self._seconds += seconds

    def next_task_number(self) -> int:
        self._tasks_made += 1
        return self._tasks_made

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulation has no threads")

    def _process_events(self, event_list: object) -> None:
        """There are no descriptors to be ready."""

    def _write_to_self(self) -> None:
        """No other thread waits for this loop to wake."""


class _TimeJump:
    """Stands where a loop has its selector: waiting for ``timeout`` seconds takes no time.

    The garbage collector runs at fixed virtual times. It finalizes generators, and by itself it
    would do so whenever this process has allocated enough.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0
        self._collect_at = _COLLECT_SECONDS

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: every task waits")
        if timeout <= 0:
            self._turns += 1
            if self._turns > _TURNS_AT_ONE_INSTANT:
                raise LivelockError(f"{self._turns} turns of the loop, and time stands still")
            return ()
        self._turns = 0
        self._loop.jump(timeout)
        if self._loop.time() >= self._collect_at:
            self._collect_at = self._loop.time() + _COLLECT_SECONDS
            gc.collect()
        return ()


class _NumberedTask(asyncio.Task[Any]):
    """TaskGroup and asyncio.wait keep tasks in sets: by address, their order would change."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: VirtualLoop, **more: Any) -> None:
        self._number = loop.next_task_number()
        super().__init__(coroutine, loop=loop, **more)

    def __hash__(self) -> int:
        return self._number


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **more: Any
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    return _NumberedTask(coroutine, loop, **more)
