"""One seed, one sequence of ids and chances; the clock agrees with the timers of every loop."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest
import uvloop

from livesize.machinery.clock import SystemClock
from livesize.machinery.context import Context, seeded_context, system_context

TOLERANCE_SECONDS = 0.05  # one turn of a loop on a busy machine


def drawn(context: Context) -> list[object]:
    return [context.ids.uid(), context.ids.suffix(), context.random.random(), context.ids.uid()]


def test_one_seed_gives_one_sequence() -> None:
    clock = SystemClock()
    assert drawn(seeded_context(7, clock)) == drawn(seeded_context(7, clock))
    assert drawn(seeded_context(7, clock)) != drawn(seeded_context(8, clock))


@pytest.mark.parametrize("context", [system_context(), seeded_context(1, SystemClock())])
def test_uids_are_random_ones_of_version_4(context: Context) -> None:
    uid = context.ids.uid()
    assert (str(uuid.UUID(uid)), uuid.UUID(uid).version) == (uid, 4)
    assert uuid.UUID(uid).variant == uuid.RFC_4122
    assert len(context.ids.suffix()) == 5


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_clock_and_the_timers_of_a_loop_agree(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def measure() -> float:
        await asyncio.sleep(0.001)  # uvloop reads its time once a turn
        return SystemClock().monotonic() - asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=make) as runner:
        assert abs(runner.run(measure())) < TOLERANCE_SECONDS
