"""Keeps QEMU's own emulation (TCG) from aborting when a vCPU is plugged in. Pure.

TCG keeps translated code in a cache that is divided into regions; each vCPU takes one when it is
created and further ones as it translates. All are given back at once, when a vCPU finds none
left. A vCPU that is created while none is left makes QEMU abort, and the guest is gone (QEMU
10.0, tcg/region.c: tcg_region_initial_alloc__locked). QEMU tells how full its cache is, so it is
asked first. It aborts as well when more vCPUs are created in its life than it may have at once.
"""

from __future__ import annotations

import re

from livesize.runtime.interface import RuntimeCallError

_MIB = 1024 * 1024
_REGION_BYTES = 2 * _MIB  # as small as regions get
_MOST_REGIONS_PER_VCPU = 8
_CODE_SIZE = re.compile(r"gen code size\s+(\d+)/(\d+)")
_FULL = 0.95  # a region counts as full a little before its end


def check_room(jit: str, *, max_vcpus: int, plugged: int, added: int) -> None:
    """Refuse what would abort. ``jit`` is QEMU's answer to "info jit"."""
    free = free_regions(jit, max_vcpus, plugged)
    if free is not None and free < added:
        raise RuntimeCallError(
            f"QEMU's code cache has room for {max(free, 0)} more vCPUs at the moment, not {added},"
            " and QEMU would abort; it makes room as the guest goes on"
        )


def check_creations(created: int, max_vcpus: int) -> None:
    if created > max_vcpus:
        raise RuntimeCallError(
            f"under TCG, QEMU can create {max_vcpus} vCPUs in its life and would abort at the"
            " next; switch them on and off in the guest instead, or restart the VM"
        )


def free_regions(jit: str, max_vcpus: int, plugged: int) -> int | None:
    """At least so many are left; None where QEMU does not say."""
    told = _CODE_SIZE.search(jit)
    if told is None:
        return None
    used_bytes, cache_bytes = int(told[1]), int(told[2])
    regions = count_regions(cache_bytes, max_vcpus)
    full = int(used_bytes / (cache_bytes / regions * _FULL))
    return regions - full - plugged


def count_regions(cache_bytes: int, max_vcpus: int) -> int:
    """As QEMU divides its cache (tcg/region.c: tcg_n_regions)."""
    if max_vcpus == 1:
        return 1
    regions = -(-cache_bytes // _REGION_BYTES)  # the cache said is the one asked for, less guards
    return max(min(regions, max_vcpus * _MOST_REGIONS_PER_VCPU), max_vcpus)
