"""Bounds every word of a guest by what its domain can have. Pure.

A guest may say anything, at any length. What does not fit is dropped as a whole, and the sentence
why goes into the log and the pod's status.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from livesize.api.cpu_list import parse_cpu_list
from livesize.runtime.interface import RuntimeCallError

_MOST_SECONDS = 2.0**32  # no machine is up for a century
_BOOT_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_NODE = re.compile(r"[0-9]{1,4}")
_SHOWN = 40


class GuestLimits(msgspec.Struct, frozen=True):
    max_vcpus: int
    max_memory_bytes: int
    cells: int = 1


# JSON has numbers of thousands of digits, which Python refuses to show.
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class GuestReport(msgspec.Struct, frozen=True, rename="camel"):
    id: Number
    online: str
    mem_total: Number  # KiB, as the other amounts
    available: Number
    uptime: float
    boot_id: str
    nodes: dict[str, Number] = {}


class ImplausibleReportError(RuntimeCallError):
    """What the guest says is not possible in its domain, or makes no sense."""


def check_report(report: GuestReport, limits: GuestLimits) -> None:
    """Raises UnfitWordsError with a sentence."""
    guest_cpus(report.online, limits)
    check_memory(report.mem_total * 1024, report.available * 1024, limits)
    check_boot(report.boot_id, report.uptime)
    memory_by_node(report.nodes, limits)


def memory_by_node(nodes_kib: Mapping[str, int], limits: GuestLimits) -> tuple[int, ...]:
    """In bytes, by the numbers of the nodes; one that is not named has none."""
    if len(nodes_kib) > limits.cells:
        raise ImplausibleReportError(
            f"it names {len(nodes_kib)} NUMA nodes, and its domain has {limits.cells}"
        )
    found = [0] * limits.cells
    for name, amount_kib in nodes_kib.items():
        if _NODE.fullmatch(name) is None or int(name) >= limits.cells:
            raise ImplausibleReportError(
                f"it names the NUMA node {shown(name)}, and its domain has {limits.cells}"
            )
        found[int(name)] = amount_kib * 1024
    if min(found) < 0 or sum(found) > limits.max_memory_bytes:
        raise ImplausibleReportError(
            "it says that its NUMA nodes have"
            f" {shown(', '.join(str(one) for one in found))} bytes of memory,"
            f" and its domain can have {limits.max_memory_bytes}"
        )
    return tuple(found) if nodes_kib else ()


def guest_cpus(ranges: str, limits: GuestLimits) -> tuple[int, ...]:
    """The CPUs a list like "0-3,6" names."""
    try:
        return parse_cpu_list(ranges, limits.max_vcpus)
    except ValueError as failure:
        raise ImplausibleReportError(
            f"it names the CPUs {shown(ranges)}, and its domain can have {limits.max_vcpus}"
        ) from failure


def check_memory(seen_bytes: int, available_bytes: int, limits: GuestLimits) -> None:
    if not 0 < seen_bytes <= limits.max_memory_bytes:
        raise ImplausibleReportError(
            f"it says that it has {shown(str(seen_bytes))} bytes of memory, and its domain can have"
            f" {limits.max_memory_bytes}"
        )
    if not 0 <= available_bytes <= seen_bytes:
        raise ImplausibleReportError(
            f"it says that {shown(str(available_bytes))} of its {seen_bytes} bytes are available"
        )


def check_boot(boot_id: str, uptime_seconds: float) -> None:
    if _BOOT_ID.fullmatch(boot_id) is None:
        raise ImplausibleReportError(f"its boot id is {shown(boot_id)}")
    if not (math.isfinite(uptime_seconds) and 0 <= uptime_seconds < _MOST_SECONDS):
        raise ImplausibleReportError(f"it says that it is up for {uptime_seconds} s")


def shown(words: str) -> str:
    """The beginning of what a guest said, fit to be printed."""
    cut = words[:_SHOWN]
    return f"{cut!a}{'…' if len(words) > len(cut) else ''}"
