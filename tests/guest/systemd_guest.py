"""The guest whose first process is systemd: `livesize up` as a service, on version 2.

As guest/v2_guest.py, with the systemd of this machine inside and all that Livesize needs. An
emulated CPU needs minutes for it, so it is for the long runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from guest.boot import run_guest
from guest.v2_guest import MODULES, ROOT, Session, guest_entries, parse_session
from livesize.runtime.guest.cpio import Entry, File, Link
from livesize.runtime.guest.host_files import host_entries, shared_libraries
from livesize.runtime.guest.image import GuestRecipe, build_image
from livesize.runtime.guest.kernel import GuestKernel, fetch_kernel

INSIDE = "tests/guest/inside_systemd.py"
NEEDED = (
    *("pyproject.toml", "tests/tiers.py", "tests/leaks.py", "tests/system"),
    *("tests/guest/boot.py", "tests/guest/report.py", INSIDE),
)
SYSTEMD = Path("/lib/systemd/systemd")
CPUS = 2
MEMORY_MIB = 2048
LIMIT_SECONDS = 900

TEST_UNIT = b"""\
[Unit]
Description=The tests
DefaultDependencies=no

[Service]
ExecStart=/usr/bin/sh /tests.sh
TimeoutStartSec=infinity
"""
SCRIPT = """\
exec > /dev/console 2>&1
(sleep {limit}; echo 'guest: out of time'; busybox poweroff -f) &
cd {root}
export PYTHONPATH={root}/src:{root}/tests HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
{python} -m pytest -p guest.report -p no:cacheprovider -v --tier machine --matrix --color=no {tests}
echo "guest: pytest ended with $?"
busybox poweroff -f
"""
PROGRAM = """\
#!/usr/bin/sh
export PYTHONPATH={root}/src
exec {python} -c 'from livesize.main.entry import main; main()' "$@"
"""


def build(cache_dir: Path) -> tuple[GuestKernel, Path]:
    kernel = fetch_kernel(cache_dir)
    commands = f"exec {SYSTEMD} --system --unit=tests.service --show-status=no --log-target=kmsg"
    recipe = GuestRecipe("systemd-v2", commands, MODULES, _entries(cache_dir))
    return kernel, build_image(recipe, kernel, cache_dir)


def run(kernel: GuestKernel, image: Path, folder: Path) -> Session:
    done = run_guest(
        kernel,
        image,
        folder,
        memory_mib=MEMORY_MIB,
        limit_seconds=LIMIT_SECONDS,
        cpus=CPUS,
    )
    return parse_session(done)


def _entries(cache_dir: Path) -> dict[str, Entry]:
    words = {"root": ROOT, "python": sys.executable, "tests": INSIDE, "limit": LIMIT_SECONDS + 15}
    return {
        **guest_entries(cache_dir, NEEDED, ("livesize", "pytest", "pytest-asyncio")),
        **_systemd_entries(),
        "etc/systemd/system/tests.service": File(TEST_UNIT),
        "etc/systemd/system/ldconfig.service": Link("/dev/null"),
        "etc/tmpfiles.d/tmp.conf": File(b""),  # or what is ours below /tmp would be cleared away
        "tests.sh": File(SCRIPT.format(**words).encode()),
        "usr/bin/livesize": File(PROGRAM.format(**words).encode(), 0o755),
        "etc/machine-id": File(b"0123456789abcdef0123456789abcdef\n"),
        "etc/hosts": File(b"127.0.0.1\tlocalhost\n"),
        "etc/resolv.conf": File(b""),
        "etc/passwd": File(
            b"root:x:0:0:root:/root:/usr/bin/sh\nnobody:x:65534:65534::/:/usr/bin/sh\n"
        ),
        "etc/group": File(b"root:x:0:\nnogroup:x:65534:\n"),
    }


def _systemd_entries() -> dict[str, Entry]:
    """The package as it is installed here. Documents are left out."""
    listed = subprocess.run(["dpkg", "-L", "systemd"], capture_output=True, text=True, check=True)
    paths = [Path(line) for line in listed.stdout.splitlines()]
    files = [path for path in paths if path.is_file() and not path.is_relative_to("/usr/share/doc")]
    programs = [path for path in files if path.stat().st_mode & 0o111 or ".so" in path.suffixes]
    return host_entries([*files, *shared_libraries(programs)])
