"""`livesize up` where systemd is the first process, on control groups of version 2, inside a guest.

A boot for each file that runs inside: as root's service, with a containerd that leaves control
groups to systemd, and as the service of an ordinary user.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from guest.session import require_passed, timings
from guest.systemd_guest import INSIDE, PAM, SYSTEMD, build, run_inside
from livesize.guest_images.kernel import default_cache_dir

pytestmark = [pytest.mark.cgroup_v2, pytest.mark.matrix]


@pytest.mark.parametrize(("tests", "count"), INSIDE.items())
def test_pods_stay_what_they_are_whatever_systemd_does(
    needs_containerd: None,
    tmp_path: Path,
    not_run: Callable[[str], NoReturn],
    capsys: pytest.CaptureFixture[str],
    tests: str,
    count: int,
) -> None:
    for needed in ("qemu-system-x86_64", "dpkg"):
        if shutil.which(needed) is None:
            not_run(f"needs {needed}")
    for path in (SYSTEMD, PAM):
        if not path.exists():
            not_run(f"needs {path}")
    session = run_inside(*build(default_cache_dir()), tmp_path, tests)
    with capsys.disabled():
        print(f"\ninside the guest with systemd:\n{timings(session)}")
    require_passed(session)
    assert len(session.results) == count
