"""Control groups of version 2: one tree, controllers handed down level by level.

Here the kernel accepts any memory limit and kills whoever holds more: narrow.py lowers it.
"""

from __future__ import annotations

import contextlib
import os

from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion, KernelLimits
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.cpuset import CpusetV2, affinity_of
from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.cgroups.files import (
    call_failed,
    child_directories,
    kill_each,
    make_directory,
    member_pids,
    read_number,
    read_table,
    read_text,
    remove_directory,
    write_raw,
    write_text,
)
from livesize.runtime.cgroups.interface import Margin, shrink_margin, unreclaimable_bytes
from livesize.runtime.cgroups.narrow import narrow, restore_limits
from livesize.runtime.interface import GoneError, Reading, RuntimeCallError

REQUIRED_CONTROLLERS = ("cpu", "memory", "pids")


class CgroupsV2:
    """``mount`` is where the tree is mounted, usually /sys/fs/cgroup."""

    def __init__(self, mount: str, clock: Clock, files: GroupFileCache | None = None) -> None:
        self._mount = mount
        self._cpuset = CpusetV2(mount)
        self._clock = clock
        self._files = files or GroupFileCache()

    @property
    def version(self) -> CgroupVersion:
        return CgroupVersion.V2

    def make(self, path: str) -> None:
        """A group has a controller only if every group above hands it down."""
        above = self._mount
        for part in path.split("/"):
            self._delegate(above)
            above = f"{above}/{part}"
            make_directory(above)

    def remove(self, path: str) -> bool:
        self._files.forget(f"{self._mount}/{path}")
        return remove_directory(f"{self._mount}/{path}")

    def exists(self, path: str) -> bool:
        return os.path.isdir(f"{self._mount}/{path}")  # noqa: PTH112

    def children(self, path: str) -> tuple[str, ...]:
        return child_directories(f"{self._mount}/{path}")

    def folders(self, path: str) -> tuple[str, ...]:
        return (f"{self._mount}/{path}",)

    def join_files(self, path: str) -> tuple[str, ...]:
        return (f"{self._mount}/{path}/cgroup.procs",)

    def read(self, path: str) -> Reading:
        group = f"{self._mount}/{path}"
        stat = read_table(f"{group}/memory.stat")
        usage_bytes = read_number(f"{group}/memory.current")
        return Reading(
            limits=self.read_limits(path),
            cpu_usage_ns=read_table(f"{group}/cpu.stat").get("usage_usec", 0) * 1000,
            memory_usage_bytes=usage_bytes,
            memory_unreclaimable_bytes=unreclaimable_bytes(stat),
            oom_kills=self.oom_kills(path),
            memory_working_set_bytes=max(0, usage_bytes - stat.get("inactive_file", 0)),
        )

    def read_limits(self, path: str) -> KernelLimits:
        return KernelLimits(*self.cpu_limit(path), self.memory_limit(path))

    def cpu_limit(self, path: str) -> tuple[int, int | None]:
        group = f"{self._mount}/{path}"
        quota_us = parse_cpu_max(self._files.read_text(f"{group}/cpu.max"))
        return self._files.read_number(f"{group}/cpu.weight"), quota_us

    def memory_limit(self, path: str) -> int | None:
        text = self._files.read_text(f"{self._mount}/{path}/memory.max")
        return None if text == "max" else int(text)

    def must_reclaim(self, path: str, limit_bytes: int | None) -> bool:
        if limit_bytes is None:
            return False
        usage_bytes = self._files.read_number(f"{self._mount}/{path}/memory.current")
        return limit_bytes < usage_bytes + shrink_margin(limit_bytes)

    def oom_kills(self, path: str) -> int:
        """Kills, not the ``oom`` line, which counts thousands of tries for one of them."""
        return read_table(f"{self._mount}/{path}/memory.events").get("oom_kill", 0)

    def write_cpu(self, path: str, weight: int | None, quota_us: int | None) -> None:
        group = f"{self._mount}/{path}"
        quota = "max" if quota_us is None else str(quota_us)
        self._files.write_text(f"{group}/cpu.max", f"{quota} {CPU_PERIOD_US}")
        if weight is not None:
            self._files.write_text(f"{group}/cpu.weight", str(weight))

    def write_burst(self, path: str, burst_us: int) -> None:
        with contextlib.suppress(GoneError):
            write_text(f"{self._mount}/{path}/cpu.max.burst", str(burst_us))

    def write_memory(
        self, path: str, limit_bytes: int | None, margin: Margin = shrink_margin
    ) -> None:
        group = f"{self._mount}/{path}"
        if limit_bytes is None:
            self._files.write_text(f"{group}/memory.max", "max")
            return
        before = self.memory_limit(path)
        if before is None or limit_bytes < before:
            narrow(group, limit_bytes, margin(limit_bytes), self._clock)
        else:
            self._files.write_text(f"{group}/memory.max", str(limit_bytes))

    def machine_cpus(self) -> tuple[int, ...]:
        return affinity_of(self._cpuset.machine_cpus())

    def read_cpus(self, path: str) -> tuple[int, ...] | None:
        return self._cpuset.read(path)

    def write_cpus(self, path: str, cpus: tuple[int, ...]) -> None:
        self._cpuset.write(path, cpus)

    def show_cpus(self, path: str) -> None:
        """There is one tree: a container sees what it has."""

    def restore_limits(self, path: str) -> bool:
        return restore_limits(f"{self._mount}/{path}")

    def write_pids(self, path: str, maximum: int) -> None:
        write_text(f"{self._mount}/{path}/pids.max", str(maximum))

    def processes(self, path: str) -> tuple[int, ...]:
        return member_pids(f"{self._mount}/{path}/cgroup.procs")

    def kill(self, path: str) -> int:
        """All at once where the kernel can (5.14); one by one elsewhere."""
        pids = self.processes(path)
        try:
            write_raw(f"{self._mount}/{path}/cgroup.kill", "1")
        except FileNotFoundError:
            return kill_each(pids)
        except OSError as failure:
            raise call_failed("kill the members of", path, failure) from failure
        return len(pids)

    def _delegate(self, group: str) -> None:
        control = f"{group}/cgroup.subtree_control"
        missing = [name for name in REQUIRED_CONTROLLERS if name not in read_text(control).split()]
        if not missing:
            return
        available = read_text(f"{group}/cgroup.controllers").split()
        if absent := [name for name in missing if name not in available]:
            raise RuntimeCallError(
                f"{group}: the controllers {', '.join(absent)} are not available here;"
                " delegate them to this group, or choose another root group"
            )
        write_text(control, " ".join(f"+{name}" for name in missing))


def parse_cpu_max(text: str) -> int | None:
    """``quota period`` as a quota per CPU_PERIOD_US; None for no limit."""
    quota, _, period = text.partition(" ")
    if quota == "max":
        return None
    period_us = int(period or CPU_PERIOD_US)
    return int(quota) if period_us == CPU_PERIOD_US else int(quota) * CPU_PERIOD_US // period_us
