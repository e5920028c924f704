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
from livesize.runtime.cgroups.interface import POD_PREFIX
from livesize.runtime.cgroups.pod_groups import REMOVE_DELAYS, PodGroups
from livesize.runtime.interface import GoneError, PodGroup, RuntimeCallError


class Leftovers:
    def __init__(self, groups: PodGroups, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._mounts = hierarchy_mounts(Path("/proc/self/mountinfo").read_text())

    async def remove(self, uid: str) -> None:
        """The groups of a pod that is no more, and whoever is still in there."""
        await self.remove_path(self._groups.path(PodGroup(uid)))

    async def remove_strange(self, known: set[str]) -> None:
        """Groups of pods that nobody knows: an agent was killed while it made or removed them."""
        root = self._groups.root
        for name in self._names(root):
            if name.removeprefix(POD_PREFIX) not in known:
                await self.remove_path(f"{root}/{name}")

    def remove_root(self) -> None:
        """The root, and what stands above it as far as nobody else is in there."""
        path = self._groups.root
        while path and not self._names(path) and self._remove_once(path):
            path = path.rpartition("/")[0]

    async def remove_path(self, path: str) -> None:
        """The kernel needs a moment after the last process has ended."""
        for delay_seconds in REMOVE_DELAYS:
            if self._remove_once(path):
                return
            self._kill_below(path)
            await self._clock.sleep(delay_seconds)
        if not self._remove_once(path):
            raise RuntimeCallError(f"cannot remove group {path}: processes are still in it")

    def _remove_once(self, path: str) -> bool:
        removed = [_remove_tree(f"{mount}/{path}") for mount in self._mounts]
        return all(removed)

    def _kill_below(self, path: str) -> None:
        cgroups = self._groups.cgroups
        for name in (path, *(f"{path}/{child}" for child in cgroups.children(path))):
            with contextlib.suppress(GoneError):  # containerd removes them at the same time
                cgroups.kill(name)

    def _names(self, path: str) -> list[str]:
        found = {name for mount in self._mounts for name in child_directories(f"{mount}/{path}")}
        return sorted(found)


def _remove_tree(path: str) -> bool:
    below = [_remove_tree(f"{path}/{name}") for name in child_directories(path)]
    return all(below) and remove_directory(path)
