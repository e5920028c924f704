"""The changes of one control group: the words that plans and drivers share. Pure.

The agent plans these values, a driver carries them out and answers with the same values when it
reads them back. Amounts are in kernel units (kernel_units.py).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.kernel_units import KernelLimits


class SetCpu(msgspec.Struct, frozen=True, tag=True):
    """Weight and quota of a group. quota None: no limit. weight None: leave it."""

    weight: int | None
    quota_us: int | None


class SetMemory(msgspec.Struct, frozen=True, tag=True):
    """Memory limit of a group. None: no limit."""

    limit_bytes: int | None


class SetCpus(msgspec.Struct, frozen=True, tag=True):
    """The CPUs that a container may run on, by number; at least one."""

    cpus: tuple[int, ...]


SizeChange: TypeAlias = SetCpu | SetMemory
GroupChange: TypeAlias = SizeChange | SetCpus


def cpu_change(limits: KernelLimits) -> SetCpu:
    """The change that gives a group the CPU of ``limits``."""
    return SetCpu(limits.cpu_weight, limits.cpu_quota_us)


def memory_change(limits: KernelLimits) -> SetMemory:
    """The change that gives a group the memory of ``limits``."""
    return SetMemory(limits.memory_limit_bytes)
