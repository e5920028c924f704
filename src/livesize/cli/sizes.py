"""Desired, allocated and actual sizes of a pod, read from Kubernetes-shaped fields only.

A size is written like the options of `livesize resize`: request:limit, one word where both are
the same. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.container_state import is_running
from livesize.api.objects import Object
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.resources import (
    Amounts,
    ResourceName,
    Resources,
    container_resources,
    parse_amounts,
    parse_resources,
    total,
)
from livesize.api.vm_status import resizable_statuses_of

NOT_KNOWN = "-"


class SizeReport(msgspec.Struct, frozen=True):
    """One container, or the sum of a pod. None: not reported yet; what does not run (``runs``) has
    no actual size. No API field holds allocated limits, so allocated has requests only."""

    desired: Resources
    allocated: Amounts | None
    actual: Resources | None
    runs: bool = True


def container_sizes(pod: Object) -> dict[str, SizeReport]:
    """Sizes of the app containers by name, in spec order, then of the sidecars; a virtual machine
    is one of them."""
    statuses = {str(status.get("name")): status for status in resizable_statuses_of(pod)}
    sizes = {}
    for name, desired in container_resources(pod).items():
        status = statuses.get(name, {})
        runs = not status or is_running(status)  # without a status that is not known
        allocated, actual = status.get("allocatedResources"), None
        if runs and status.get("resources") is not None:
            actual = parse_resources(status["resources"])
        parsed = None if allocated is None else parse_amounts(allocated)
        sizes[name] = SizeReport(desired, parsed, actual, runs)
    return sizes


def pod_sizes(pod: Object) -> SizeReport:
    """The sum over the containers, actual over those that run; a side that one of them has not
    reported is not known."""
    parts = list(container_sizes(pod).values())
    allocated = [part.allocated for part in parts if part.allocated is not None]
    running = [part.actual for part in parts if part.runs]
    actual = [size for size in running if size is not None]
    return SizeReport(
        _sum(part.desired for part in parts),
        total(allocated) if len(allocated) == len(parts) else None,
        _sum(actual) if actual and len(actual) == len(running) else None,
        runs=bool(running),
    )


def format_amount(resource: ResourceName, amount: int | None) -> str:
    if amount is None:
        return NOT_KNOWN
    match resource:
        case ResourceName.CPU:
            return format_cpu(amount)
        case ResourceName.MEMORY:
            return format_memory(amount)


def format_side(resource: ResourceName, size: Resources | None) -> str:
    """One resource as request:limit."""
    if size is None:
        return NOT_KNOWN
    request, limit = size.requests.amount(resource), size.limits.amount(resource)
    if request == limit:
        return format_amount(resource, request)
    left = "" if request is None else format_amount(resource, request)
    right = "" if limit is None else format_amount(resource, limit)
    return f"{left}:{right}"


def format_size(size: Resources | None) -> str:
    """CPU and memory, each request:limit."""
    if size is None:
        return NOT_KNOWN
    return f"{format_side(ResourceName.CPU, size)} {format_side(ResourceName.MEMORY, size)}"


def format_requests(amounts: Amounts | None) -> str:
    if amounts is None:
        return NOT_KNOWN
    cpu = format_amount(ResourceName.CPU, amounts.cpu_milli)
    return f"{cpu} {format_amount(ResourceName.MEMORY, amounts.memory_bytes)}"


def _sum(parts: Iterable[Resources]) -> Resources:
    sizes = list(parts)
    return Resources(
        total(size.requests for size in sizes),
        Amounts(
            _all_or_none(size.limits.cpu_milli for size in sizes),
            _all_or_none(size.limits.memory_bytes for size in sizes),
        ),
    )


def _all_or_none(limits: Iterable[int | None]) -> int | None:
    """A pod is limited only when every container is."""
    amount = 0
    for limit in limits:
        if limit is None:
            return None
        amount += limit
    return amount
