"""CPUs of their own on real control groups of version 2: what a guest with six CPUs found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.cpuset_guest import build, run
from livesize.runtime.guest.kernel import default_cache_dir

pytestmark = pytest.mark.cgroup_v2

CONSOLE_LINES = 60


def test_exclusive_cpus_inside(tmp_path: Path, not_run: Callable[[str], NoReturn]) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        not_run("needs qemu-system-x86_64")
    session = run(*build(default_cache_dir()), tmp_path)
    console = "\n".join(session.run.console.splitlines()[-CONSOLE_LINES:])
    failed = [one for one in session.results if one.outcome != "passed"]
    words = "\n".join(f"{one.test}: {one.outcome}\n{one.text}\n" for one in failed)
    if failed or session.exit_status != 0:
        pytest.fail(f"{words}\nthe guest's console:\n{console}", pytrace=False)
    assert len(session.results) == 1
