"""Limits of a group as properties of a systemd unit. Pure.

systemd keeps a CPU quota in whole percent of a CPU when it reads its units again. It is told the
next whole one, never less than was promised; the file itself gets the exact quota, and who looks
after the pod writes it again where systemd has set it back.
"""

from __future__ import annotations

from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.runtime.systemd.bus import Property

INFINITY = 2**64 - 1
_SECOND_US = 1_000_000
_PERCENT_US = _SECOND_US // 100


def slice_properties(what: str, pids_max: int) -> list[Property]:
    """Of a slice that is made: it has the controllers, and no limits but that of processes."""
    accounting: list[Property] = [
        (f"{name}Accounting", ("b", True)) for name in ("CPU", "Memory", "Tasks")
    ]
    return [
        ("Description", ("s", what)),
        # Not ended when the machine goes down: whoever made it ends what is in it.
        ("DefaultDependencies", ("b", False)),
        *accounting,
        ("TasksMax", ("t", pids_max)),
    ]


def limit_properties(limits: KernelLimits) -> list[Property]:
    return [
        *cpu_properties(limits.cpu_weight, limits.cpu_quota_us),
        *memory_properties(limits.memory_limit_bytes),
    ]


def cpu_properties(weight: int | None, quota_us: int | None) -> list[Property]:
    """weight None: leave it. quota None: no limit."""
    quota = INFINITY if quota_us is None else _whole_percent(quota_us)
    properties: list[Property] = [("CPUQuotaPerSecUSec", ("t", quota))]
    if weight is not None:
        properties.append(("CPUWeight", ("t", weight)))
    return properties


def memory_properties(limit_bytes: int | None) -> list[Property]:
    return [("MemoryMax", ("t", INFINITY if limit_bytes is None else limit_bytes))]


def cpu_list_properties(cpus: tuple[int, ...]) -> list[Property]:
    """A bit for each CPU, eight to a byte."""
    bits = bytearray(max(cpus) // 8 + 1 if cpus else 0)
    for cpu in cpus:
        bits[cpu // 8] |= 1 << cpu % 8
    return [("AllowedCPUs", ("ay", bytes(bits)))]


def stored_quota_us(quota_us: int) -> int:
    """What systemd makes of a quota."""
    return _whole_percent(quota_us) * CPU_PERIOD_US // _SECOND_US


def _whole_percent(quota_us: int) -> int:
    per_second_us = quota_us * _SECOND_US // CPU_PERIOD_US
    return max(1, -(-per_second_us // _PERCENT_US)) * _PERCENT_US
