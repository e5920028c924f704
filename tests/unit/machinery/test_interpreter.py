"""Garbage is looked for in a pause of the work, and in the middle of it only after a long time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from livesize.machinery.interpreter import (
    OLD_OBJECTS,
    PAUSE_SECONDS,
    PAUSES_LOOKED_FOR,
    YOUNG_OBJECTS,
    collect_in_pauses,
)


class Day:
    """A clock, and how much of its time this thread works: ``busy`` of them are busy first."""

    def __init__(self, busy: int = 0) -> None:
        self.slept: list[float] = []
        self._busy = busy
        self._worked = 0.0

    def now(self) -> float:
        raise AssertionError("nobody asks for the time of day")

    def monotonic(self) -> float:
        return sum(self.slept)

    def worked(self) -> float:
        return self._worked

    @property
    def pauses(self) -> int:
        """How often a pause was looked for."""
        return self.slept.count(PAUSE_SECONDS)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.pauses <= self._busy:
            self._worked += seconds
        await asyncio.sleep(0)


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def no_other_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def make_circle() -> weakref.ref[Circle]:
    return weakref.ref(Circle())


def make_old() -> weakref.ref[Circle]:
    """A circle that was in use when it was looked at."""
    circle = Circle()
    for _ in range(2):
        gc.collect(1)
    return weakref.ref(circle)


async def live(day: Day, turns: int = 3 * PAUSES_LOOKED_FOR) -> None:
    task = asyncio.create_task(collect_in_pauses(day, day.worked))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


async def test_new_objects_are_looked_at_in_the_first_pause() -> None:
    day, circle = Day(busy=5), make_circle()
    kept = [[] for _ in range(YOUNG_OBJECTS)]
    await live(day, turns=20)
    assert circle() is None
    assert day.pauses == 6
    assert len(kept) == YOUNG_OBJECTS


async def test_few_objects_are_left_alone() -> None:
    day, circle = Day(), make_circle()
    await live(day, turns=20)
    assert circle() is not None
    assert day.pauses == 0


async def test_who_never_pauses_waits_for_it_in_the_end() -> None:
    day, circle = Day(busy=10 * PAUSES_LOOKED_FOR), make_circle()
    kept = [[] for _ in range(YOUNG_OBJECTS)]
    await live(day, turns=PAUSES_LOOKED_FOR)
    assert circle() is not None, "not yet"
    await live(day)
    assert circle() is None
    assert len(kept) == YOUNG_OBJECTS


@pytest.mark.parametrize(
    ("made", "are_looked_at"), [(YOUNG_OBJECTS, False), (OLD_OBJECTS + 1_000, True)]
)
async def test_old_objects_are_looked_at_when_many_have_become_old(
    made: int, are_looked_at: bool
) -> None:
    circle = make_old()
    kept = [[] for _ in range(made)]
    await live(Day(), turns=20)
    assert (circle() is None) is are_looked_at
    assert len(kept) == made
