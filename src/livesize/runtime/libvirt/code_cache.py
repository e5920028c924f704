"""Looks from outside how much of QEMU's cache of translated code was ever used (emulator.py).

QEMU puts an inaccessible page behind each region of the cache, so that each is a mapping of its
own; a region that was given out has its first page in memory. That is seen without a word to QEMU,
which would hold up its guest for tens of milliseconds to count. Regions are never taken out of
memory again: where many were used, only QEMU itself knows how many are in use now.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENTRY = struct.Struct("=Q")
_PRESENT_OR_SWAPPED = 0b11 << 62
_SMALLEST_REGION_BYTES = 1024 * 1024


def untouched_regions(pid: int) -> int | None:
    """At least so many were never given out; None where it cannot be seen."""
    try:
        starts = region_starts(Path(f"/proc/{pid}/maps").read_text())
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pages:
            return sum(not _is_touched(pages.fileno(), start) for start in starts)
    except (OSError, struct.error):
        return None


def region_starts(maps: str) -> list[int]:
    """Addresses of what may be written and run: nothing else in QEMU may be both."""
    spans = [line.split(maxsplit=2)[:2] for line in maps.splitlines() if " rwx" in line]
    bounds = [span.split("-") for span, rights in spans if rights.startswith("rwx")]
    regions = [(int(first, 16), int(last, 16)) for first, last in bounds]
    return [first for first, last in regions if last - first >= _SMALLEST_REGION_BYTES]


def _is_touched(pages: int, address: int) -> bool:
    (entry,) = _ENTRY.unpack(os.pread(pages, _ENTRY.size, address // _PAGE_BYTES * _ENTRY.size))
    return bool(entry & _PRESENT_OR_SWAPPED)
