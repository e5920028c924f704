"""Tasks that outlive the call that started them end with their owner."""

from __future__ import annotations

import asyncio

import pytest

from livesize.machinery.tasks import OwnedTasks, TurnTimer
from virtual_time import CLOCK, virtual_time


async def test_close_leaves_no_task_and_waits_for_what_it_cancels() -> None:
    tasks, ended = OwnedTasks(), []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # it takes a while to clean up
            ended.append(name)

    before = asyncio.all_tasks()
    for name in "ab":
        tasks.start(work(name), name=name)
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(ended) == ["a", "b"]
    assert asyncio.all_tasks() == before


async def test_waiting_has_a_limit_and_sees_what_begins_meanwhile() -> None:
    tasks, done = OwnedTasks(), asyncio.Event()

    async def second() -> None:
        done.set()

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.start(second(), name="second")

    tasks.start(first(), name="first")
    await tasks.wait()
    assert done.is_set()
    tasks.start(asyncio.Event().wait(), name="endless")  # type: ignore[arg-type]
    await tasks.wait(0.001)
    await tasks.close()


async def test_a_task_that_fails_is_said_at_once_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, went_on = OwnedTasks(), asyncio.Event()

    async def fails() -> None:
        raise KeyError("bug")

    async def goes_on() -> None:
        await asyncio.sleep(0)
        went_on.set()

    tasks.start(fails(), name="broken")
    tasks.start(goes_on(), name="whole")
    await tasks.wait()
    assert went_on.is_set()
    assert [record.message for record in caplog.records] == ["task failed"]


@virtual_time
async def test_a_round_that_takes_long_is_told_when_its_turn_is_over() -> None:
    turn = TurnTimer(CLOCK)
    assert not turn.is_over()
    await CLOCK.sleep(0.0002)
    assert turn.is_over()
    assert not turn.is_over(), "a new turn"
