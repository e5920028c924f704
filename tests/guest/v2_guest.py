"""The guest in which the machine tests meet real control groups of version 2.

Inside are our Python with our sources and tests at the same paths as here, busybox, and the few
programs the process runtime calls; a disk, to have a page cache; and a port for the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

from guest.host_files import program_entries
from guest.python_tree import compiled_entries, python_entries, tree_files
from guest.session import Bounds
from livesize.guest_images.cpio import CpioFile, Entry, HostFile
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import GuestKernel, fetch_kernel

ROOT = Path(__file__).parents[2]
INSIDE = (
    "tests/contract/test_runtime_contract.py",
    "tests/guest/inside_memory.py",
    "tests/guest/inside_narrow.py",
    "tests/guest/inside_cpu.py",
    "tests/guest/inside_resize_order.py",
    "tests/guest/inside_own_group.py",
)
NEEDED = (
    *("pyproject.toml", "tests/tiers.py", "tests/leaks.py", "tests/system/process_pod.py"),
    *("tests/guest", "tests/machine/test_resize_order_v1.py", *INSIDE),
)
DISTRIBUTIONS = ("msgspec", "pytest", "pytest-asyncio", "typing-extensions")
PROGRAMS = ("sh", "unshare", "cp", "mount", "umount")
MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "overlay")
BOUNDS = Bounds(memory_mib=1536, limit_seconds=165)

# Instead of the one here: each plugin that is not needed inside costs seconds there.
CONFTEST = b'"""What runs inside the guest."""\n\npytest_plugins = ["tiers", "leaks"]\n'
COMMANDS = """\
(sleep {limit}; echo 'guest: out of time'; poweroff -f) &
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd {root}
export PYTHONPATH={root}/src:{root}/tests
{python} -m pytest -p guest.report -p no:cacheprovider -v {options} --color=no \\
  -k 'not containerd' {tests}
echo "guest: pytest ended with $?"
"""


def build(cache_dir: Path, options: str = "--tier machine") -> tuple[GuestKernel, Path]:
    """``options`` choose among the tests inside."""
    kernel = fetch_kernel(cache_dir)
    commands = COMMANDS.format(
        root=ROOT,
        python=sys.executable,
        options=options,
        tests=" ".join(INSIDE),
        limit=BOUNDS.limit_inside_seconds,
    )
    entries = guest_entries(cache_dir, NEEDED, DISTRIBUTIONS)
    recipe = GuestRecipe("cgroup-v2", commands, MODULES, entries)
    return kernel, build_image(recipe, kernel, cache_dir)


def guest_entries(
    cache_dir: Path, needed: tuple[str, ...], distributions: tuple[str, ...]
) -> dict[str, Entry]:
    """Python with our sources and the ``needed`` tests, at the same paths as here."""
    sources = list(tree_files(ROOT / "src"))
    tests = [path for name in needed for path in _files(ROOT / name)]
    own = {inside(path): HostFile(path, 0o644) for path in [*sources, *tests]}
    return {
        **program_entries(PROGRAMS),
        **python_entries(distributions, ["livesize"], cache_dir),
        **own,
        inside(ROOT / "tests/conftest.py"): CpioFile(CONFTEST),
        **compiled_entries(sources, cache_dir),
    }


def inside(path: Path) -> str:
    return str(path).lstrip("/")


def _files(path: Path) -> list[Path]:
    return list(tree_files(path)) if path.is_dir() else [path]
