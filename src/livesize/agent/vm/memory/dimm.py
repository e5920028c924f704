"""DIMMs: whole devices of four sizes in 16 slots. Pure.

ARK, "Multiple memory device sizes support". Growth takes the devices that ``chosen_sizes`` names. A
shrink takes away the fewest devices that come to just as much (decisions 22). Where there are none,
smaller ones are plugged in first and take the place of a larger one, as far as slots, the VM's
maximum and what its groups hold allow; what can go before that makes room for them. Else the size
is refused, with the nearest that can be had.

A device leaves whole or not at all, and a guest that has no room for what is on it may die of it:
only what it can spare is asked for. A device that the guest was asked for is left in peace until it
has answered; then the newest target follows (decisions 35).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from livesize.agent.vm.memory.cells import (
    CellGoal,
    below_boot,
    cell_goals,
    in_order,
    initial_cells,
    on_node,
)
from livesize.agent.vm.memory.dimm_choice import (
    SIZES,
    SLOTS,
    STEP_BYTES,
    alias_order,
    chosen_sizes,
    in_leaving_order,
    most_devices,
    replaced,
)
from livesize.agent.vm.memory.facts import MemoryFacts, requestable_bytes
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryStage,
    MemoryTarget,
    MemoryWait,
)
from livesize.api.vm_changes import (
    Definition,
    DeviceChange,
    DeviceKind,
    PlugDevice,
    Unplug,
    UnplugDevice,
    VmDevice,
)
from livesize.api.vm_size import VmSize

_ALL_SLOTS_BYTES = SLOTS * SIZES[0]


class _CellChange(msgspec.Struct, frozen=True):
    """``plugged``: sizes. It ``replaces``: what is unplugged goes when all that is plugged in is
    there. ``early``: goes before either, and so makes room in the groups."""

    node: int
    plugged: tuple[int, ...] = ()
    unplugged: tuple[VmDevice, ...] = ()
    early: tuple[VmDevice, ...] = ()

    @property
    def replaces(self) -> bool:
        return bool(self.plugged and self.unplugged)


class Dimm:
    name = "dimm"

    def boot_bytes(self, size: VmSize) -> int:
        return size.boot_memory_bytes

    def initial_devices(self, size: VmSize) -> tuple[VmDevice, ...]:
        """As many as fit. A size that no devices make is refused when the VM runs."""
        devices: tuple[VmDevice, ...] = ()
        for cell, extra_bytes in initial_cells(size):
            free = SLOTS - len(devices)
            whole_bytes = extra_bytes // STEP_BYTES * STEP_BYTES
            sizes = chosen_sizes(size.boot_memory_bytes, whole_bytes, free) or ()
            devices += tuple(
                VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, cell.id, one, one)
                for number, one in enumerate(sizes, start=len(devices))
            )
        return devices

    def initial_balloon(self, _size: VmSize) -> int | None:
        return None

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        asked = [one.alias for one in facts.devices if one.unplug is Unplug.PENDING]
        if asked:
            return MemoryWait(_unanswered(asked))
        goals = cell_goals(facts, target)
        if isinstance(goals, MemoryRefusal):
            return goals
        changes: list[_CellChange] = []
        for goal in goals:
            taken = [size for one in changes for size in one.plugged]
            change = _cell_change(facts, target, goal, taken)
            if isinstance(change, MemoryRefusal):
                return change
            changes.append(change)
        coming_bytes = sum(size for one in changes for size in one.plugged)
        room_bytes = _room_bytes(facts, target) + sum(_total(one.early) for one in changes)
        if any(one.replaces for one in changes) and coming_bytes > room_bytes:
            return MemoryRefusal("the VM has no room for all cells at once; change one by one")
        return _plan(facts, target, changes)


def _plan(facts: MemoryFacts, target: MemoryTarget, changes: Sequence[_CellChange]) -> MemoryPlan:
    early = [device for change in changes for device in change.early]
    if not early:
        return _plan_at_once(facts, target, changes)
    left_bytes = facts.plugged_bytes - _total(early)
    if requestable_bytes(facts, left_bytes, facts.plugged_bytes, STEP_BYTES) > left_bytes:
        return MemoryPlan(facts.plugged_bytes, is_short=bool(facts.cells))
    stage = MemoryStage(left_bytes, tuple(UnplugDevice(one.alias) for one in early))
    decision = _plan_at_once(_without(facts, early), target, changes)
    return replace(decision, first=(stage, *decision.first))


def _without(facts: MemoryFacts, gone: Sequence[VmDevice]) -> MemoryFacts:
    """The same guest when it has given these back."""
    available_bytes = facts.available_bytes
    return replace(
        facts,
        devices=tuple(one for one in facts.devices if one not in gone),
        available_bytes=None if available_bytes is None else available_bytes - _total(gone),
    )


def _total(devices: Iterable[VmDevice]) -> int:
    return sum(device.size_bytes for device in devices)


def _plan_at_once(
    facts: MemoryFacts, target: MemoryTarget, changes: Sequence[_CellChange]
) -> MemoryPlan:
    numbers = _free_numbers(facts.devices)
    plugs = [
        PlugDevice(f"ua-dimm{next(numbers)}", size_bytes, change.node)
        for change in changes
        for size_bytes in change.plugged
    ]
    wanted = _with(facts.devices, plugs, [one.alias for each in changes for one in each.unplugged])
    persistent = _persistent(facts.persistent_devices, wanted)
    leaving = _spared(facts, changes)
    if any(change.replaces for change in changes) and not leaving:
        # What is to be replaced cannot go yet: so nothing comes in its place.
        return MemoryPlan(facts.plugged_bytes, is_short=bool(facts.cells))
    grow, shrink = _grow(facts, plugs), _shrink(facts, leaving)
    first, last = in_order(facts, target, grow, shrink)
    return MemoryPlan(last.requested_bytes, last.live, persistent, first, last.is_short)


def _grow(facts: MemoryFacts, plugs: Sequence[PlugDevice]) -> MemoryStage | None:
    if not plugs:
        return None
    return MemoryStage(facts.plugged_bytes + sum(one.size_bytes for one in plugs), tuple(plugs))


def _shrink(facts: MemoryFacts, leaving: Sequence[VmDevice]) -> MemoryStage | None:
    if not leaving:
        return None
    left_bytes = facts.plugged_bytes - _total(leaving)
    return MemoryStage(left_bytes, tuple(UnplugDevice(one.alias) for one in leaving))


def _spared(facts: MemoryFacts, changes: Sequence[_CellChange]) -> list[VmDevice]:
    """Of the devices that are to go, those that the guest can do without now. Devices that are to
    be replaced go together."""
    leaving = [one for change in changes for one in change.unplugged]
    given_bytes = _total(leaving) - sum(
        size for change in changes if change.replaces for size in change.plugged
    )
    least_bytes = facts.plugged_bytes - given_bytes
    safe_bytes = requestable_bytes(facts, least_bytes, facts.plugged_bytes, STEP_BYTES)
    if safe_bytes <= least_bytes:
        return leaving
    if any(change.replaces for change in changes):
        return []
    spare_bytes = facts.plugged_bytes - safe_bytes
    spared = []
    for device in leaving:
        if device.size_bytes <= spare_bytes:
            spared.append(device)
            spare_bytes -= device.size_bytes
    return spared


class _Cell(msgspec.Struct, frozen=True):
    """What one cell has, and what it may come to. ``devices`` are in leaving order; ``room_bytes``:
    for what comes before something else goes."""

    goal: CellGoal
    devices: tuple[VmDevice, ...]
    vm_boot_bytes: int
    free_slots: int
    room_bytes: int
    most_bytes: int

    def change(self, wanted_bytes: int) -> _CellChange | None:
        """To just that size; None: it cannot have it."""
        least_bytes = self.goal.boot_bytes
        in_range = least_bytes <= wanted_bytes <= self.most_bytes
        if not in_range or (wanted_bytes - least_bytes) % STEP_BYTES:
            return None
        extra_bytes = wanted_bytes - least_bytes - _total(self.devices)
        return self._grown(extra_bytes) if extra_bytes >= 0 else self._shrunk(-extra_bytes)

    def _grown(self, extra_bytes: int) -> _CellChange | None:
        if extra_bytes > self.free_slots * SIZES[0]:
            return None
        sizes = chosen_sizes(self.vm_boot_bytes, extra_bytes, self.free_slots)
        return None if sizes is None else _CellChange(self.goal.node, sizes)

    def _shrunk(self, bytes_: int) -> _CellChange | None:
        node, most = self.goal.node, most_devices(self.devices, bytes_)
        if _total(most) == bytes_:
            return _CellChange(node, (), most)
        for early in ((), most):
            swap = replaced(
                [one for one in self.devices if one not in early] if early else self.devices,
                bytes_ - _total(early),
                self.room_bytes + _total(early),
                self.vm_boot_bytes,
                self.free_slots + len(early),
            )
            if swap is not None:
                return _CellChange(node, swap.plugged, swap.unplugged, early)
        return None


def _cell_change(
    facts: MemoryFacts, target: MemoryTarget, goal: CellGoal, taken: Sequence[int]
) -> _CellChange | MemoryRefusal:
    """``taken``: the sizes that other cells are to get."""
    refusal = below_boot(goal)
    if refusal is not None:
        return refusal
    most_bytes = goal.boot_bytes + _ALL_SLOTS_BYTES
    if target.max_bytes:
        others_bytes = target.wanted_bytes - goal.wanted_bytes
        most_bytes = min(most_bytes, target.max_bytes - others_bytes)
    cell = _Cell(
        goal,
        in_leaving_order(_dimms(facts, goal)),
        vm_boot_bytes=facts.boot_bytes,
        free_slots=SLOTS - len(facts.devices) - len(taken),
        room_bytes=_room_bytes(facts, target) - sum(taken),
        most_bytes=most_bytes,
    )
    return cell.change(goal.wanted_bytes) or _refusal(cell, len(facts.devices))


def _room_bytes(facts: MemoryFacts, target: MemoryTarget) -> int:
    covered_bytes = max(target.most_bytes, target.wanted_bytes)
    if target.max_bytes:
        covered_bytes = min(covered_bytes, target.max_bytes)
    return covered_bytes - facts.plugged_bytes


def _dimms(facts: MemoryFacts, goal: CellGoal) -> tuple[VmDevice, ...]:
    here = on_node(facts.devices, goal.node) if goal.label else facts.devices
    return tuple(one for one in here if one.kind is DeviceKind.DIMM)


def _refusal(cell: _Cell, used_slots: int) -> MemoryRefusal:
    goal, most_bytes = cell.goal, cell.most_bytes
    whole = (goal.wanted_bytes - goal.boot_bytes) // STEP_BYTES * STEP_BYTES + goal.boot_bytes
    below = range(min(whole, most_bytes), goal.boot_bytes - 1, -STEP_BYTES)
    above = range(max(whole + STEP_BYTES, goal.boot_bytes), most_bytes + 1, STEP_BYTES)
    found = [next(filter(cell.change, sizes), None) for sizes in (below, above[: 16 * SLOTS])]
    nearest = tuple(size for size in found if size is not None)
    whom = goal.label or "the VM"
    if not goal.boot_bytes <= goal.wanted_bytes <= most_bytes:
        why = f"can have between {goal.boot_bytes} and {most_bytes} bytes of memory"
    elif (goal.wanted_bytes - goal.boot_bytes) % STEP_BYTES:
        why = f"grows from {goal.boot_bytes} bytes in steps of 128 MiB"
    elif goal.gain_bytes > 0:
        why = f"has {SLOTS - used_slots} of {SLOTS} slots for DIMMs free, which is too few"
    else:
        why = (
            "has no DIMMs that come to as much as it is to give back, and no room to plug in"
            " smaller ones first"
        )
    return MemoryRefusal(f"{whom} {why}, not {goal.wanted_bytes}", nearest)


def _free_numbers(devices: Iterable[VmDevice]) -> Iterator[int]:
    aliases = {one.alias for one in devices}
    return (number for number in itertools.count() if f"ua-dimm{number}" not in aliases)


def _with(
    devices: Iterable[VmDevice], plugs: Iterable[PlugDevice], unplugged: Iterable[str]
) -> tuple[VmDevice, ...]:
    """What is there once all of it is done."""
    gone = set(unplugged)
    stay = tuple(one for one in devices if one.alias not in gone)
    return stay + tuple(
        VmDevice(one.alias, DeviceKind.DIMM, one.node, one.size_bytes, one.size_bytes)
        for one in plugs
    )


def _persistent(
    devices: Iterable[VmDevice], wanted: Iterable[VmDevice]
) -> tuple[DeviceChange, ...]:
    """The next start has what runs. What goes comes first: it makes room, and frees its name."""

    def plain(device: VmDevice) -> VmDevice:
        return replace(
            device, requested_bytes=device.size_bytes, current_bytes=0, unplug=Unplug.NONE
        )

    there, needed = {plain(one) for one in devices}, {plain(one) for one in wanted}
    definition = Definition.PERSISTENT
    return (
        *(UnplugDevice(one.alias, definition) for one in _sorted(there - needed)),
        *(
            PlugDevice(one.alias, one.size_bytes, one.node, definition)
            for one in _sorted(needed - there)
        ),
    )


def _sorted(devices: Iterable[VmDevice]) -> list[VmDevice]:
    return sorted(devices, key=alias_order)


def _unanswered(aliases: Sequence[str]) -> str:
    named = ", ".join(aliases)
    return (
        f"memory: the guest was asked to give back {named} and has not answered yet: it moves what"
        " is there to other memory, or it is suspended or hangs; its newest size follows when it"
        " lets go or refuses"
    )
