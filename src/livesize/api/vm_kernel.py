"""What the machine is to hold for a virtual machine, and what it really holds as resources.

A size of a VM stands in three places: the vCPUs the guest uses, the memory plugged into it, and
the limits of its group (guest memory and overhead). It is actual only when all of them have it.
"""

from __future__ import annotations

import msgspec

from livesize.api.kernel_units import CgroupVersion, KernelLimits, from_kernel, to_kernel
from livesize.api.objects import Object
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.resources import Amounts, Resources, parse_resources
from livesize.api.vm_size import guest_memory_of, vcpus_of


class VmHolding(msgspec.Struct, frozen=True):
    """``vcpus`` the guest has online (plugged, where it was not heard), ``memory_bytes`` plugged,
    ``group`` of the VM and of its pod, which are equal."""

    vcpus: int
    memory_bytes: int
    group: KernelLimits


def vm_to_kernel(resources: Resources, overhead_bytes: int, version: CgroupVersion) -> KernelLimits:
    """The group of a VM: as much CPU as it has vCPUs, its guest's memory and the overhead."""
    size = Amounts(
        cpu_milli=1000 * vcpus_of(resources),
        memory_bytes=guest_memory_of(resources) + overhead_bytes,
    )
    return to_kernel(Resources(requests=resources.requests, limits=size), version)


def vm_holding(resources: Resources, overhead_bytes: int, version: CgroupVersion) -> VmHolding:
    """What all three places hold when ``resources`` are actual."""
    return VmHolding(
        vcpus=vcpus_of(resources),
        memory_bytes=guest_memory_of(resources),
        group=vm_to_kernel(resources, overhead_bytes, version),
    )


def report_vm_actual(
    allocated: Object,
    actuated: Object,
    seen: VmHolding,
    overhead_bytes: int,
    version: CgroupVersion,
) -> Object:
    """The actual resources as JSON (design 2), each field by itself.

    Where the machine holds all that ``allocated`` asks, allocated's own quantity; else actuated's
    where it still holds that; else what it says: first the guest, then its group. A memory request
    beside a limit stands nowhere, and is reported as actuated.
    """
    given = _Reporter(allocated, actuated, seen, overhead_bytes, version)
    actual: Object = {}
    for side in ("requests", "limits"):
        texts = {name: given.text(side, name) for name in allocated.get(side) or {}}
        if known := {name: text for name, text in texts.items() if text is not None}:
            actual[side] = known
    return actual


class _Place(msgspec.Struct, frozen=True):
    """One place where a field of the resources stands: the number there, and what it means."""

    number: int | None
    text: str | None


class _Reporter(msgspec.Struct, frozen=True):
    allocated: Object
    actuated: Object
    seen: VmHolding
    overhead_bytes: int
    version: CgroupVersion

    def text(self, side: str, name: str) -> str | None:
        seen = self._places(self.seen, side, name)
        if not seen:
            return _quantity(self.actuated, side, name)
        for size in (self.allocated, self.actuated):
            if seen == self._places(self._expected(size), side, name):
                return _quantity(size, side, name)
        wanted = self._places(self._expected(self.allocated), side, name)
        return next(here.text for here, there in zip(seen, wanted, strict=True) if here != there)

    def _expected(self, size: Object) -> VmHolding:
        return vm_holding(parse_resources(size), self.overhead_bytes, self.version)

    def _places(self, holding: VmHolding, side: str, name: str) -> tuple[_Place, ...]:
        """Where the field stands, the most telling place first; requests that a limit outranks
        do not say the size of the VM."""
        outranked = side == "requests" and _quantity(self.allocated, "limits", name) is not None
        means = from_kernel(holding.group, self.version)
        match name:
            case "cpu":
                weight = _Place(holding.group.cpu_weight, _cpu_text(means.requests.cpu_milli))
                if outranked:
                    return (weight,)
                vcpus = _Place(holding.vcpus, format_cpu(1000 * holding.vcpus))
                quota = _Place(holding.group.cpu_quota_us, _cpu_text(means.limits.cpu_milli))
                return (vcpus, quota) if side == "limits" else (vcpus, quota, weight)
            case "memory" if not outranked:
                return self._memory_places(holding)
            case _:
                return ()

    def _memory_places(self, holding: VmHolding) -> tuple[_Place, ...]:
        limit = holding.group.memory_limit_bytes
        guest = None if limit is None else format_memory(max(0, limit - self.overhead_bytes))
        plugged = _Place(holding.memory_bytes, format_memory(holding.memory_bytes))
        return (plugged, _Place(limit, guest))


def _quantity(size: Object, side: str, name: str) -> str | None:
    text: str | None = (size.get(side) or {}).get(name)
    return text


def _cpu_text(milli: int | None) -> str | None:
    return None if milli is None else format_cpu(milli)
