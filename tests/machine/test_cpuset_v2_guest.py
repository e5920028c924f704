"""CPUs of their own on real control groups of version 2: what a guest with six CPUs found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.cpuset_guest import BOUNDS, build
from guest.session import require_passed, run
from livesize.guest_images.kernel import default_cache_dir

pytestmark = pytest.mark.cgroup_v2


def test_exclusive_cpus_inside(tmp_path: Path, not_run: Callable[[str], NoReturn]) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        not_run("needs qemu-system-x86_64")
    session = run(*build(default_cache_dir()), tmp_path, BOUNDS)
    require_passed(session)
    assert len(session.results) == 1
