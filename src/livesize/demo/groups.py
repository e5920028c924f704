"""What the kernel says about a workload: its control group, and the process it began with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from livesize.demo.promises import promise
from livesize.runtime.cgroups.interface import CgroupDriver

PERIOD_MS = 100


class GroupProof(msgspec.Struct, frozen=True):
    pid: int  # of the oldest process in the group
    start_ticks: int  # when it was started; a number that is used again would have another
    quota_us: int | None
    limit_bytes: int | None


def read_group(cgroups: CgroupDriver, group: str) -> GroupProof:
    started = {pid: _start_ticks(pid) for pid in cgroups.processes(group)}
    promise(bool(started), f"nothing runs in the control group {group}")
    oldest = min(started, key=started.__getitem__)
    limits = cgroups.read_limits(group)
    return GroupProof(oldest, started[oldest], limits.cpu_quota_us, limits.memory_limit_bytes)


def check_group(word: str, proof: GroupProof, first: GroupProof, wanted: tuple[int, int]) -> None:
    """The process of the beginning, in a group of the size ``wanted``: milli-CPUs and bytes."""
    cpu_milli, memory_bytes = wanted
    same = (proof.pid, proof.start_ticks) == (first.pid, first.start_ticks)
    promise(same, f"{word}: pid {first.pid} became {proof.pid}")
    promise(
        proof.quota_us == cpu_milli * PERIOD_MS,
        f"{word}: the CPU quota is {proof.quota_us} µs, not {cpu_milli * PERIOD_MS}",
    )
    promise(
        proof.limit_bytes == memory_bytes,
        f"{word}: the memory limit is {proof.limit_bytes}, not {memory_bytes}",
    )


def format_quota(quota_us: int | None) -> str:
    return "none" if quota_us is None else f"{quota_us / 1000:.0f}/{PERIOD_MS} ms"


def format_limit(limit_bytes: int | None) -> str:
    return "none" if limit_bytes is None else f"{limit_bytes >> 20} MiB"


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[19])
