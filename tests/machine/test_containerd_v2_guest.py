"""containerd on control groups of version 2: the contract of runtimes, inside a QEMU guest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.containerd_guest import BOUNDS, build
from guest.session import require_passed, run
from livesize.guest_images.kernel import default_cache_dir

pytestmark = [pytest.mark.cgroup_v2, pytest.mark.matrix]

LEAST_TESTS = 25


def test_the_contract_of_runtimes_is_kept_on_version_2(
    needs_containerd: None, tmp_path: Path, not_run: Callable[[str], NoReturn]
) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        not_run("needs qemu-system-x86_64")
    session = run(*build(default_cache_dir()), tmp_path, BOUNDS)
    require_passed(session)
    assert len(session.results) >= LEAST_TESTS
