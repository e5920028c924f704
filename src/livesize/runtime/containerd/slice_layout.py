"""Pods as slices of systemd, for a containerd that leaves control groups to it.

    livesize.slice/livesize-NODE.slice/livesize-NODE-podUID.slice/cri-containerd-ID.scope

systemd sets its groups back to what it knows whenever it reads its units again, and a scope can
have no group of ours between it and its slice. So a pod's limits are told to systemd, and written
into the files as well: a quota in parts of a percent is more than systemd can keep.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.interface import CgroupDriver, safe_name
from livesize.runtime.cgroups.pod_groups import REMOVE_DELAYS
from livesize.runtime.containerd.leftovers import ContainerdLeftovers
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.systemd.bus import Property, Systemd
from livesize.runtime.systemd.properties import (
    INFINITY,
    cpu_list_properties,
    cpu_properties,
    limit_properties,
    memory_properties,
    slice_properties,
    stored_quota_us,
)
from livesize.runtime.systemd.slices import SLICE, slice_name, slice_path

_SHRINKS_AT_ONCE = 64
_WRITTEN_DELAYS = (0.001, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

log = get_logger("runtime.slices")


class SliceLayout:
    """Slices below the one that ``root``, for instance livesize/NODE, stands for."""

    def __init__(
        self, cgroups: CgroupDriver, root: str, clock: Clock, systemd: Systemd | None = None
    ) -> None:
        self._cgroups = cgroups
        self._parts = tuple(root.strip("/").split("/"))
        self._clock = clock
        self._systemd = systemd or Systemd(clock)
        self._leftovers = ContainerdLeftovers(cgroups, clock)
        self._threads = ThreadPoolExecutor(_SHRINKS_AT_ONCE, thread_name_prefix="livesize-shrink")

    def pod(self, uid: str) -> str:
        return slice_path(self.parent(uid))

    def container(self, uid: str, container_id: str) -> str:
        return f"{self.pod(uid)}/cri-containerd-{container_id}.scope"

    def parent(self, uid: str) -> str:
        return slice_name(*self._parts, f"pod{safe_name(uid)}")

    async def open(self) -> None:
        if self._cgroups.version is CgroupVersion.V1:
            raise RuntimeCallError(
                "--cgroup-driver systemd needs control groups of version 2; boot with"
                " systemd.unified_cgroup_hierarchy=1, or choose --cgroup-driver cgroupfs"
            )
        root = self._root
        for pod in self._cgroups.children(root):
            for name in (pod, *(f"{pod}/{one}" for one in self._cgroups.children(f"{root}/{pod}"))):
                if self._cgroups.restore_limits(f"{root}/{name}"):
                    log.warning("shrink cut off", group=name)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def make(self, uid: str, limits: KernelLimits, pids_max: int) -> None:
        unit, path = self.parent(uid), self.pod(uid)
        own = limit_properties(limits)
        if not await self._start(uid, [*slice_properties(f"Pod {uid}", pids_max), *own]):
            await self._systemd.set_properties(unit, own)  # left by an agent that was killed
        self._cgroups.write_memory(path, limits.memory_limit_bytes)
        await self._write_quota(path, limits.cpu_quota_us)

    def exists(self, uid: str) -> bool:
        return self._cgroups.exists(self.pod(uid))

    async def find(self, uid: str) -> None:
        """systemd is told what the files say: an agent may have been killed between the two."""
        path = self.pod(uid)
        if not self._cgroups.exists(path):
            await self._start(uid, slice_properties(f"Pod {uid}", INFINITY))
            return
        limits = self._cgroups.read_limits(path)
        await self._systemd.set_properties(self.parent(uid), limit_properties(limits))
        await self._write_quota(path, limits.cpu_quota_us)

    async def write(self, uid: str, change: GroupChange) -> None:
        unit, path = self.parent(uid), self.pod(uid)
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                await self._systemd.set_properties(unit, cpu_properties(weight, quota_us))
                await self._write_quota(path, quota_us)
            case SetMemory(limit_bytes=limit_bytes):
                await self._write_memory(path, limit_bytes)
                await self._systemd.set_properties(unit, memory_properties(limit_bytes))
            case SetCpus(cpus=cpus):
                await self._systemd.set_properties(unit, cpu_list_properties(cpus))

    async def remove(self, uid: str) -> None:
        await self._remove(self.parent(uid))

    async def remove_strange(self, known: set[str]) -> None:
        ours = {self.parent(uid) for uid in known}
        for name in self._cgroups.children(self._root):
            if name.endswith(SLICE) and name not in ours:
                await self._remove(name)

    async def remove_root(self) -> None:
        """From the inside out; of other nodes, the slice above is shared."""
        for count in range(len(self._parts), 0, -1):
            name = slice_name(*self._parts[:count])
            if self._cgroups.children(slice_path(name)):
                return
            await self._systemd.stop(name)
            await self._leftovers.remove(slice_path(name))

    @property
    def _root(self) -> str:
        return slice_path(slice_name(*self._parts))

    async def _start(self, uid: str, properties: list[Property]) -> bool:
        """Return when its group is there; false: it was there before."""
        made = await self._systemd.start_transient(self.parent(uid), properties)
        path = self.pod(uid)
        for delay_seconds in REMOVE_DELAYS:
            if self._cgroups.exists(path):
                return made
            await self._clock.sleep(delay_seconds)
        raise RuntimeCallError(f"systemd started {self.parent(uid)}, but made no group {path}")

    async def _write_quota(self, path: str, quota_us: int | None) -> None:
        """The exact one, where systemd keeps another: it answers before it writes its own."""
        if quota_us is None or stored_quota_us(quota_us) == quota_us:
            return
        for delay_seconds in _WRITTEN_DELAYS:
            if self._cgroups.read_limits(path).cpu_quota_us == stored_quota_us(quota_us):
                break
            await self._clock.sleep(delay_seconds)
        self._cgroups.write_cpu(path, None, quota_us)

    async def _write_memory(self, path: str, limit_bytes: int | None) -> None:
        """We write first, by ourselves: systemd would not look whether the limit kills."""
        call = self._cgroups.write_memory
        if self._cgroups.must_reclaim(path, limit_bytes):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, call, path, limit_bytes)
        else:
            call(path, limit_bytes)

    async def _remove(self, unit: str) -> None:
        await self._systemd.stop(unit)
        await self._leftovers.remove(slice_path(unit))
