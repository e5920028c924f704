"""The work queue's contract: coalescing, order, never one key twice at once, retries."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.steps import Backoff
from livesize.sim.loop import run_virtual
from virtual_time import CLOCK, virtual_context, virtual_time


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class Working:
    def __init__(
        self,
        queue: WorkQueue[str],
        handler: Callable[[str], Awaitable[float | None]],
        workers: int = 1,
    ) -> None:
        self.queue = queue
        backoff = Backoff(1.0, 8.0, random.Random(1))
        self.work = run_workers(queue, handler, workers, backoff=backoff)

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(self.work)
        await settle()

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@virtual_time
async def test_keys_come_out_in_order_and_once_however_often_they_were_added() -> None:
    queue: WorkQueue[str] = WorkQueue(virtual_context())
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]


@virtual_time
async def test_a_key_added_while_it_is_handled_runs_again_and_only_after() -> None:
    queue: WorkQueue[str] = WorkQueue(virtual_context())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


@virtual_time
async def test_add_after_waits_on_the_clock_and_the_earliest_wait_counts() -> None:
    queue: WorkQueue[str] = WorkQueue(virtual_context())
    handled: list[tuple[float, str]] = []

    async def handle(key: str) -> None:
        handled.append((CLOCK.monotonic(), key))

    queue.add_after("early", 5.0)  # before the workers run
    async with Working(queue, handle):
        queue.add_after("a", 10.0)
        queue.add_after("a", 2.0)
        queue.add_after("a", 20.0)
        queue.add_after("now", 0.0)
        await CLOCK.sleep(30)
    assert handled == [(0.0, "now"), (2.0, "a"), (5.0, "early")]


@virtual_time
async def test_a_handler_that_returns_seconds_is_called_again_then() -> None:
    queue: WorkQueue[str] = WorkQueue(virtual_context())
    times: list[float] = []

    async def handle(key: str) -> float | None:
        times.append(CLOCK.monotonic())
        return 3.0 if len(times) < 3 else None

    queue.add("a")
    async with Working(queue, handle):
        await CLOCK.sleep(12)
    assert times == [0.0, 3.0, 6.0]


@virtual_time
async def test_a_failing_key_backs_off_alone(caplog: pytest.LogCaptureFixture) -> None:
    queue: WorkQueue[str] = WorkQueue(virtual_context())
    handled: list[tuple[str, float]] = []

    async def handle(key: str) -> None:
        handled.append((key, CLOCK.monotonic()))
        if key == "bad" and len([key for key, _ in handled if key == "bad"]) < 4:
            raise ValueError("the world is broken")

    queue.add("bad")
    queue.add("good")
    async with Working(queue, handle):
        await CLOCK.sleep(20)
    assert ("good", 0.0) in handled
    times = [time for key, time in handled if key == "bad"]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(waits) == 3
    assert all(
        low <= wait <= high
        for wait, (low, high) in zip(waits, [(0.5, 1), (1, 2), (2, 4)], strict=True)
    )
    assert "handler failed" in caplog.text


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=30), st.integers(1, 4)
)
def test_no_key_is_ever_handled_twice_at_once_and_none_is_lost(
    adds: list[tuple[str, int]], workers: int
) -> None:
    async def walk() -> None:
        queue: WorkQueue[str] = WorkQueue(virtual_context())
        running: set[str] = set()
        version: dict[str, int] = {}
        seen: dict[str, int] = {}

        async def handle(key: str) -> None:
            assert key not in running
            running.add(key)
            seen[key] = version[key]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.discard(key)

        async with Working(queue, handle, workers):
            for key, turns in adds:
                version[key] = version.get(key, 0) + 1
                queue.add(key)
                for _ in range(turns):
                    await asyncio.sleep(0)
            for _ in range(10):
                await settle()
            assert queue.idle
            assert seen == version

    run_virtual(walk())
