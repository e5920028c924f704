"""Resources in the units the kernel keeps them in, and back.

Desired and actual are compared here and nowhere else: two sizes are equal when the kernel
cannot tell them apart.
"""

from __future__ import annotations

import enum

import msgspec

CPU_PERIOD_US = 100_000


class CgroupVersion(enum.IntEnum):
    V1 = 1
    V2 = 2


class KernelLimits(msgspec.Struct, frozen=True):
    """What the kernel holds for one group. cpu_weight is cpu.shares on v1 and cpu.weight on v2;
    the quota is per CPU_PERIOD_US; None means no limit."""

    cpu_weight: int
    cpu_quota_us: int | None
    memory_limit_bytes: int | None
