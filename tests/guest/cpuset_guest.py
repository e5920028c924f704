"""The guest with six CPUs, for what has to give CPUs away.

As guest/v2_guest.py, which has two: more of them make an emulated machine slow, so that few tests
run here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from guest.session import Bounds
from guest.v2_guest import COMMANDS, DISTRIBUTIONS, MODULES, ROOT, guest_entries
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import GuestKernel, fetch_kernel

INSIDE = "tests/guest/inside_cpuset.py"
NEEDED = (
    *("pyproject.toml", "tests/tiers.py", "tests/leaks.py", "tests/memory_service.py"),
    "tests/unit/agent/world_api.py",
    *("tests/guest/boot.py", "tests/guest/report.py", INSIDE),
)
BOUNDS = Bounds(memory_mib=1024, limit_seconds=120, cpus=6)


def build(cache_dir: Path) -> tuple[GuestKernel, Path]:
    kernel = fetch_kernel(cache_dir)
    commands = COMMANDS.format(
        root=ROOT,
        python=sys.executable,
        options="--tier machine",
        tests=INSIDE,
        limit=BOUNDS.limit_inside_seconds,
    )
    entries = guest_entries(cache_dir, NEEDED, (*DISTRIBUTIONS, "apsw", "orjson"))
    recipe = GuestRecipe("cgroup-v2-cpus", commands, MODULES, entries)
    return kernel, build_image(recipe, kernel, cache_dir)
