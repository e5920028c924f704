"""What this machine has of what Livesize needs. Each check reads files below ``root`` or gets its
facts as arguments, so that any machine can be described in a test.

A check ends in a Finding: ✓ what there is, or ✗ what is missing and what to do about it. What is
not needed but good to have is marked optional and never fails the whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

NEEDED_PYTHON = (3, 11)
NEEDED_CONTROLLERS = ("cpu", "memory", "pids")
V1_CONTROLLERS = ("cpu", "cpuacct", "memory", "pids")
NEEDED_MEMORY_BYTES = 256 * 2**20
NEEDED_KUBECTL = (1, 32)


class Finding(msgspec.Struct, frozen=True):
    name: str
    ok: bool
    what: str
    remedy: str = ""
    optional: bool = False


DoctorProbe: TypeAlias = Callable[[], Sequence[Finding]]
"""Checks of something the command line does not know itself; main hands in a list of them."""


def check_python(version: Sequence[int]) -> Finding:
    shown = ".".join(str(part) for part in version[:3])
    if tuple(version[:2]) >= NEEDED_PYTHON:
        return Finding("python", True, f"Python {shown}")
    wanted = ".".join(str(part) for part in NEEDED_PYTHON)
    return Finding(
        "python", False, f"Python {shown} is too old", f"install Python {wanted} or newer"
    )


def check_root(effective_uid: int) -> Finding:
    if effective_uid == 0:
        return Finding("root", True, "running as root")
    remedy = "run `livesize up` with sudo for all that Livesize can do"
    return Finding("root", False, "an ordinary user: see below", remedy, optional=True)


def check_cgroups(root: Path) -> Finding:
    """One of the two cgroup versions, with every controller we write to."""
    unified = root / "sys/fs/cgroup/cgroup.controllers"
    if unified.exists():
        return _version_2(unified.read_text().split())
    return _version_1(root)


def check_cgroups_writable(root: Path) -> Finding:
    """Containers and CI often mount cgroups read-only."""
    top = root / "sys/fs/cgroup"
    group = top if (top / "cgroup.controllers").exists() else top / "memory"
    if os.access(group, os.W_OK) and not _is_read_only(root, group):
        return Finding("cgroup-write", True, "cgroups can be written")
    remedy = "run as root; in a container, start it with --privileged or mount cgroups read-write"
    return Finding("cgroup-write", False, f"/{group.relative_to(root)} is read-only", remedy)


def check_machine(root: Path) -> Finding:
    """CPUs and memory that pods could use."""
    cpus = _count_cpus(_read(root / "proc/cpuinfo"))
    memory_bytes = _meminfo_bytes(_read(root / "proc/meminfo"), "MemAvailable")
    what = f"{cpus} CPUs, {memory_bytes // 2**20} MiB of memory available"
    if memory_bytes >= NEEDED_MEMORY_BYTES:
        return Finding("machine", True, what)
    remedy = f"free some memory: at least {NEEDED_MEMORY_BYTES // 2**20} MiB"
    return Finding("machine", False, what, remedy)


def check_busybox(path: str | None) -> Finding:
    if path:
        return Finding("busybox", True, f"busybox at {path}", optional=True)
    remedy = "apt-get install busybox-static (the demo's image is made from it)"
    return Finding("busybox", False, "busybox is not installed", remedy, optional=True)


def check_kubectl(version: str | None) -> Finding:
    """``version`` as `kubectl version` prints it, None where there is no kubectl."""
    if version is None:
        remedy = "install kubectl 1.32 or newer, or use `livesize get` and `livesize resize`"
        return Finding("kubectl", False, "kubectl is not installed", remedy, optional=True)
    found = re.search(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= NEEDED_KUBECTL:
        return Finding("kubectl", True, f"kubectl {version}", optional=True)
    remedy = "install kubectl 1.32 or newer: older ones do not know --subresource resize"
    return Finding("kubectl", False, f"kubectl {version} is old", remedy, optional=True)


def _version_2(controllers: Sequence[str]) -> Finding:
    missing = [name for name in NEEDED_CONTROLLERS if name not in controllers]
    if not missing:
        return Finding("cgroups", True, "cgroup v2 with cpu, memory and pids")
    remedy = f"enable them for this group: echo +{' +'.join(missing)} > cgroup.subtree_control"
    return Finding("cgroups", False, f"cgroup v2 without {', '.join(missing)}", remedy)


def _version_1(root: Path) -> Finding:
    enabled = _v1_controllers(_read(root / "proc/cgroups"))
    mounted = {
        name for name in V1_CONTROLLERS if (root / "sys/fs/cgroup" / name / "tasks").exists()
    }
    missing = [name for name in V1_CONTROLLERS if name not in enabled or name not in mounted]
    if not missing:
        return Finding("cgroups", True, "cgroup v1 with cpu, memory and pids")
    if not enabled:
        remedy = "mount cgroups at /sys/fs/cgroup"
        return Finding("cgroups", False, "no cgroups are mounted", remedy)
    what = f"cgroup v1 without {', '.join(missing)}"
    remedy = "mount them below /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1"
    return Finding("cgroups", False, what, remedy)


def _v1_controllers(text: str) -> set[str]:
    """Names of /proc/cgroups whose last column, enabled, is 1."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {row[0] for row in rows if len(row) == 4 and row[3] == "1"}


def _is_read_only(root: Path, group: Path) -> bool:
    """Root passes every permission check; only the mount table tells."""
    wanted = f"/{group.relative_to(root)}"
    for line in _read(root / "proc/self/mounts").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[1] == wanted:
            return "ro" in fields[3].split(",")
    return False


def _count_cpus(text: str) -> int:
    return len(re.findall(r"^processor\s*:", text, re.MULTILINE))


def _meminfo_bytes(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
