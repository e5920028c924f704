"""The control groups of pods on one machine: one for the pod, one below it for each container.

What every driver does with them: make, limit, read, restore, remove. A lowered memory limit may
have to wait for the kernel, so each gets a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.group_watch import GroupWatch
from livesize.runtime.cgroups.interface import (
    POD_PREFIX,
    CgroupDriver,
    Margin,
    group_path,
    read_setting,
)
from livesize.runtime.cgroups.oom_score import set_oom_scores
from livesize.runtime.interface import GoneError, Group, PodGroup, Reading, RuntimeCallError

REMOVE_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)
_SHRINKS_AT_ONCE = 64

log = get_logger("runtime.cgroups")


def _ignore(_uid: str) -> None:
    pass


class PodGroups:
    """``on_removed`` is called with a pod's uid when its group, or one in it, is removed, by us or
    by anybody else. ``margin``: what a lowered memory limit must leave; None: as the driver has
    it."""

    def __init__(
        self,
        cgroups: CgroupDriver,
        root: str,
        clock: Clock,
        on_removed: Callable[[str], None] = _ignore,
        *,
        margin: Margin | None = None,
    ) -> None:
        self.cgroups = cgroups
        self._write_memory = (
            cgroups.write_memory
            if margin is None
            else functools.partial(cgroups.write_memory, margin=margin)
        )
        self.root = root.strip("/")
        self._clock = clock
        self._on_removed = on_removed
        self._watch: GroupWatch | None = None
        self._threads = ThreadPoolExecutor(_SHRINKS_AT_ONCE, thread_name_prefix="livesize-shrink")

    def open(self) -> None:
        """Make the root, and put right what a killed agent left in the middle of a shrink."""
        self.cgroups.make(self.root)
        if self._on_removed is not _ignore:
            self._watch = GroupWatch(self._removed)
            self._watch_below(self.root)
        for pod in self.cgroups.children(self.root):
            for name in (pod, *(f"{pod}/{child}" for child in self._below(pod))):
                if self.cgroups.restore_limits(f"{self.root}/{name}"):
                    log.warning("shrink cut off", group=name)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def path(self, group: Group) -> str:
        return group_path(self.root, group)

    def make(self, group: Group, limits: KernelLimits | None) -> None:
        """None: no limits are set."""
        path = group_path(self.root, group)
        self.cgroups.make(path)
        if isinstance(group, PodGroup):
            self._watch_below(path)
        if limits is not None:
            self.set_limits(path, limits)

    def exists(self, group: Group) -> bool:
        return self.cgroups.exists(group_path(self.root, group))

    def set_limits(self, path: str, limits: KernelLimits) -> None:
        """Of a group in which nothing runs yet."""
        self.cgroups.write_memory(path, limits.memory_limit_bytes)
        self.cgroups.write_cpu(path, limits.cpu_weight, limits.cpu_quota_us)

    def limit_processes(self, group: Group, maximum: int) -> None:
        self.cgroups.write_pids(group_path(self.root, group), maximum)

    def allow_burst(self, group: Group, burst_us: int) -> None:
        """CPU time beyond its quota, of what it left unused just before."""
        self.cgroups.write_burst(group_path(self.root, group), burst_us)

    def bind(self, group: Group, cpus: tuple[int, ...]) -> None:
        """None: to no CPUs in particular."""
        if cpus:
            self.cgroups.write_cpus(group_path(self.root, group), cpus)

    def join(self, group: Group, pid: int) -> None:
        """Every thread of the process; those it starts later inherit the group."""
        for name in self.cgroups.join_files(group_path(self.root, group)):
            try:
                Path(name).write_text(str(pid))
            except OSError as failure:
                raise RuntimeCallError(
                    f"cannot put process {pid} into {name}: {failure.strerror}"
                ) from failure

    def oom_kills(self, group: Group) -> int:
        try:
            return self.cgroups.oom_kills(group_path(self.root, group))
        except RuntimeCallError:
            return 0

    def read(self, group: Group) -> Reading:
        return self.cgroups.read(group_path(self.root, group))

    def read_limits(self, group: Group) -> KernelLimits:
        return self.cgroups.read_limits(group_path(self.root, group))

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        return read_setting(self.cgroups, group_path(self.root, group), change)

    def read_cpus(self, group: Group) -> tuple[int, ...] | None:
        return self.cgroups.read_cpus(group_path(self.root, group))

    async def write(self, group: Group, change: GroupChange) -> None:
        path = group_path(self.root, group)
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                self.cgroups.write_cpu(path, weight, quota_us)
            case SetMemory(limit_bytes=limit_bytes):
                if self.cgroups.must_reclaim(path, limit_bytes):
                    loop = asyncio.get_running_loop()
                    call = self._write_memory
                    await loop.run_in_executor(self._threads, call, path, limit_bytes)
                else:
                    self._write_memory(path, limit_bytes)
            case SetCpus(cpus=cpus):
                self.cgroups.write_cpus(path, cpus)

    def set_oom_score(self, path: str, score: int) -> None:
        set_oom_scores(lambda: self.cgroups.processes(path), score)

    def kill(self, group: Group) -> None:
        with contextlib.suppress(GoneError):
            self.cgroups.kill(group_path(self.root, group))

    async def remove(self, group: Group) -> None:
        """With all that is left in it, and all below."""
        path = group_path(self.root, group)
        if isinstance(group, PodGroup):
            await self.remove_tree(path)
        else:
            await self.remove_path(path)

    def pods(self) -> list[str]:
        """The names of the groups directly below the root."""
        return list(self.cgroups.children(self.root))

    async def remove_tree(self, path: str) -> None:
        for name in self.cgroups.children(path):
            await self.remove_path(f"{path}/{name}")
        await self.remove_path(path)

    async def remove_path(self, path: str) -> None:
        """The kernel needs a moment after the last process has ended."""
        for delay_seconds in REMOVE_DELAYS:
            if self.cgroups.remove(path):
                return
            self.cgroups.kill(path)
            await self._clock.sleep(delay_seconds)
        if not self.cgroups.remove(path):
            left = self.cgroups.processes(path)
            raise RuntimeCallError(f"cannot remove group {path}: processes {left} are still in it")

    async def remove_root(self) -> None:
        """The root, and what stands above it as far as nobody else is in there."""
        for delay_seconds in REMOVE_DELAYS:
            if self.cgroups.remove(self.root):
                break
            if self.cgroups.children(self.root):
                return  # somebody else made groups in there
            await self._clock.sleep(delay_seconds)
        above = self.root.rpartition("/")[0]
        while above and self.cgroups.remove(above):
            above = above.rpartition("/")[0]

    def _watch_below(self, path: str) -> None:
        if self._watch is not None:
            for folder in self.cgroups.folders(path):
                self._watch.add(folder)

    def _removed(self, folder: str, name: str) -> None:
        """A container's name has no such prefix, whichever driver made its group."""
        pod = name if name.startswith(POD_PREFIX) else folder.rpartition("/")[2]
        self._on_removed(pod.removeprefix(POD_PREFIX))

    def _below(self, pod: str) -> tuple[str, ...]:
        return self.cgroups.children(f"{self.root}/{pod}")
