"""Control groups of version 1: each controller is a hierarchy of its own.

The kernel itself keeps a workload alive here: a memory limit below what is in use is refused
with EBUSY after it reclaimed what it could; so nothing is set in between (ADR 0040). A limit that
just fits would kill with the next page, so a margin is left above what cannot be reclaimed. A quota
above the parent's, and a parent's below a
child's, are refused with EINVAL, so callers widen from the outside in and narrow from the inside
out. memory.stat, and so the unreclaimable part of a reading, may be two seconds old here: it may
hold a shrink up until it is tried again, and never decides that one fits.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping

from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion, KernelLimits
from livesize.runtime.cgroups.cpuset import CpusetV1, affinity_of
from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.cgroups.files import (
    call_failed,
    child_directories,
    kill_each,
    make_directory,
    member_pids,
    read_number,
    read_table,
    remove_directory,
    write_text,
)
from livesize.runtime.cgroups.interface import (
    HELD_LISTS,
    PAGE_BYTES,
    Margin,
    small_margin,
    whole_pages,
)
from livesize.runtime.interface import GoneError, MemoryInUseError, Reading

REQUIRED_CONTROLLERS = ("cpu", "cpuacct", "memory", "pids")
_UNLIMITED_FROM = 1 << 62  # the kernel writes "no limit" as the largest whole number of pages


class CgroupsV1:
    """``mounts`` says where each controller is mounted; two may share one mount."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._cpu = mounts["cpu"]
        self._cpuacct = mounts["cpuacct"]
        self._memory = mounts["memory"]
        self._pids = mounts["pids"]
        self._hierarchies = tuple(
            dict.fromkeys((self._cpu, self._cpuacct, self._memory, self._pids))
        )
        self._cpuset = CpusetV1(mounts.get("cpuset"))
        self._files = GroupFileCache()

    @property
    def version(self) -> CgroupVersion:
        return CgroupVersion.V1

    def make(self, path: str) -> None:
        for hierarchy in self._hierarchies:
            make_directory(f"{hierarchy}/{path}")
        period = f"{self._cpu}/{path}/cpu.cfs_period_us"
        if read_number(period) != CPU_PERIOD_US:
            write_text(period, str(CPU_PERIOD_US))

    def remove(self, path: str) -> bool:
        folders = [f"{hierarchy}/{path}" for hierarchy in self._all()]
        for folder in folders:
            self._files.forget(folder)
        removed = [remove_directory(folder) for folder in folders]
        return all(removed)

    def exists(self, path: str) -> bool:
        return all(os.path.isdir(f"{hierarchy}/{path}") for hierarchy in self._hierarchies)  # noqa: PTH112

    def children(self, path: str) -> tuple[str, ...]:
        names = {
            name for hierarchy in self._all() for name in child_directories(f"{hierarchy}/{path}")
        }
        return tuple(sorted(names))

    def folders(self, path: str) -> tuple[str, ...]:
        return tuple(f"{hierarchy}/{path}" for hierarchy in self._hierarchies)

    def join_files(self, path: str) -> tuple[str, ...]:
        joined = self._all() if self._cpuset.has(path) else self._hierarchies
        return tuple(f"{hierarchy}/{path}/cgroup.procs" for hierarchy in joined)

    def read(self, path: str) -> Reading:
        memory = f"{self._memory}/{path}"
        stat = read_table(f"{memory}/memory.stat")
        usage_bytes = read_number(f"{memory}/memory.usage_in_bytes")
        unreclaimable = _held(stat) + self._kernel_bytes(memory)
        return Reading(
            limits=self.read_limits(path),
            cpu_usage_ns=read_number(f"{self._cpuacct}/{path}/cpuacct.usage"),
            memory_usage_bytes=usage_bytes,
            memory_unreclaimable_bytes=min(unreclaimable, usage_bytes),
            oom_kills=self.oom_kills(path),
            memory_working_set_bytes=max(0, usage_bytes - stat.get("total_inactive_file", 0)),
        )

    def read_limits(self, path: str) -> KernelLimits:
        return KernelLimits(*self.cpu_limit(path), self.memory_limit(path))

    def cpu_limit(self, path: str) -> tuple[int, int | None]:
        return self._files.read_number(f"{self._cpu}/{path}/cpu.shares"), self._quota(path)

    def memory_limit(self, path: str) -> int | None:
        limit = self._files.read_number(f"{self._memory}/{path}/memory.limit_in_bytes")
        return None if limit >= _UNLIMITED_FROM else limit

    def must_reclaim(self, path: str, limit_bytes: int | None) -> bool:
        if limit_bytes is None:
            return False
        return limit_bytes < self._usage(path) + small_margin(limit_bytes)

    def oom_kills(self, path: str) -> int:
        """Version 1 counts a kill only in the victim's own group, so those below are added."""
        group = f"{self._memory}/{path}"
        kills = read_table(f"{group}/memory.oom_control").get("oom_kill", 0)
        for name in child_directories(group):
            try:
                kills += read_table(f"{group}/{name}/memory.oom_control").get("oom_kill", 0)
            except GoneError:
                continue
        return kills

    def write_cpu(self, path: str, weight: int | None, quota_us: int | None) -> None:
        group = f"{self._cpu}/{path}"
        quota = str(-1 if quota_us is None else quota_us)
        self._files.write_text(f"{group}/cpu.cfs_quota_us", quota)
        if weight is not None:
            self._files.write_text(f"{group}/cpu.shares", str(weight))

    def write_burst(self, path: str, burst_us: int) -> None:
        with contextlib.suppress(GoneError):
            write_text(f"{self._cpu}/{path}/cpu.cfs_burst_us", str(burst_us))

    def write_memory(
        self, path: str, limit_bytes: int | None, margin: Margin = small_margin
    ) -> None:
        if limit_bytes is not None:
            self._look(path, limit_bytes, margin(limit_bytes))
        group = f"{self._memory}/{path}"
        value = str(-1 if limit_bytes is None else limit_bytes)
        swap = f"{group}/memory.memsw.limit_in_bytes"
        swap_limit = self._swap_limit(swap)
        swap_first = swap_limit is not None and (limit_bytes is None or swap_limit < limit_bytes)
        if swap_first:
            self._files.write_text(swap, value)
        try:
            self._files.write_raw(f"{group}/memory.limit_in_bytes", value)
        except OSError as failure:
            if failure.errno == errno.EBUSY and limit_bytes is not None:
                raise self._in_use(path, limit_bytes) from failure
            where = f"{group}/memory.limit_in_bytes"
            raise call_failed(f"write {value} to", where, failure) from failure
        if swap_limit is not None and not swap_first:
            self._files.write_text(swap, value)

    def machine_cpus(self) -> tuple[int, ...]:
        return affinity_of(self._cpuset.machine_cpus())

    def read_cpus(self, path: str) -> tuple[int, ...] | None:
        if not self.exists(path):
            raise GoneError(f"cannot read the CPUs of group {path}: it does not exist")
        return self._cpuset.read(path)

    def write_cpus(self, path: str, cpus: tuple[int, ...]) -> None:
        if not self.exists(path):
            raise GoneError(f"cannot set the CPUs of group {path}: it does not exist")
        self._cpuset.write(path, cpus, f"{self._memory}/{path}/cgroup.procs")

    def show_cpus(self, path: str) -> None:
        self._cpuset.show(path)

    def restore_limits(self, path: str) -> bool:  # noqa: ARG002 - the kernel itself refuses what would kill
        return False

    def write_pids(self, path: str, maximum: int) -> None:
        write_text(f"{self._pids}/{path}/pids.max", str(maximum))

    def processes(self, path: str) -> tuple[int, ...]:
        pids = {
            pid
            for hierarchy in self._hierarchies
            for pid in member_pids(f"{hierarchy}/{path}/cgroup.procs")
        }
        return tuple(sorted(pids))

    def kill(self, path: str) -> int:
        return kill_each(self.processes(path))

    def _all(self) -> tuple[str, ...]:
        """With the one for CPUs, in which not every group stands."""
        cpuset = self._cpuset.mount
        if cpuset is None or cpuset in self._hierarchies:
            return self._hierarchies
        return (*self._hierarchies, cpuset)

    def _quota(self, path: str) -> int | None:
        group = f"{self._cpu}/{path}"
        quota_us = self._files.read_number(f"{group}/cpu.cfs_quota_us")
        if quota_us < 0:
            return None
        period_us = self._files.read_number(f"{group}/cpu.cfs_period_us")
        return quota_us if period_us == CPU_PERIOD_US else quota_us * CPU_PERIOD_US // period_us

    def _swap_limit(self, swap: str) -> int | None:
        """Of memory and swap together; None where it is not counted or not set."""
        try:
            limit = self._files.read_number(swap)
        except GoneError:
            return None
        return None if limit >= _UNLIMITED_FROM else limit

    def _kernel_bytes(self, memory: str) -> int:
        try:
            return read_number(f"{memory}/memory.kmem.usage_in_bytes")
        except GoneError:
            return 0

    def _look(self, path: str, limit_bytes: int, margin_bytes: int) -> None:
        """What cannot be reclaimed, and a margin, fit below a lower limit. Of what the kernel has
        for itself nobody says here how much it could give back: the limit itself will tell."""
        if self._usage(path) + margin_bytes <= limit_bytes:
            return
        stays_bytes = self.memory_limit(path)
        if stays_bytes is not None and stays_bytes <= limit_bytes:
            return
        held_bytes = _held(read_table(f"{self._memory}/{path}/memory.stat"))
        if held_bytes + margin_bytes > limit_bytes:
            raise MemoryInUseError(path, limit_bytes, held_bytes, stays_bytes, margin_bytes)

    def _usage(self, path: str) -> int:
        return self._files.read_number(f"{self._memory}/{path}/memory.usage_in_bytes")

    def _in_use(self, path: str, limit_bytes: int) -> MemoryInUseError:
        floor_bytes = whole_pages(limit_bytes) + PAGE_BYTES  # it may have shrunk since the refusal
        needed_bytes = max(self._usage(path), floor_bytes)
        return MemoryInUseError(path, limit_bytes, needed_bytes, self.memory_limit(path))


def _held(stat: dict[str, int]) -> int:
    return sum(stat.get(f"total_{name}", 0) for name in HELD_LISTS)
