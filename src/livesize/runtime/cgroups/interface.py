"""What a control-group driver can do, and where the groups of a pod stand.

A group is named by its path below the hierarchy: ``<root>/pod-<uid>`` for a pod and
``<root>/pod-<uid>/c-<container>`` for a container. The prefixes keep a container called "tasks"
away from the kernel's own files. Drivers are synchronous: every call takes microseconds, except
lowering a memory limit, which may have to reclaim pages and belongs on a thread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Protocol, TypeAlias

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.runtime.interface import ContainerGroup, Group, PodGroup, Reading, RuntimeCallError

PAGE_BYTES = 4096
SHRINK_MARGIN_BYTES = 32 * 1024 * 1024
POD_PREFIX = "pod-"
CONTAINER_PREFIX = "c-"
HELD_LISTS = ("inactive_anon", "active_anon", "unevictable")
"""Of memory.stat: what reclaim cannot give back without swap."""

Margin: TypeAlias = Callable[[int], int]
"""How much room a lowered limit must leave above what cannot be reclaimed."""

_KERNEL_PARTS = ("kernel_stack", "pagetables", "percpu", "vmalloc", "slab")
_CACHED_PATHS = 1024
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class CgroupDriver(Protocol):
    """Paths are relative to the hierarchy. Failures are RuntimeCallErrors that say what, where
    and why; a missing group is a GoneError."""

    @property
    def version(self) -> CgroupVersion: ...

    def make(self, path: str) -> None:
        """Make the group and what stands above it; harmless where it exists."""
        ...

    def remove(self, path: str) -> bool:
        """Remove an empty group. False: the kernel is not done with it yet, ask again."""
        ...

    def write_burst(self, path: str, burst_us: int) -> None:
        """So much CPU time beyond its quota a group may save up while it needs less, and use later.
        At most the quota; kernels before 5.14 cannot do it, and there nothing is done."""
        ...

    def exists(self, path: str) -> bool: ...

    def children(self, path: str) -> tuple[str, ...]:
        """The names of the groups directly below, sorted."""
        ...

    def folders(self, path: str) -> tuple[str, ...]:
        """The directories that stand for the group, where its limits are."""
        ...

    def join_files(self, path: str) -> tuple[str, ...]:
        """The files a process writes "0" into to become a member."""
        ...

    def read(self, path: str) -> Reading: ...

    def read_limits(self, path: str) -> KernelLimits: ...

    def cpu_limit(self, path: str) -> tuple[int, int | None]:
        """Weight and quota."""
        ...

    def memory_limit(self, path: str) -> int | None: ...

    def must_reclaim(self, path: str, limit_bytes: int | None) -> bool:
        """Setting this limit makes the kernel look for pages to free, which may take long."""
        ...

    def oom_kills(self, path: str) -> int: ...

    def write_cpu(self, path: str, weight: int | None, quota_us: int | None) -> None:
        """quota None: no limit. weight None: leave it."""
        ...

    def write_memory(self, path: str, limit_bytes: int | None, margin: Margin = ...) -> None:
        """Refuses with MemoryInUseError, and changes nothing, where the workload holds more, or
        so much that the ``margin`` for this limit is not left; by default the driver's own."""
        ...

    def machine_cpus(self) -> tuple[int, ...]:
        """Those that groups can be bound to; raises where there is no cpuset controller."""
        ...

    def read_cpus(self, path: str) -> tuple[int, ...] | None:
        """None: the group has no CPUs of its own."""
        ...

    def write_cpus(self, path: str, cpus: tuple[int, ...]) -> None:
        """Bind the group, and all that runs in it, to these CPUs."""
        ...

    def show_cpus(self, path: str) -> None:
        """Before anybody joins: have what a container looks at to find out about its CPUs. Nobody
        is bound by it."""
        ...

    def restore_limits(self, path: str) -> bool:
        """Undo what a lowering of the limit left behind that was cut off; true if it did."""
        ...

    def write_pids(self, path: str, maximum: int) -> None: ...

    def processes(self, path: str) -> tuple[int, ...]:
        """The members of this group, not of those below; none where it does not exist."""
        ...

    def kill(self, path: str) -> int:
        """SIGKILL to every member; says how many there were. Ask again until there are none."""
        ...


def read_setting(cgroups: CgroupDriver, path: str, change: GroupChange) -> GroupChange:
    """What the kernel now holds of that which ``change`` sets."""
    match change:
        case SetCpu():
            return SetCpu(*cgroups.cpu_limit(path))
        case SetMemory():
            return SetMemory(cgroups.memory_limit(path))
        case SetCpus():
            return SetCpus(cgroups.read_cpus(path) or ())


@functools.lru_cache(maxsize=_CACHED_PATHS)
def group_path(root: str, group: Group) -> str:
    """Where a group stands below the hierarchy."""
    match group:
        case PodGroup(pod_uid=uid):
            return f"{root}/{POD_PREFIX}{safe_name(uid)}"
        case ContainerGroup(pod_uid=uid, container=name):
            pod = f"{root}/{POD_PREFIX}{safe_name(uid)}"
            return f"{pod}/{CONTAINER_PREFIX}{safe_name(name)}"


def safe_name(name: str) -> str:
    """The name, if it can be one part of a path."""
    if not _SAFE_NAME.fullmatch(name):
        raise RuntimeCallError(f"{name!r} cannot name a group or a folder on this machine")
    return name


def shrink_margin(target_bytes: int) -> int:
    """How much room above unreclaimable memory a lowered limit must leave: 32 MiB or 5 %, what is
    more; of a small limit an eighth, or it could never be reached."""
    return min(max(SHRINK_MARGIN_BYTES, target_bytes // 20), target_bytes // 8)


def small_margin(target_bytes: int) -> int:
    """No share of a large limit: where the kernel itself looks before it takes the limit, or where
    the limit has room of its own above what the workload may hold, as a virtual machine's has."""
    return min(SHRINK_MARGIN_BYTES, target_bytes // 8)


def whole_pages(size_bytes: int) -> int:
    """What the kernel keeps of a memory limit."""
    return size_bytes // PAGE_BYTES * PAGE_BYTES


def unreclaimable_bytes(stat: dict[str, int]) -> int:
    """What reclaim cannot give back, from memory.stat, assuming no swap.

    Counted by the lists the kernel reclaims from, not by kind: shared and locked memory would
    otherwise count twice, and a workload that locks its memory could never be made smaller.
    """
    held = sum(stat.get(name, 0) for name in HELD_LISTS)
    kernel = stat.get("kernel")  # since Linux 5.18
    if kernel is None:
        kernel = sum(stat.get(name, 0) for name in _KERNEL_PARTS)
    return held + max(0, kernel - stat.get("slab_reclaimable", 0)) + stat.get("sock", 0)
