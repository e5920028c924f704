"""Finds out which control groups this machine has, and opens the driver for them.

Version 2 is taken where its tree offers cpu, memory and pids; a machine that keeps these in
version 1 hierarchies, with or without an empty version 2 tree beside them, gets version 1.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.cgroups import v1, v2
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.interface import RuntimeCallError

_NOT_CONTROLLERS = frozenset({"rw", "ro", "nosuid", "nodev", "noexec", "xattr", "clone_children"})


class CgroupMounts(msgspec.Struct, frozen=True):
    unified: tuple[str, ...]  # mounts of the version 2 tree
    controllers: dict[str, str]  # version 1: controller to its mount


def open_cgroups(clock: Clock, mountinfo: Path = Path("/proc/self/mountinfo")) -> CgroupDriver:
    """The driver for this machine, or a sentence that says what is missing."""
    mounts = parse_mounts(mountinfo.read_text())
    for mount in mounts.unified:
        if _offers(mount, v2.REQUIRED_CONTROLLERS):
            return v2.CgroupsV2(mount, clock)
    missing = [name for name in v1.REQUIRED_CONTROLLERS if name not in mounts.controllers]
    if missing:
        raise RuntimeCallError(
            "no usable control groups: neither a version 2 tree with"
            f" {', '.join(v2.REQUIRED_CONTROLLERS)} is mounted, nor the version 1 controllers"
            f" {', '.join(missing)}; mount cgroup2 on /sys/fs/cgroup"
        )
    return v1.CgroupsV1(mounts.controllers)


def parse_mounts(mountinfo: str) -> CgroupMounts:
    """From the text of /proc/self/mountinfo (proc(5)); the first mount of each wins."""
    unified: list[str] = []
    controllers: dict[str, str] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mount = _unescape(left.split()[4])
        filesystem, _, options = right.split()[:3]
        if filesystem == "cgroup2":
            unified.append(mount)
        elif filesystem == "cgroup":
            for name in options.split(","):
                if name not in _NOT_CONTROLLERS and "=" not in name:
                    controllers.setdefault(name, mount)
    return CgroupMounts(tuple(unified), controllers)


def hierarchy_mounts(mountinfo: str) -> tuple[str, ...]:
    """Every mount of control groups, of either version, those without controllers too."""
    mounts: list[str] = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            mounts.append(_unescape(left.split()[4]))
    return tuple(dict.fromkeys(mounts))


def _offers(mount: str, names: tuple[str, ...]) -> bool:
    try:
        available = Path(mount, "cgroup.controllers").read_text().split()
    except OSError:
        return False
    return all(name in available for name in names)


def _unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash in octal."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text
