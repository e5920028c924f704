"""Which DIMMs make a size (decisions 22). Pure.

Each of the four sizes divides the next. So taking the largest that fits, again and again, gives the
fewest devices for an amount, also out of a given set; and where it gives none, there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from livesize.api.vm_changes import Unplug, VmDevice
from livesize.api.vm_size import MEBIBYTE

SLOTS = 16
SIZES = tuple(size * MEBIBYTE for size in (2048, 1024, 512, 128))
STEP_BYTES = SIZES[-1]

_SMALL_VM_BYTES = 2048 * MEBIBYTE
_SMALL_SIZES = tuple(size for size in SIZES if size <= 512 * MEBIBYTE)
_SMALL_DEVICES = 8


class Replacement(msgspec.Struct, frozen=True):
    plugged: tuple[int, ...]
    unplugged: tuple[VmDevice, ...]


def chosen_sizes(boot_bytes: int, extra_bytes: int, free_slots: int) -> tuple[int, ...] | None:
    """Devices for so much more; None: there are not enough slots. A small VM gets small ones, which
    it can give back one by one, as long as they are few and leave half of the free slots."""
    if extra_bytes % STEP_BYTES:
        return None
    if boot_bytes < _SMALL_VM_BYTES and extra_bytes <= _SMALL_DEVICES * _SMALL_SIZES[0]:
        small = _largest_first(extra_bytes, _SMALL_SIZES)
        if len(small) <= min(_SMALL_DEVICES, free_slots // 2):
            return small
    if extra_bytes > SLOTS * SIZES[0]:
        return None
    sizes = _largest_first(extra_bytes, SIZES)
    return sizes if len(sizes) <= free_slots else None


def in_leaving_order(devices: Iterable[VmDevice]) -> tuple[VmDevice, ...]:
    """The largest first; of equal ones, first those that the guest has not refused to let go, then
    the newest."""

    def key(device: VmDevice) -> tuple[object, ...]:
        return device.size_bytes, device.unplug is not Unplug.REJECTED, alias_order(device)

    return tuple(sorted(devices, key=key, reverse=True))


def alias_order(device: VmDevice) -> tuple[int, str]:
    """ua-dimm9 before ua-dimm10."""
    return len(device.alias), device.alias


def exact_devices(devices: Iterable[VmDevice], bytes_: int) -> tuple[VmDevice, ...] | None:
    """The fewest that come to just so much, of devices ``in_leaving_order``; None: none do."""
    taken = most_devices(devices, bytes_)
    return taken if sum(one.size_bytes for one in taken) == bytes_ else None


def most_devices(devices: Iterable[VmDevice], bytes_: int) -> tuple[VmDevice, ...]:
    """Those that come to as much as can be had of it and no more."""
    taken = []
    for device in devices:
        if device.size_bytes <= bytes_:
            taken.append(device)
            bytes_ -= device.size_bytes
    return tuple(taken)


def replaced(
    devices: Sequence[VmDevice],
    bytes_: int,
    room_bytes: int,
    boot_bytes: int,
    free_slots: int,
) -> Replacement | None:
    """Of devices ``in_leaving_order`` those that come to more, and what is plugged in for the
    difference beforehand: as little as possible, and no more than ``room_bytes``."""
    most_bytes = min(room_bytes, SIZES[0])  # more than the largest would come and go for nothing
    if most_bytes < STEP_BYTES:
        return None
    sums = _sums(devices) >> (bytes_ // STEP_BYTES)
    for steps in range(1, most_bytes // STEP_BYTES + 1):
        if sums >> steps & 1:
            plugged = chosen_sizes(boot_bytes, steps * STEP_BYTES, free_slots)
            unplugged = exact_devices(devices, bytes_ + steps * STEP_BYTES)
            if plugged is not None and unplugged is not None:
                return Replacement(plugged, unplugged)
    return None


def _sums(devices: Iterable[VmDevice]) -> int:
    """All that some of them come to, in steps: bit n is set where that is n steps."""
    sums = 1
    for device in devices:
        sums |= sums << device.size_bytes // STEP_BYTES
    return sums


def _largest_first(bytes_: int, sizes: Iterable[int]) -> tuple[int, ...]:
    chosen: list[int] = []
    for size in sizes:
        count, bytes_ = divmod(bytes_, size)
        chosen += count * [size]
    return tuple(chosen)
