"""Which sizes a VM can have by whole memory modules (ARK: four sizes, 16 slots). Pure.

A guest ignores a module that is no multiple of its memory block, 128 MiB on x86-64.
"""

from __future__ import annotations

_MEBIBYTE = 2**20
DIMM_SIZES_BYTES = tuple(size * _MEBIBYTE for size in (2048, 1024, 512, 128))
DIMM_STEP_BYTES = DIMM_SIZES_BYTES[-1]
DIMM_SLOTS = 16


def fewest_dimms(amount_bytes: int) -> int:
    """How many modules come to exactly so much, a multiple of the step. The largest first are the
    fewest, as each size is a multiple of the next."""
    count, left = 0, amount_bytes
    for size_bytes in DIMM_SIZES_BYTES:
        count += left // size_bytes
        left %= size_bytes
    return count


def most_in_dimms(amount_bytes: int, slots: int = DIMM_SLOTS) -> int:
    """The largest amount up to this that modules in so many slots come to."""
    found, left = 0, amount_bytes
    for size_bytes in DIMM_SIZES_BYTES:
        count = min(slots, left // size_bytes)
        found += count * size_bytes
        slots -= count
        left -= count * size_bytes
    return found
