"""Real control groups of version 2: tests that run inside a QEMU guest, and what they found.

One boot for the whole file; a second one only where the first did not come to its end. What runs
inside stands in guest/v2_guest.py; each inside file is one test here, which fails with the words
of what failed inside. Flaky tests get their second chance inside.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.session import Session, run
from guest.v2_guest import BOUNDS, INSIDE, build
from livesize.guest_images.kernel import default_cache_dir

pytestmark = pytest.mark.cgroup_v2

MOST_BOOTS = 2

_sessions: list[Session] = []  # also for those that are run again after all the others


@pytest.fixture
def session(
    tmp_path_factory: pytest.TempPathFactory, not_run: Callable[[str], NoReturn]
) -> Session:
    if shutil.which("qemu-system-x86_64") is None:
        not_run("needs qemu-system-x86_64")
    if not _sessions or (_sessions[-1].exit_status is None and len(_sessions) < MOST_BOOTS):
        kernel, image = build(default_cache_dir())
        _sessions.append(run(kernel, image, tmp_path_factory.mktemp("guest"), BOUNDS))
    return _sessions[-1]


def test_the_guest_runs_all_its_tests_to_the_end(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{summary(session)}")
    if session.exit_status is None:
        why = "was killed after its time limit" if session.run.timed_out else "ended too early"
        pytest.fail(f"the guest {why}; its console:\n{session.console()}", pytrace=False)
    if session.exit_status and all(result.outcome == "passed" for result in session.results):
        why = f"pytest ended with {session.exit_status} though all tests passed"
        pytest.fail(f"{why}; the guest's console:\n{session.console()}", pytrace=False)
    odd = [result.test for result in session.results if not result.test.startswith(INSIDE)]
    assert odd == []


@pytest.mark.parametrize("file", INSIDE)
def test_inside(session: Session, file: str) -> None:
    results = [result for result in session.results if result.test.startswith(file)]
    assert results, f"nothing of {file} was run; the guest's console:\n{session.console()}"
    failed = [result for result in results if result.outcome != "passed"]
    words = "\n".join(f"{result.test}: {result.outcome}\n{result.text}\n" for result in failed)
    if failed:
        pytest.fail(f"{words}\nthe guest's console:\n{session.console()}", pytrace=False)


@pytest.mark.matrix
def test_the_long_ones_inside(
    tmp_path: Path, not_run: Callable[[str], NoReturn], capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        not_run("needs qemu-system-x86_64")
    kernel, image = build(default_cache_dir(), "--matrix -m matrix")
    session = run(kernel, image, tmp_path, BOUNDS)
    with capsys.disabled():
        print(f"\n{summary(session)}")
    assert session.results, session.console()
    assert (session.exit_status, session.failures()) == (0, "")


def summary(session: Session) -> str:
    lines = [f"inside the guest, cgroup v2: {len(session.results)} tests"]
    for file in INSIDE:
        results = [result for result in session.results if result.test.startswith(file)]
        passed = sum(result.outcome == "passed" for result in results)
        seconds = sum(result.seconds for result in results)
        flaky = sum(result.flaky for result in results)
        again = f", {flaky} when run again" if flaky else ""
        lines.append(f"  {file}: {passed} of {len(results)} passed{again}, {seconds:.1f} s")
    return "\n".join(lines)
