"""One boot of a guest full of tests: how large it is, what it reported, and whether all passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from guest.boot import GuestRun, run_guest
from livesize.guest_images.kernel import GuestKernel

CONSOLE_LINES = 60


class Bounds(NamedTuple):
    """Of one guest. The time is bounded inside too, a little later."""

    memory_mib: int
    limit_seconds: int
    cpus: int = 2

    @property
    def limit_inside_seconds(self) -> int:
        return self.limit_seconds + 15


class Result(NamedTuple):
    test: str
    outcome: str
    seconds: float
    text: str
    flaky: bool


class Session(NamedTuple):
    results: list[Result]
    exit_status: int | None  # None: pytest did not come to its end
    run: GuestRun

    def console(self) -> str:
        """Its last lines."""
        return "\n".join(self.run.console.splitlines()[-CONSOLE_LINES:])

    def failures(self) -> str:
        """The words of what did not pass."""
        failed = [one for one in self.results if one.outcome != "passed"]
        return "\n".join(f"{one.test}: {one.outcome}\n{one.text}\n" for one in failed)


def run(
    kernel: GuestKernel, image: Path, folder: Path, bounds: Bounds, *, tell: str = ""
) -> Session:
    """``tell``: words for the kernel's command line, which the guest reads."""
    done = run_guest(
        kernel,
        image,
        folder,
        memory_mib=bounds.memory_mib,
        limit_seconds=bounds.limit_seconds,
        cpus=bounds.cpus,
        tell=tell,
    )
    return parse_session(done)


def parse_session(done: GuestRun) -> Session:
    """What was reported in whole lines; the last may have been cut off."""
    lines = [json.loads(line) for line in done.results.split("\n")[:-1]]
    results = [
        Result(one["test"], one["outcome"], one["seconds"], one["text"], one.get("flaky", False))
        for one in lines
        if "test" in one
    ]
    ends = [int(one["finished"]) for one in lines if "finished" in one]
    return Session(results, ends[-1] if ends else None, done)


def require_passed(session: Session) -> None:
    """Fail with the words of what failed inside."""
    failures = session.failures()
    if failures or session.exit_status != 0:
        said = f"{failures}\nthe guest's console:\n{session.console()}"
        pytest.fail(said, pytrace=False)


def timings(session: Session) -> str:
    """A line for each test."""
    return "\n".join(f"  {one.outcome} {one.seconds:6.1f} s {one.test}" for one in session.results)
