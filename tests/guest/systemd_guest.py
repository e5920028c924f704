"""The guest whose first process is systemd: `livesize up` as a service, on version 2.

As guest/v2_guest.py, with the systemd of this machine inside, containerd, an ordinary user, and
all that Livesize needs. One image for several boots: the kernel's command line says which tests
run. An emulated CPU needs minutes for each, so it is for the long runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from guest.containerd_guest import containerd_programs
from guest.host_files import host_entries, shared_libraries
from guest.session import Bounds, Session, run
from guest.v2_guest import MODULES, ROOT, guest_entries
from livesize.guest_images.cpio import CpioFile, CpioLink, Entry
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import GuestKernel, fetch_kernel

INSIDE = {  # and how many tests are in each
    "tests/guest/inside_systemd.py": 4,
    "tests/guest/inside_slices.py": 9,
    "tests/guest/inside_rootless.py": 7,
}
NEEDED = (
    *("pyproject.toml", "tests/tiers.py", "tests/leaks.py", "tests/system"),
    *("tests/guest/boot.py", "tests/guest/report.py", "tests/guest/service.py", *INSIDE),
)
DISTRIBUTIONS = ("livesize", "pytest", "pytest-asyncio", "grpcio", "jeepney", "protobuf")
SYSTEMD = Path("/lib/systemd/systemd")
PAM = Path("/lib/x86_64-linux-gnu/security/pam_permit.so")
USER = "ada"
USER_ID = 1000
TELL = "livesize.tests="
BOUNDS = Bounds(memory_mib=3072, limit_seconds=1500)

TEST_UNIT = """\
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
export PYTHONPATH={root}/src:{root}/tests HOME=/root PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin
tests=$(sed 's/.*{tell}\\([^ ]*\\).*/\\1/' /proc/cmdline)
{python} -m pytest -p guest.report -p no:cacheprovider -v --tier machine --matrix --color=no $tests
echo "guest: pytest ended with $?"
busybox poweroff -f
"""
# systemd's own manager of a user asks PAM whether it may begin, and nobody else.
SYSTEM_FILES = {
    "etc/systemd/system/tests.service": TEST_UNIT,
    "etc/tmpfiles.d/tmp.conf": "",  # or what is ours below /tmp would be cleared away
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/hosts": "127.0.0.1\tlocalhost\n",
    "etc/resolv.conf": "",
    "etc/passwd": (
        "root:x:0:0:root:/root:/usr/bin/sh\nnobody:x:65534:65534::/:/usr/bin/sh\n"
        "livesize:x:990:990::/:/usr/bin/sh\n"
        f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/usr/bin/sh\n"
    ),
    "etc/group": f"root:x:0:\nnogroup:x:65534:\nlivesize:x:990:\n{USER}:x:{USER_ID}:\n",
    "etc/pam.d/systemd-user": "account required pam_permit.so\nsession required pam_permit.so\n",
}
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


def run_inside(kernel: GuestKernel, image: Path, folder: Path, tests: str) -> Session:
    return run(kernel, image, folder, BOUNDS, tell=f"{TELL}{tests}")


def _entries(cache_dir: Path) -> dict[str, Entry]:
    programs = containerd_programs()
    words = {
        "root": ROOT,
        "python": sys.executable,
        "tell": TELL,
        "programs": programs[0].parent,
        "limit": BOUNDS.limit_inside_seconds,
    }
    return {
        **guest_entries(cache_dir, NEEDED, DISTRIBUTIONS),
        **host_entries([PAM, *programs, *shared_libraries([PAM, *programs])]),
        **_systemd_entries(),
        **{name: CpioFile(text.encode()) for name, text in SYSTEM_FILES.items()},
        "etc/systemd/system/ldconfig.service": CpioLink("/dev/null"),
        "tests.sh": CpioFile(SCRIPT.format(**words).encode()),
        "usr/bin/livesize": CpioFile(PROGRAM.format(**words).encode(), 0o755),
    }


def _systemd_entries() -> dict[str, Entry]:
    """The package as it is installed here. Documents are left out."""
    listed = subprocess.run(["dpkg", "-L", "systemd"], capture_output=True, text=True, check=True)
    paths = [Path(line) for line in listed.stdout.splitlines()]
    files = [path for path in paths if path.is_file() and not path.is_relative_to("/usr/share/doc")]
    programs = [path for path in files if path.stat().st_mode & 0o111 or ".so" in path.suffixes]
    return host_entries([*files, *shared_libraries(programs)])
