"""What a cancelled task still has to do is done to its end."""

from __future__ import annotations

import asyncio
import contextlib

from livesize.machinery.tasks import run_in_own_task


async def test_time_runs_out_within_a_task_that_was_cancelled() -> None:
    done: list[str] = []

    async def tidy() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        done.append("tidied")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await run_in_own_task(tidy())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert done == ["tidied"]
