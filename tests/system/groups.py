"""Looks at a container's cgroup without asking Livesize: plain files, v1 or v2."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from system.up import Up

ROOT = Path("/sys/fs/cgroup")
IS_V2 = (ROOT / "cgroup.controllers").exists()


class GroupFiles:
    """The files of one group; ``path`` is relative to the hierarchy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _read(self, controller: str, name: str) -> str:
        base = ROOT if IS_V2 else ROOT / controller
        return (base / self.path / name).read_text().strip()

    def pod(self) -> GroupFiles:
        return GroupFiles(self.path.parent)

    def processes(self) -> list[int]:
        return sorted(int(line) for line in self._read("memory", "cgroup.procs").split())

    def main_pid(self) -> int:
        """The oldest process of the group: the container's own pid 1. Others come and go."""
        began = {pid: ticks for pid in self.processes() if (ticks := _start_time_if_there(pid))}
        return min(began, key=began.__getitem__)

    def cpu_quota_us(self) -> int | None:
        if IS_V2:
            quota = self._read("", "cpu.max").split()[0]
            return None if quota == "max" else int(quota)
        quota = self._read("cpu", "cpu.cfs_quota_us")
        return None if int(quota) < 0 else int(quota)

    def cpu_burst_us(self) -> int:
        """The kernel has it from 5.14 on."""
        return int(self._read("cpu", "cpu.max.burst" if IS_V2 else "cpu.cfs_burst_us"))

    def memory_limit_bytes(self) -> int | None:
        limit = self._read("memory", "memory.max" if IS_V2 else "memory.limit_in_bytes")
        return None if limit == "max" or int(limit) > 1 << 60 else int(limit)

    def set_memory_limit(self, limit_bytes: int) -> None:
        """Behind the agent's back."""
        base = ROOT if IS_V2 else ROOT / "memory"
        name = "memory.max" if IS_V2 else "memory.limit_in_bytes"
        (base / self.path / name).write_text(str(limit_bytes))

    def set_cpu_quota(self, quota_us: int) -> None:
        """Behind the agent's back."""
        if IS_V2:
            period = self._read("", "cpu.max").split()[1]
            (ROOT / self.path / "cpu.max").write_text(f"{quota_us} {period}")
        else:
            (ROOT / "cpu" / self.path / "cpu.cfs_quota_us").write_text(str(quota_us))

    def memory_usage_bytes(self) -> int:
        return int(self._read("memory", "memory.current" if IS_V2 else "memory.usage_in_bytes"))

    def file_cache_bytes(self) -> int:
        lines = dict(line.split() for line in self._read("memory", "memory.stat").splitlines())
        return int(lines["active_file"]) + int(lines["inactive_file"])

    def cpus(self) -> str:
        """As the kernel writes them; empty: nobody has told the group."""
        return self._read("cpuset", "cpuset.cpus")

    def throttled_periods(self) -> int:
        lines = dict(line.split() for line in self._read("cpu", "cpu.stat").splitlines())
        return int(lines["nr_throttled"])

    def cpu_usage_seconds(self) -> float:
        if IS_V2:
            lines = dict(line.split() for line in self._read("", "cpu.stat").splitlines())
            return int(lines["usage_usec"]) / 1e6
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9


def start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat: clock ticks since boot, never the same for two processes."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[19])


def _start_time_if_there(pid: int) -> int | None:
    """None: it ended while we looked."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return start_time(pid)
    return None


def group_of(up: Up, pod: str, container: str, namespace: str = "default") -> GroupFiles:
    """Groups are called after the container, or by containerd after its id."""
    found_pod = up.pod(pod, namespace)
    uid = found_pod["metadata"]["uid"]
    status = found_pod["status"]
    statuses = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    status = next((one for one in statuses if one["name"] == container), {})  # VMs have none
    runtime, _, identity = status.get("containerID", "").partition("://")
    name = identity if runtime == "containerd" else f"c-{container}"
    base = ROOT if IS_V2 else ROOT / "memory"
    found = [path for path in base.glob(f"livesize/**/*{uid}*/{name}") if path.is_dir()]
    assert len(found) == 1, f"groups of {pod}/{container}: {found}"
    return GroupFiles(found[0].relative_to(base))


def cpu_seconds_used(group: GroupFiles, over_seconds: float) -> float:
    """CPU seconds per second of wall time."""
    began, before = time.monotonic(), group.cpu_usage_seconds()
    time.sleep(over_seconds)
    return (group.cpu_usage_seconds() - before) / (time.monotonic() - began)
