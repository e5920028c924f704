"""Removes what containerd leaves behind of a pod's control group.

containerd makes a group below the pod's for each container, in every hierarchy there is, those
without our controllers too; the pod's own directory it never removes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.detect import hierarchy_mounts
from livesize.runtime.cgroups.files import child_directories, remove_directory
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.cgroups.pod_groups import REMOVE_DELAYS
from livesize.runtime.interface import GoneError, RuntimeCallError


class ContainerdLeftovers:
    def __init__(self, cgroups: CgroupDriver, clock: Clock) -> None:
        self._cgroups = cgroups
        self._clock = clock
        self._mounts = hierarchy_mounts(Path("/proc/self/mountinfo").read_text())

    async def remove(self, path: str) -> None:
        """A group, all below it, and whoever is still in there. The kernel needs a moment after
        the last process has ended."""
        for delay_seconds in REMOVE_DELAYS:
            if self.remove_once(path):
                return
            self._kill_below(path)
            await self._clock.sleep(delay_seconds)
        if not self.remove_once(path):
            raise RuntimeCallError(f"cannot remove group {path}: processes are still in it")

    def remove_once(self, path: str) -> bool:
        removed = [_remove_tree(f"{mount}/{path}") for mount in self._mounts]
        return all(removed)

    def names(self, path: str) -> list[str]:
        """Of the groups directly below."""
        found = {name for mount in self._mounts for name in child_directories(f"{mount}/{path}")}
        return sorted(found)

    def _kill_below(self, path: str) -> None:
        for name in (path, *(f"{path}/{child}" for child in self._cgroups.children(path))):
            with contextlib.suppress(GoneError):  # containerd removes them at the same time
                self._cgroups.kill(name)


def _remove_tree(path: str) -> bool:
    below = [_remove_tree(f"{path}/{name}") for name in child_directories(path)]
    return all(below) and remove_directory(path)
