"""Runs a plan of steps, each (name, do, read_back, undo), one after the other.

The only place with crash points, timing, backoff and progress. Stops at the first failure; where
asked, undoes what was done, newest first. A step counts as done only when its read_back, if it
has one, has seen the world as it should be.
"""

from __future__ import annotations

import enum
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from livesize.machinery.clock import Clock

Action: TypeAlias = Callable[[], Awaitable[None]]


class StepFailedError(Exception):
    """Raised by ``do`` or ``read_back``: the world did not do as told. Anything else is a bug."""


class StepWaitsError(StepFailedError):
    """Nothing failed: the step waits for something that may take for ever, and says for what."""


class Step(msgspec.Struct, frozen=True):
    name: str
    do: Action
    read_back: Action | None = None
    undo: Action | None = None


class StepOutcome(enum.StrEnum):
    DONE = "Done"
    FAILED = "Failed"
    UNDONE = "Undone"


class StepRecord(msgspec.Struct, frozen=True):
    """One line of history: what was done, when, how long it took, how it went."""

    name: str
    started_at: float
    seconds: float
    outcome: StepOutcome
    message: str = ""


class StepsOutcome(msgspec.Struct, frozen=True):
    records: tuple[StepRecord, ...]
    failure: Exception | None = None

    @property
    def done(self) -> bool:
        return self.failure is None


class CrashPoints:
    """Named places where a test makes this process die, or learns which there are.

    LIVESIZE_CRASH_AT=NAME names the place, LIVESIZE_CRASH_ARM=FILE holds a count: each time NAME
    is reached while FILE exists the count goes down, and at zero the file is removed and the
    process killed with SIGKILL, so that a restarted process does not die again. FILE may name
    the place itself, after the count: one process for many places.
    LIVESIZE_CRASH_LOG=FILE appends every name reached.
    """

    def __init__(self, crash_at: str = "", arm: str = "", log: str = "") -> None:
        self._crash_at = crash_at
        self._arm = Path(arm)
        self._log = log
        self.active = bool(crash_at or arm or log)

    @classmethod
    def from_environment(cls) -> CrashPoints:
        return cls(
            os.environ.get("LIVESIZE_CRASH_AT", ""),
            os.environ.get("LIVESIZE_CRASH_ARM", ""),
            os.environ.get("LIVESIZE_CRASH_LOG", ""),
        )

    def reach(self, name: str) -> None:
        if not self.active:
            return
        if self._log:
            with Path(self._log).open("a") as log:
                log.write(name + "\n")
        try:
            count, _, place = self._arm.read_text().partition(" ")
        except OSError:
            return  # not armed, or not for this process, which may not read it
        if name == (place or self._crash_at):
            self._count_down(int(count or 1) - 1, place)

    def _count_down(self, left: int, place: str) -> None:
        if left > 0:
            self._arm.write_text(f"{left} {place}" if place else str(left))
            return
        self._arm.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


NO_CRASH_POINTS = CrashPoints()


async def run_steps(
    plan: str,
    steps: Sequence[Step],
    *,
    clock: Clock,
    points: CrashPoints = NO_CRASH_POINTS,
    errors: tuple[type[Exception], ...] = (StepFailedError,),
    progress: Callable[[StepRecord], None] | None = None,
) -> StepsOutcome:
    """Run ``steps`` in order. ``errors`` are the failures of the world that end the plan with an
    outcome; anything else propagates. Crash points are ``plan/step/before`` and ``/after``."""
    records: list[StepRecord] = []

    def record(step: Step, began: float, at: float, outcome: StepOutcome, why: str = "") -> None:
        entry = StepRecord(step.name, at, clock.monotonic() - began, outcome, why)
        records.append(entry)
        if progress is not None:
            progress(entry)

    for index, step in enumerate(steps):
        points.reach(f"{plan}/{step.name}/before")
        began, at = clock.monotonic(), clock.now()
        try:
            await step.do()
            if step.read_back is not None:
                await step.read_back()
        except errors as failure:
            record(step, began, at, StepOutcome.FAILED, str(failure))
            await _undo(steps[: index + 1], clock, record, errors)
            return StepsOutcome(tuple(records), failure)
        record(step, began, at, StepOutcome.DONE)
        points.reach(f"{plan}/{step.name}/after")
    return StepsOutcome(tuple(records))


async def _undo(
    steps: Sequence[Step],
    clock: Clock,
    record: Callable[[Step, float, float, StepOutcome, str], None],
    errors: tuple[type[Exception], ...],
) -> None:
    for step in reversed(steps):
        if step.undo is None:
            continue
        began, at = clock.monotonic(), clock.now()
        try:
            await step.undo()
        except errors as failure:
            record(step, began, at, StepOutcome.FAILED, f"undo: {failure}")
        else:
            record(step, began, at, StepOutcome.UNDONE, "")


class Backoff:
    """How long to wait after the n-th failure in a row: doubling, capped, with jitter."""

    def __init__(
        self, initial_seconds: float, maximum_seconds: float, source: random.Random
    ) -> None:
        self._initial_seconds = initial_seconds
        self._maximum_seconds = maximum_seconds
        self._source = source

    def seconds(self, failures: int) -> float:
        assert failures >= 1
        exponent = min(failures - 1, 32)
        full = min(self._initial_seconds * 2.0**exponent, self._maximum_seconds)
        return full * (0.5 + 0.5 * self._source.random())
