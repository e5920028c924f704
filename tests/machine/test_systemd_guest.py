"""`livesize up` as a service of systemd on control groups of version 2, inside a QEMU guest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.systemd_guest import SYSTEMD, build, run
from livesize.runtime.guest.kernel import default_cache_dir

pytestmark = [pytest.mark.cgroup_v2, pytest.mark.matrix]

CONSOLE_LINES = 60
TESTS = 4


def test_pods_stay_what_they_are_whatever_systemd_does(
    tmp_path: Path, not_run: Callable[[str], NoReturn]
) -> None:
    for needed in ("qemu-system-x86_64", "dpkg"):
        if shutil.which(needed) is None:
            not_run(f"needs {needed}")
    if not SYSTEMD.exists():
        not_run("needs systemd")
    session = run(*build(default_cache_dir()), tmp_path)
    console = "\n".join(session.run.console.splitlines()[-CONSOLE_LINES:])
    failed = [one for one in session.results if one.outcome != "passed"]
    words = "\n".join(f"{one.test}: {one.outcome}\n{one.text}\n" for one in failed)
    if failed or session.exit_status != 0:
        pytest.fail(f"{words}\nthe guest's console:\n{console}", pytrace=False)
    assert len(session.results) == TESTS
