"""Virtual time: it jumps, never goes back, agrees with every timer, and names what hangs."""

from __future__ import annotations

import asyncio
import time

import pytest

from livesize.sim import loop
from livesize.sim.loop import (
    EPOCH_SECONDS,
    DeadlockError,
    LivelockError,
    VirtualClock,
    run_virtual,
)


def test_a_day_takes_no_time() -> None:
    async def sleep() -> tuple[float, float]:
        clock = VirtualClock()
        await clock.sleep(86_400)
        return clock.monotonic(), clock.now()

    began = time.monotonic()
    assert run_virtual(sleep()) == (86_400, EPOCH_SECONDS + 86_400)
    assert time.monotonic() - began < 5


def test_timers_fire_in_their_order_whatever_they_are() -> None:
    async def wait() -> list[tuple[str, float]]:
        clock, fired = VirtualClock(), []

        async def sleep(seconds: float) -> None:
            await clock.sleep(seconds)
            fired.append(("sleep", clock.monotonic()))

        async def time_out(seconds: float) -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()
            fired.append(("timeout", clock.monotonic()))

        later = asyncio.get_running_loop().call_later
        later(2, lambda: fired.append(("call", clock.monotonic())))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sleep(3))
            tasks.create_task(time_out(1))
        return fired

    assert run_virtual(wait()) == [("timeout", 1), ("call", 2), ("sleep", 3)]


def test_a_deadlock_is_said_to_be_one() -> None:
    with pytest.raises(DeadlockError, match="every task waits"):
        run_virtual(asyncio.Event().wait())


def test_tasks_that_only_wake_each_other_are_said_to_do_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_TURNS_AT_ONE_INSTANT", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="time stands still"):
        run_virtual(spin())


def test_there_are_no_threads() -> None:
    async def leave() -> None:
        await asyncio.to_thread(time.time)

    with pytest.raises(RuntimeError, match="no threads"):
        run_virtual(leave())


def test_tasks_that_are_cancelled_together_end_in_one_order() -> None:
    """A TaskGroup keeps its tasks in a set, which is ordered by their hashes."""

    async def cancel() -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        async def together() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(20):
                    tasks.create_task(wait(number))

        task = asyncio.create_task(together())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return ended

    assert run_virtual(cancel()) == list(range(20))
