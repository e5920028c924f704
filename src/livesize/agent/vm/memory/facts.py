"""What is known of a VM's memory, and what follows from it for every technology. Pure.

Memory counts as there when the guest's own total has changed by what was plugged (``is_seen``). A
change is counted from what was noted before it began, so that it is the same after any retry.

A guest is never asked for more memory than it can spare (``smallest_safe_bytes``).
"""

from __future__ import annotations

import msgspec

from livesize.api.vm_changes import VmBalloon, VmDevice, plugged_bytes, total_bytes
from livesize.api.vm_size import MEBIBYTE, CellSize, MemoryBase

_RESERVE_BYTES = 64 * MEBIBYTE
_RESERVE_SHARE = 20  # or 5 % of the size it is to have
# A kernel may store its page structures of added memory in that memory: 64 bytes a page of 4 KiB.
_PAGE_STRUCT_SHARE = 64
_OTHER_BOOT_BYTES = 16 * MEBIBYTE  # a kernel keeps a little more or less for itself at each boot
# Where nothing was noted: a kernel keeps no more than this of what it boots with, or an eighth.
_KERNEL_BYTES = 192 * MEBIBYTE
_KERNEL_SHARE = 8


class MemoryFacts(msgspec.Struct, frozen=True):
    """The memory of a running VM as it was read, device by device. ``seen_bytes`` and
    ``available_bytes`` are the guest's own words: None, where it was not heard."""

    boot_bytes: int
    devices: tuple[VmDevice, ...]
    persistent_devices: tuple[VmDevice, ...]
    seen_bytes: int | None
    available_bytes: int | None
    noted_bytes: int | None = None  # the target of a change under way
    noted_base: MemoryBase | None = None  # from before that change
    boot_id: str = ""  # of the guest
    balloon: VmBalloon | None = None
    persistent_balloon: VmBalloon | None = None
    cells: tuple[CellSize, ...] = ()  # by id, with what each boots with; empty: one
    seen_by_node: tuple[int, ...] = ()

    @property
    def requested_bytes(self) -> int:
        return total_bytes(self.boot_bytes, self.devices, self.balloon)

    @property
    def plugged_bytes(self) -> int:
        return plugged_bytes(self.boot_bytes, self.devices, self.balloon)

    @property
    def persistent_bytes(self) -> int:
        return total_bytes(self.boot_bytes, self.persistent_devices, self.persistent_balloon)

    @property
    def plugged_by_cell(self) -> dict[int, int]:
        """What the guest holds of each cell; empty: the VM has one."""
        held = {cell.id: cell.memory_bytes for cell in self.cells}
        for device in self.devices:
            if device.node in held:
                held[device.node] += device.current_bytes
        return held

    @property
    def plugged_by_node(self) -> tuple[int, ...]:
        """The same for each node that the guest tells of; empty, where it does not, or has one."""
        held = self.plugged_by_cell
        nodes = range(len(self.seen_by_node))
        return tuple(held[node] for node in nodes) if held.keys() == set(nodes) else ()


def smallest_safe_bytes(facts: MemoryFacts, wanted_bytes: int, step_bytes: int) -> int:
    """The smallest size, in steps from what it has, that leaves the guest what it uses and a
    reserve; what it has now, where it does not say, or where its reserve is only a little short."""
    if facts.available_bytes is None:
        return facts.plugged_bytes
    reserve = max(_RESERVE_BYTES, wanted_bytes // _RESERVE_SHARE)
    spare = facts.available_bytes - reserve
    if -reserve // 2 <= spare < 0:
        return facts.plugged_bytes
    return facts.plugged_bytes - spare // step_bytes * step_bytes


def requestable_bytes(
    facts: MemoryFacts, wanted_bytes: int, most_bytes: int, step_bytes: int
) -> int:
    """What the guest may be asked for now; more than wanted only while a shrink is not safe. A
    guest that comes to need more meanwhile gets it back, up to ``most_bytes``."""
    if wanted_bytes >= facts.plugged_bytes:
        return wanted_bytes
    if facts.available_bytes is None:
        # It cannot be asked what it needs: nothing is taken from it that was not asked before.
        return max(wanted_bytes, min(facts.requested_bytes, facts.plugged_bytes))
    most_bytes = max(most_bytes, facts.plugged_bytes)
    return max(wanted_bytes, min(smallest_safe_bytes(facts, wanted_bytes, step_bytes), most_bytes))


def is_seen(facts: MemoryFacts, base: MemoryBase | None) -> bool:
    """The guest's own total has moved as far as what is plugged, but for its page structures."""
    unseen = unseen_bytes(facts, base)
    return unseen is not None and unseen == 0


def unseen_bytes(facts: MemoryFacts, base: MemoryBase | None) -> int | None:
    """By how much the guest's own total is behind what is plugged, beyond what its kernel may keep;
    None where it does not say. The guest itself gives back the memory that is taken away, and
    gives what it kept offline first: its total may then fall by less, never stay above."""
    if facts.seen_bytes is None:
        return None
    if base is None:
        kept = max(_KERNEL_BYTES, facts.boot_bytes // _KERNEL_SHARE)
        return max(0, facts.plugged_bytes - facts.seen_bytes - kept)
    slack = 0 if facts.boot_id == base.boot_id else _OTHER_BOOT_BYTES
    behind = _behind(facts.plugged_bytes - base.plugged_bytes, facts.seen_bytes - base.seen_bytes)
    return max(0, behind - slack, _behind_by_node(facts, base))


def _behind(plugged_bytes: int, seen_bytes: int) -> int:
    """Of so much more that is plugged in, what the guest does not see."""
    return plugged_bytes - seen_bytes - abs(plugged_bytes) // _PAGE_STRUCT_SHARE


def _behind_by_node(facts: MemoryFacts, base: MemoryBase) -> int:
    """Memory that one node has lost does not make up for what another lacks. A guest that has
    booted since may have put its kernel elsewhere: then only the total counts."""
    plugged, seen = facts.plugged_by_node, facts.seen_by_node
    if facts.boot_id != base.boot_id or not plugged or len(base.seen_by_node) != len(seen):
        return 0
    before = zip(base.plugged_by_node, base.seen_by_node, strict=True)
    now = zip(plugged, seen, strict=True)
    moved = [
        (plugged_bytes - plugged_before, seen_bytes - seen_before)
        for (plugged_bytes, seen_bytes), (plugged_before, seen_before) in zip(
            now, before, strict=True
        )
    ]
    return sum(max(0, _behind(plugged_bytes, seen_bytes)) for plugged_bytes, seen_bytes in moved)


def base_of(facts: MemoryFacts) -> MemoryBase | None:
    """Where a change begins, for its note. Of memory that moves while it is read, what the guest
    sees and what it holds do not match: then there is none."""
    if facts.noted_bytes is not None:
        return facts.noted_base
    if facts.seen_bytes is None or facts.requested_bytes != facts.plugged_bytes:
        return None
    if unseen_bytes(facts, None) or facts.seen_bytes > facts.plugged_bytes:
        return None  # part of it is offline, or was given back between the two readings
    by_node = facts.plugged_by_node
    return MemoryBase(
        facts.plugged_bytes,
        facts.seen_bytes,
        facts.boot_id,
        plugged_by_node=by_node,
        seen_by_node=facts.seen_by_node if by_node else (),
    )
