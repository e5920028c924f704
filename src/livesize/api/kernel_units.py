"""Resources in the units the kernel keeps them in, and back.

Desired and actual are compared here and nowhere else: two sizes are equal when the kernel
cannot tell them apart. Memory requests stand in no cgroup file, so they are not in KernelLimits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from livesize.api.objects import Object
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.resources import Amounts, Resources, parse_resources

CPU_PERIOD_US = 100_000
PAGE_BYTES = 4096

_QUOTA_US_PER_MILLI = CPU_PERIOD_US // 1000
_MINIMUM_QUOTA_US = 1000
_SHARES_PER_CPU = 1024
_MINIMUM_SHARES = 2
_MAXIMUM_SHARES = 262_144
_SHARES_SPAN = _MAXIMUM_SHARES - _MINIMUM_SHARES
_WEIGHT_SPAN = 9999


class CgroupVersion(enum.IntEnum):
    V1 = 1
    V2 = 2


class KernelLimits(msgspec.Struct, frozen=True):
    """What the kernel holds for one group. cpu_weight is cpu.shares on v1 and cpu.weight on v2;
    the quota is per CPU_PERIOD_US; None means no limit."""

    cpu_weight: int
    cpu_quota_us: int | None
    memory_limit_bytes: int | None


def to_kernel(resources: Resources, version: CgroupVersion) -> KernelLimits:
    """What the kernel is to hold for a container. A limit of zero is no limit, as in Kubernetes."""
    request_milli = resources.requests.cpu_milli
    if request_milli is None:
        request_milli = resources.limits.cpu_milli or 0
    return KernelLimits(
        cpu_weight=_weight(_shares(request_milli), version),
        cpu_quota_us=_quota_us(resources.limits.cpu_milli),
        memory_limit_bytes=_whole_pages(resources.limits.memory_bytes),
    )


def pod_kernel(containers: Iterable[KernelLimits], version: CgroupVersion) -> KernelLimits:
    """The pod group: the sum of its containers; one without a limit leaves the pod without."""
    limits = tuple(containers)
    shares = sum(_shares_of_weight(one.cpu_weight, version) for one in limits)
    return KernelLimits(
        cpu_weight=_weight(_clamp_shares(shares), version),
        cpu_quota_us=_sum_or_none([one.cpu_quota_us for one in limits]),
        memory_limit_bytes=_sum_or_none([one.memory_limit_bytes for one in limits]),
    )


def pod_limits(sizes: Iterable[Resources], version: CgroupVersion) -> KernelLimits:
    """The pod group for containers of these sizes. Its weight is that of the summed requests, as
    in Kubernetes: a sum of rounded weights would move when CPU only moves between containers."""
    sizes = tuple(sizes)
    group = pod_kernel([to_kernel(size, version) for size in sizes], version)
    asked_milli = sum(size.requests.cpu_milli or 0 for size in sizes)
    together = to_kernel(Resources(requests=Amounts(cpu_milli=asked_milli)), version)
    return msgspec.structs.replace(group, cpu_weight=together.cpu_weight)


def from_kernel(limits: KernelLimits, version: CgroupVersion) -> Resources:
    """What the kernel's numbers mean; the smallest sizes that give these numbers.

    ``to_kernel`` of the answer is ``limits`` again for everything ``to_kernel`` can give.
    """
    return Resources(
        requests=Amounts(cpu_milli=_request_milli(limits.cpu_weight, version)),
        limits=Amounts(_limit_milli(limits.cpu_quota_us), limits.memory_limit_bytes),
    )


def report_actual(allocated: Object, observed: KernelLimits, version: CgroupVersion) -> Object:
    """The actual resources as JSON (design 2).

    Where the kernel holds what ``allocated`` asks, allocated's own quantity is reported; where it
    does not, what the kernel says. Memory requests and names we do not know are as allocated.
    """
    expected = to_kernel(parse_resources(allocated), version)
    means = from_kernel(observed, version)
    requests = dict(allocated.get("requests") or {})
    limits = dict(allocated.get("limits") or {})
    if observed.cpu_weight != expected.cpu_weight:
        _report(requests, "cpu", _cpu_text(means.requests.cpu_milli))
    if observed.cpu_quota_us != expected.cpu_quota_us:
        _report(limits, "cpu", _cpu_text(means.limits.cpu_milli))
    if observed.memory_limit_bytes != expected.memory_limit_bytes:
        _report(limits, "memory", _memory_text(means.limits.memory_bytes))
    actual: Object = {}
    if requests:
        actual["requests"] = requests
    if limits:
        actual["limits"] = limits
    return actual


def _report(quantities: Object, name: str, text: str | None) -> None:
    if text is None:
        quantities.pop(name, None)
    else:
        quantities[name] = text


def _cpu_text(milli: int | None) -> str | None:
    return None if milli is None else format_cpu(milli)


def _memory_text(amount: int | None) -> str | None:
    return None if amount is None else format_memory(amount)


def _shares(milli: int) -> int:
    return _clamp_shares(milli * _SHARES_PER_CPU // 1000)


def _clamp_shares(shares: int) -> int:
    return max(_MINIMUM_SHARES, min(shares, _MAXIMUM_SHARES))


def _weight(shares: int, version: CgroupVersion) -> int:
    match version:
        case CgroupVersion.V1:
            return shares
        case CgroupVersion.V2:
            return 1 + (shares - _MINIMUM_SHARES) * _WEIGHT_SPAN // _SHARES_SPAN


def _shares_of_weight(weight: int, version: CgroupVersion) -> int:
    match version:
        case CgroupVersion.V1:
            return weight
        case CgroupVersion.V2:
            # Rounded up: the smallest shares that give this weight again.
            return _MINIMUM_SHARES + -(-(weight - 1) * _SHARES_SPAN // _WEIGHT_SPAN)


def _request_milli(weight: int, version: CgroupVersion) -> int:
    shares = _shares_of_weight(weight, version)
    if shares <= _MINIMUM_SHARES:
        return 0  # the kernel's smallest: nothing was asked
    return -(-shares * 1000 // _SHARES_PER_CPU)


def _quota_us(limit_milli: int | None) -> int | None:
    if not limit_milli:
        return None
    return max(_MINIMUM_QUOTA_US, limit_milli * _QUOTA_US_PER_MILLI)


def _limit_milli(quota_us: int | None) -> int | None:
    return None if quota_us is None else -(-quota_us // _QUOTA_US_PER_MILLI)


def _whole_pages(limit_bytes: int | None) -> int | None:
    if not limit_bytes:
        return None
    return max(PAGE_BYTES, limit_bytes - limit_bytes % PAGE_BYTES)


def _sum_or_none(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
