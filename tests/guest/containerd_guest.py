"""The guest in which containerd meets real control groups of version 2.

As guest/v2_guest.py, with containerd, runc and grpc inside; what runs there is the contract that
every runtime passes, and what version 2 asks of this driver alone. An emulated CPU needs minutes
for it, so it is for the long runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from guest.host_files import host_entries, program_entries, shared_libraries
from guest.python_tree import compiled_entries, python_entries, tree_files
from guest.session import Bounds
from guest.v2_guest import DISTRIBUTIONS, MODULES, PROGRAMS, ROOT, inside
from livesize.guest_images.cpio import CpioFile, Entry, HostFile
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import GuestKernel, fetch_kernel
from livesize.runtime.containerd.daemon import find_programs

INSIDE = ("tests/guest/inside_containerd.py", "tests/contract/test_runtime_contract.py")
NEEDED = (
    *("pyproject.toml", "tests/tiers.py", "tests/leaks.py", "tests/containerd_folders.py"),
    *("tests/guest/report.py", "tests/guest/boot.py", *INSIDE),
)
NEEDED_PACKAGES = (*DISTRIBUTIONS, "grpcio", "jeepney", "orjson", "protobuf")
BOUNDS = Bounds(memory_mib=3072, limit_seconds=1500)
CONFTEST = (
    b'"""What runs inside the guest."""\n\n'
    b'pytest_plugins = ["tiers", "leaks", "containerd_folders"]\n'
)
COMMANDS = """\
(sleep {limit}; echo 'guest: out of time'; poweroff -f) &
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd {root}
export PYTHONPATH={root}/tests:{root}/src PATH={programs}:$PATH
{python} -m pytest -p guest.report -p no:cacheprovider -v --tier machine --color=no \\
  -k containerd {tests}
echo "guest: pytest ended with $?"
"""


def build(cache_dir: Path) -> tuple[GuestKernel, Path]:
    kernel = fetch_kernel(cache_dir)
    programs = containerd_programs()
    folders = dict.fromkeys(str(path.parent) for path in programs)
    commands = COMMANDS.format(
        root=ROOT,
        python=sys.executable,
        programs=":".join(folders),
        tests=" ".join(INSIDE),
        limit=BOUNDS.limit_inside_seconds,
    )
    entries = _entries(cache_dir, programs)
    recipe = GuestRecipe("containerd-v2", commands, MODULES, entries)
    return kernel, build_image(recipe, kernel, cache_dir)


def containerd_programs() -> list[Path]:
    found = find_programs()
    return [Path(path) for path in (found.containerd, found.runc, found.shim, found.ctr)]


def _entries(cache_dir: Path, programs: list[Path]) -> dict[str, Entry]:
    sources = list(tree_files(ROOT / "src"))
    own = {inside(path): HostFile(path, 0o644) for path in sources}
    own |= {inside(ROOT / name): HostFile(ROOT / name, 0o644) for name in NEEDED}
    return {
        **program_entries(PROGRAMS),
        **host_entries([*programs, *shared_libraries(programs)]),
        **python_entries(NEEDED_PACKAGES, ["livesize"], cache_dir),
        **own,
        inside(ROOT / "tests/conftest.py"): CpioFile(CONFTEST),
        "etc/hosts": CpioFile(b"127.0.0.1\tlocalhost\n"),
        "etc/resolv.conf": CpioFile(b""),
        **compiled_entries(sources, cache_dir),
    }
