"""Where the groups of pods and containers stand, and who writes those of pods.

containerd writes the groups of containers. What stands above them is ours: a directory that we
make and write, or, where containerd leaves groups to systemd, a slice that systemd makes and is
asked to limit (slice_layout.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import POD_PREFIX, CgroupDriver
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.containerd.leftovers import ContainerdLeftovers
from livesize.runtime.interface import PodGroup


class GroupLayout(Protocol):
    """Paths are below the hierarchy."""

    def pod(self, uid: str) -> str: ...

    def container(self, uid: str, container_id: str) -> str: ...

    def parent(self, uid: str) -> str:
        """What containerd is told of the pod's group."""
        ...

    async def open(self) -> None:
        """Put right what a killed agent left in the middle of a shrink."""
        ...

    def close(self) -> None: ...

    async def make(self, uid: str, limits: KernelLimits, pids_max: int) -> None:
        """A new pod's."""
        ...

    def exists(self, uid: str) -> bool: ...

    async def find(self, uid: str) -> None:
        """One that is there, or was before a reboot: then it is made without limits. Those noted
        may be older than the last resize; the agent sets them from what it allocated."""
        ...

    async def write(self, uid: str, change: GroupChange) -> None: ...

    async def remove(self, uid: str) -> None:
        """The group of a pod that is no more, all below it, and whoever is still in there."""
        ...

    async def remove_strange(self, known: set[str]) -> None:
        """Groups of pods that nobody knows: an agent was killed while it made or removed them."""
        ...

    async def remove_root(self) -> None:
        """What stands above the pods, as far as nobody else is in there."""
        ...


class DirectoryLayout:
    """Directories of our own below ``root``, written directly."""

    def __init__(
        self,
        cgroups: CgroupDriver,
        root: str,
        clock: Clock,
        on_removed: Callable[[str], None] | None = None,
    ) -> None:
        watching = () if on_removed is None else (on_removed,)
        self._groups = PodGroups(cgroups, root, clock, *watching)
        self._leftovers = ContainerdLeftovers(cgroups, clock)

    def pod(self, uid: str) -> str:
        return self._groups.path(PodGroup(uid))

    def container(self, uid: str, container_id: str) -> str:
        return f"{self.pod(uid)}/{container_id}"

    def parent(self, uid: str) -> str:
        return f"/{self.pod(uid)}"

    async def open(self) -> None:
        self._groups.open()

    def close(self) -> None:
        self._groups.close()

    async def make(self, uid: str, limits: KernelLimits, pids_max: int) -> None:
        self._groups.make(PodGroup(uid), limits)
        self._groups.limit_processes(PodGroup(uid), pids_max)

    def exists(self, uid: str) -> bool:
        return self._groups.exists(PodGroup(uid))

    async def find(self, uid: str) -> None:
        self._groups.make(PodGroup(uid), None)

    async def write(self, uid: str, change: GroupChange) -> None:
        await self._groups.write(PodGroup(uid), change)

    async def remove(self, uid: str) -> None:
        await self._leftovers.remove(self.pod(uid))

    async def remove_strange(self, known: set[str]) -> None:
        root = self._groups.root
        for name in self._leftovers.names(root):
            if name.removeprefix(POD_PREFIX) not in known:
                await self._leftovers.remove(f"{root}/{name}")

    async def remove_root(self) -> None:
        path, left = self._groups.root, self._leftovers
        while path and not left.names(path) and left.remove_once(path):
            path = path.rpartition("/")[0]
