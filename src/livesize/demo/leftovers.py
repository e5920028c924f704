"""What is left on this machine of a system that kept everything in one folder.

It is found by looking at the machine, not by asking Livesize: control groups by name, processes
that were told of the folder, work in it, or have it for libvirt's, as QEMU and libvirtd do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from livesize.machinery.clock import SystemClock
from livesize.machinery.data_directory import DataDirectory
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver

_POLL_SECONDS = 0.05
_FORCE_SECONDS = 5.0


class DemoLeftovers(msgspec.Struct, frozen=True):
    pids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pids or self.groups)

    def __str__(self) -> str:
        processes = (f"process {pid}" for pid in self.pids)
        return ", ".join([*processes, *(f"control group {group}" for group in self.groups)])


def find_leftovers(folder: Path, root_groups: tuple[str, ...]) -> DemoLeftovers:
    cgroups = open_cgroups(SystemClock())
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return DemoLeftovers(
        tuple(sorted(pid for pid in pids if pid != os.getpid() and _belongs(pid, folder))),
        tuple(group for group in root_groups if cgroups.exists(group)),
    )


def wait_for_nothing(folder: Path, root_groups: tuple[str, ...], seconds: float) -> DemoLeftovers:
    """What is still there then; what has ended needs a moment to vanish."""
    left = find_leftovers(folder, root_groups)
    for _ in _polls(seconds):
        if not left:
            break
        left = find_leftovers(folder, root_groups)
    return left


def remove_by_force(folder: Path, root_groups: tuple[str, ...]) -> None:
    """The last resort, for a machine that is left clean even so."""
    cgroups = open_cgroups(SystemClock())
    for _ in _polls(_FORCE_SECONDS):
        left = find_leftovers(folder, root_groups)
        if not left:
            return
        for pid in left.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in left.groups:
            _remove_tree(cgroups, group)


def _remove_tree(cgroups: CgroupDriver, group: str) -> None:
    for name in cgroups.children(group):
        _remove_tree(cgroups, f"{group}/{name}")
    cgroups.kill(group)
    cgroups.remove(group)


def _belongs(pid: int, folder: Path) -> bool:
    """Nothing of the system has a terminal; a shell in the folder is somebody else's."""
    process, inside = Path(f"/proc/{pid}"), f"{folder}/"
    try:
        terminal = int((process / "stat").read_text().rsplit(")", 1)[1].split()[4])
        return terminal == 0 and (
            inside.encode() in (process / "cmdline").read_bytes()
            or (process / "cwd").readlink().is_relative_to(folder)
            or _sees_as_libvirts(process, folder)
        )
    except OSError:
        return False  # it ended while we looked


def _sees_as_libvirts(process: Path, folder: Path) -> bool:
    """In the mount namespace of libvirtd and QEMU a folder of ours is libvirt's."""
    ours, theirs = DataDirectory(folder / "data").vms / "libvirt/run", process / "root/run/libvirt"
    return ours.exists() and theirs.exists() and theirs.samefile(ours)


def _polls(seconds: float) -> Iterator[None]:
    pause = threading.Event()  # never set: waiting on it is sleeping
    for _ in range(int(seconds / _POLL_SECONDS)):
        yield
        pause.wait(_POLL_SECONDS)
