"""Which CPUs a group may run on, in both versions of control groups.

Only groups that were told their CPUs, or are shown to their container, are in the cpuset
controller: where nobody asks for it, nothing is made, joined or handed down. What nobody has
narrowed may run on all that stands above.
"""

from __future__ import annotations

import contextlib
import errno
import os

from livesize.api.cpu_list import format_cpu_list, parse_cpu_list
from livesize.runtime.cgroups.files import (
    call_failed,
    make_directory,
    member_pids,
    read_text,
    write_raw,
    write_text,
)
from livesize.runtime.interface import GoneError, RuntimeCallError

_UNSET = "cgroup.clone_children"
"""1: this group has no CPUs of its own; a group without groups below has no other use for it."""
_MOVES = 100  # a workload that forks faster than it can be moved is told of


class CpusetV1:
    """A hierarchy of its own: ``mount``. A group needs CPUs and memory nodes before anybody may
    join it, and whoever runs already is moved there."""

    def __init__(self, mount: str | None) -> None:
        self.mount = mount

    def machine_cpus(self) -> tuple[int, ...]:
        return parse_cpu_list(read_text(f"{self._require()}/cpuset.effective_cpus"))

    def has(self, path: str) -> bool:
        return self.mount is not None and os.path.isdir(f"{self.mount}/{path}")  # noqa: PTH112

    def read(self, path: str) -> tuple[int, ...] | None:
        """None: it has no CPUs of its own."""
        if not self.has(path) or read_text(f"{self.mount}/{path}/{_UNSET}") == "1":
            return None
        return parse_cpu_list(read_text(f"{self.mount}/{path}/cpuset.cpus")) or None

    def show(self, path: str) -> None:
        """Have the group, with all CPUs, so that a container can look at it: a JVM believes its
        memory limit only where it finds every controller that it knows."""
        if self.mount is not None and not self.has(path):
            write_text(f"{self._make(path)}/{_UNSET}", "1")

    def write(self, path: str, cpus: tuple[int, ...], members_file: str) -> None:
        """``members_file``: where those stand that belong to the group."""
        group = self._make(path)
        write_text(f"{group}/cpuset.cpus", format_cpu_list(cpus))
        write_text(f"{group}/{_UNSET}", "0")
        self._move(f"{group}/cgroup.procs", members_file)

    def _make(self, path: str) -> str:
        """The group's folder; it, and those above it, have what stands above them."""
        group, above = self._require(), ""
        for part in path.split("/"):
            above, group = group, f"{group}/{part}"
            make_directory(group)
            for name in ("cpuset.mems", "cpuset.cpus"):
                if not read_text(f"{group}/{name}"):
                    write_text(f"{group}/{name}", read_text(f"{above}/{name}"))
        return group

    def _move(self, procs: str, members_file: str) -> None:
        """A child that is forked meanwhile is found by looking again."""
        for _ in range(_MOVES):
            outside = set(member_pids(members_file)).difference(member_pids(procs), {0})
            if not outside:
                return
            for pid in sorted(outside):
                try:
                    write_raw(procs, str(pid))
                except OSError as failure:
                    if failure.errno != errno.ESRCH:  # it has ended
                        raise call_failed(f"move process {pid} to", procs, failure) from failure
        raise RuntimeCallError(f"cannot move all processes to {procs}: there are always new ones")

    def _require(self) -> str:
        if self.mount is None:
            raise RuntimeCallError(
                "this machine cannot bind containers to CPUs: no cpuset controller is mounted"
            )
        return self.mount


class CpusetV2:
    """A controller of the one tree, which every group above has to hand down."""

    def __init__(self, mount: str) -> None:
        self._mount = mount

    def machine_cpus(self) -> tuple[int, ...]:
        try:
            return parse_cpu_list(read_text(f"{self._mount}/cpuset.cpus.effective"))
        except GoneError as failure:
            raise RuntimeCallError(
                f"this machine cannot bind containers to CPUs: {self._mount} has no cpuset"
                " controller"
            ) from failure

    def read(self, path: str) -> tuple[int, ...] | None:
        """None: it has no CPUs of its own."""
        try:
            return parse_cpu_list(read_text(f"{self._mount}/{path}/cpuset.cpus")) or None
        except GoneError:
            if not os.path.isdir(f"{self._mount}/{path}"):  # noqa: PTH112
                raise
        return None

    def write(self, path: str, cpus: tuple[int, ...]) -> None:
        above = self._mount
        for part in path.split("/"):
            self._delegate(above)
            above = f"{above}/{part}"
        write_text(f"{above}/cpuset.cpus", format_cpu_list(cpus))

    def _delegate(self, group: str) -> None:
        control = f"{group}/cgroup.subtree_control"
        if "cpuset" in read_text(control).split():
            return
        if "cpuset" not in read_text(f"{group}/cgroup.controllers").split():
            raise RuntimeCallError(
                f"{group}: the cpuset controller is not available here, so that containers cannot"
                " be bound to CPUs; delegate it to this group, or choose --cpu-policy none"
            )
        write_text(control, "+cpuset")


def affinity_of(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Those of them that this process may use, as a container host may have narrowed it."""
    with contextlib.suppress(OSError):
        own = os.sched_getaffinity(0)
        return tuple(cpu for cpu in cpus if cpu in own)
    return cpus
