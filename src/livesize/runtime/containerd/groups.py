"""The control groups of pods whose containers containerd runs.

The pod's group is ours: made, sized and removed here. containerd makes a group below it for each
container, named by the container's id, in every hierarchy there is; it leaves the pod's directory
behind in all of them.
"""

from __future__ import annotations

from pathlib import Path

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.detect import hierarchy_mounts
from livesize.runtime.cgroups.files import child_directories, remove_directory
from livesize.runtime.cgroups.interface import POD_PREFIX, CgroupDriver, group_path
from livesize.runtime.interface import PodGroup, RuntimeCallError

_REMOVE_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0)


class PodGroups:
    def __init__(self, root: str, cgroups: CgroupDriver, clock: Clock) -> None:
        self.root = root.strip("/")
        self._cgroups = cgroups
        self._clock = clock
        self._mounts = hierarchy_mounts(Path("/proc/self/mountinfo").read_text())

    def path(self, uid: str) -> str:
        return group_path(self.root, PodGroup(uid))

    def make(self, uid: str) -> str:
        path = self.path(uid)
        self._cgroups.make(path)
        return path

    def size(self, uid: str, limits: KernelLimits, pids_max: int) -> None:
        path = self.path(uid)
        self._cgroups.write_pids(path, pids_max)
        self._cgroups.write_memory(path, limits.memory_limit_bytes)
        self._cgroups.write_cpu(path, limits.cpu_weight, limits.cpu_quota_us)

    async def remove(self, uid: str) -> None:
        await self._remove(self.path(uid))

    async def remove_strange(self, known: set[str]) -> None:
        """Groups of pods that nobody knows: leftovers of a killed agent."""
        for name in self._names(self.root):
            if name.removeprefix(POD_PREFIX) not in known:
                await self._remove(f"{self.root}/{name}")

    def remove_root(self) -> None:
        """Our root group, and what stands above it as far as nobody else is in there."""
        path = self.root
        while path and not self._names(path):
            if not self._remove_once(path):
                return
            path = path.rpartition("/")[0]

    async def _remove(self, path: str) -> None:
        """The kernel needs a moment after the last process has ended."""
        for delay_seconds in _REMOVE_DELAYS:
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
        """Whoever is still in there belongs to a pod that is to be no more."""
        for name in self._cgroups.children(path):
            self._cgroups.kill(f"{path}/{name}")
        self._cgroups.kill(path)

    def _names(self, path: str) -> list[str]:
        found = {name for mount in self._mounts for name in child_directories(f"{mount}/{path}")}
        return sorted(found)


def _remove_tree(path: str) -> bool:
    below = [_remove_tree(f"{path}/{name}") for name in child_directories(path)]
    return all(below) and remove_directory(path)
