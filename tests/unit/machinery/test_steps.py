"""A plan of steps stops at the first failure, undoes newest first, and tells what it did."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.machinery.steps import (
    Action,
    Backoff,
    CrashPoints,
    Step,
    StepFailedError,
    StepOutcome,
    StepRecord,
    run_steps,
)
from livesize.sim.loop import EPOCH_SECONDS
from virtual_time import CLOCK, virtual_time

DONE, FAILED, UNDONE = StepOutcome.DONE, StepOutcome.FAILED, StepOutcome.UNDONE


class World:
    """Remembers what was done to it, and fails where it is told to."""

    def __init__(self, *failing: str) -> None:
        self.history: list[str] = []
        self._failing = failing

    def action(self, name: str) -> Action:
        async def act() -> None:
            self.history.append(name)
            await CLOCK.sleep(1)
            if name in self._failing:
                raise StepFailedError(f"{name} refused")

        return act

    def step(self, name: str, *, read_back: bool = False, undo: bool = False) -> Step:
        return Step(
            name,
            self.action(name),
            self.action(f"read {name}") if read_back else None,
            self.action(f"undo {name}") if undo else None,
        )


def outcomes(records: tuple[StepRecord, ...]) -> list[tuple[str, StepOutcome]]:
    return [(record.name, record.outcome) for record in records]


@virtual_time
async def test_steps_run_in_order_and_each_is_read_back_before_the_next() -> None:
    world = World()
    steps = [world.step("widen", read_back=True), world.step("raise", read_back=True)]
    outcome = await run_steps("resize", steps, clock=CLOCK)
    assert outcome.done
    assert world.history == ["widen", "read widen", "raise", "read raise"]
    assert outcomes(outcome.records) == [("widen", DONE), ("raise", DONE)]


@virtual_time
async def test_an_empty_plan_is_done() -> None:
    outcome = await run_steps("resize", [], clock=CLOCK)
    assert outcome.done
    assert outcome.records == ()


@virtual_time
async def test_the_first_failure_stops_the_plan() -> None:
    world = World("raise")
    steps = [world.step("widen"), world.step("raise"), world.step("narrow")]
    outcome = await run_steps("resize", steps, clock=CLOCK)
    assert not outcome.done
    assert isinstance(outcome.failure, StepFailedError)
    assert world.history == ["widen", "raise"]
    assert outcome.records[-1].message == "raise refused"


@virtual_time
async def test_a_step_whose_read_back_disagrees_has_failed() -> None:
    world = World("read raise")
    outcome = await run_steps("resize", [world.step("raise", read_back=True)], clock=CLOCK)
    assert outcomes(outcome.records) == [("raise", FAILED)]
    assert str(outcome.failure) == "read raise refused"


@virtual_time
async def test_after_a_failure_what_can_be_undone_is_undone_newest_first() -> None:
    world = World("c")
    steps = [world.step("a", undo=True), world.step("b"), world.step("c", undo=True)]
    outcome = await run_steps("plug", steps, clock=CLOCK)
    # The failed step is undone too: it may have got half way.
    assert world.history == ["a", "b", "c", "undo c", "undo a"]
    assert outcomes(outcome.records)[-3:] == [("c", FAILED), ("c", UNDONE), ("a", UNDONE)]


@virtual_time
async def test_an_undo_that_fails_is_recorded_and_the_others_still_run() -> None:
    world = World("b", "undo b")
    steps = [world.step("a", undo=True), world.step("b", undo=True)]
    outcome = await run_steps("plug", steps, clock=CLOCK)
    assert world.history == ["a", "b", "undo b", "undo a"]
    assert outcomes(outcome.records) == [
        ("a", DONE),
        ("b", FAILED),
        ("b", FAILED),
        ("a", UNDONE),
    ]
    assert outcome.records[2].message == "undo: undo b refused"
    assert str(outcome.failure) == "b refused"


@virtual_time
async def test_only_the_named_errors_are_outcomes_anything_else_is_a_bug() -> None:
    async def bug() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await run_steps("resize", [Step("a", bug)], clock=CLOCK)
    outcome = await run_steps("resize", [Step("a", bug)], clock=CLOCK, errors=(KeyError,))
    assert isinstance(outcome.failure, KeyError)


@virtual_time
async def test_each_record_says_when_and_how_long_and_is_reported_at_once() -> None:
    world, seen = World(), list[tuple[StepRecord, int]]()
    steps = [world.step("a"), world.step("b")]

    def progress(record: StepRecord) -> None:
        seen.append((record, len(world.history)))

    outcome = await run_steps("resize", steps, clock=CLOCK, progress=progress)
    assert [(record.name, after) for record, after in seen] == [("a", 1), ("b", 2)]
    assert outcome.records[0] == StepRecord("a", EPOCH_SECONDS, 1.0, DONE)


def test_crash_points_are_logged_and_name_plan_step_and_side(tmp_path: Path) -> None:
    log = tmp_path / "points"
    points = CrashPoints(log=str(log))
    points.reach("resize/widen/before")
    points.reach("resize/widen/after")
    assert log.read_text().splitlines() == ["resize/widen/before", "resize/widen/after"]


CRASHING = """
import asyncio
from livesize.machinery.clock import SystemClock
from livesize.machinery.steps import CrashPoints, Step, run_steps

async def say():
    print("did it", flush=True)

async def main():
    steps = [Step("one", say), Step("two", say)]
    points = CrashPoints.from_environment()
    await run_steps("plan", steps, clock=SystemClock(), points=points)
    print("survived", flush=True)

asyncio.run(main())
"""


def run_crashing(**environment: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", CRASHING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_process_dies_at_the_named_point_and_only_while_armed(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    arm.write_text("1")
    environment = {"LIVESIZE_CRASH_AT": "plan/two/before", "LIVESIZE_CRASH_ARM": str(arm)}
    assert run_crashing(**environment) == (-9, ["did it"])
    assert not arm.exists()
    assert run_crashing(**environment) == (0, ["did it", "did it", "survived"])


def test_a_count_lets_the_point_pass_until_it_is_used_up(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    arm.write_text("3")
    points = CrashPoints("resize/widen/after", str(arm))
    points.reach("resize/widen/after")
    points.reach("resize/widen/before")
    points.reach("resize/widen/after")
    assert arm.read_text() == "1"


def test_the_point_may_be_named_together_with_the_count(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    arm.write_text("2 resize/widen/after")
    points = CrashPoints(arm=str(arm))
    for name in ("resize/widen/before", "resize/widen/after", "resize/report/after"):
        points.reach(name)
    assert arm.read_text() == "1 resize/widen/after"


def test_who_may_not_read_the_file_is_not_meant(tmp_path: Path) -> None:
    """A process of another user gets the same environment."""
    folder = tmp_path / "private"
    folder.mkdir()
    folder.joinpath("arm").write_text("1")
    folder.chmod(0)
    me = os.geteuid()
    try:
        os.seteuid(me or 65534)
        CrashPoints("resize/widen/after", str(folder / "arm")).reach("resize/widen/after")
    finally:
        os.seteuid(me)
        folder.chmod(0o700)


failures = st.integers(min_value=1, max_value=10_000)
seeds = st.integers()


@given(failures, seeds, st.floats(0.001, 10), st.floats(10, 1000))
def test_backoff_stays_between_half_and_full_of_the_doubled_capped_pause(
    count: int, seed: int, initial: float, maximum: float
) -> None:
    full = min(initial * 2.0 ** min(count - 1, 100), maximum)
    pause = Backoff(initial, maximum, random.Random(seed)).seconds(count)
    assert full / 2 <= pause <= full


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6), st.integers(0, 6))
@virtual_time
async def test_what_was_done_and_can_be_undone_is_undone_whatever_the_plan(
    shapes: list[tuple[bool, bool]], failing: int
) -> None:
    world = World(str(failing))
    steps = [world.step(str(n), read_back=rb, undo=u) for n, (rb, u) in enumerate(shapes)]
    outcome = await run_steps("plan", steps, clock=CLOCK)
    assert outcome.done == (failing >= len(shapes))
    if not outcome.done:
        undone = [f"undo {n}" for n in range(failing, -1, -1) if shapes[n][1]]
        assert [entry for entry in world.history if entry.startswith("undo")] == undone
        assert str(failing + 1) not in world.history
