"""virtio-mem: devices that the guest fills and empties in blocks of 2 MiB, one for each NUMA cell.
Pure.

They take the newest target at once, also in the middle of an earlier one (decisions 35), and the
guest gives back what it can: so there is never anything to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livesize.agent.vm.memory.cells import (
    CellGoal,
    below_boot,
    cell_goals,
    in_order,
    initial_cells,
    on_node,
)
from livesize.agent.vm.memory.facts import MemoryFacts, requestable_bytes
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryStage,
    MemoryTarget,
)
from livesize.api.vm_changes import Definition, DeviceKind, SetRequested, VmDevice
from livesize.api.vm_size import MEBIBYTE, MEMORY_BLOCK_BYTES, VmSize

ALIAS = "ua-memory0"  # of cell 0, and of a VM without cells
# What a guest adds and removes at once; the end of a device that is not whole would be lost.
_SECTION_BYTES = 128 * MEBIBYTE


class VirtioMem:
    name = "virtio-mem"

    def boot_bytes(self, size: VmSize) -> int:
        return size.boot_memory_bytes

    def initial_devices(self, size: VmSize) -> tuple[VmDevice, ...]:
        """One for each cell, with room for the maximum of the VM: which cell gets it is not known
        yet. None where the VM boots with all it can ever have."""
        room_bytes = size.max_memory_bytes - size.boot_memory_bytes
        size_bytes = -(-room_bytes // _SECTION_BYTES) * _SECTION_BYTES
        if not size_bytes:
            return ()
        return tuple(
            VmDevice(_alias(cell.id), DeviceKind.VIRTIO_MEM, cell.id, size_bytes, extra_bytes)
            for cell, extra_bytes in initial_cells(size)
        )

    def initial_balloon(self, _size: VmSize) -> int | None:
        return None

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        goals = cell_goals(facts, target)
        if isinstance(goals, MemoryRefusal):
            return goals
        refusal = _refusal(facts, target, goals)
        if refusal is not None:
            return refusal
        growing = {goal.node: goal.wanted_bytes for goal in goals if goal.gain_bytes >= 0}
        shrinking = _shrunk(facts, target, goals)
        grow, shrink = (_stage(facts, goals, one) for one in (growing, shrinking))
        first, last = in_order(facts, target, grow, shrink)
        wanted = {goal.node: goal.wanted_bytes for goal in goals}
        persistent = _changes(facts.persistent_devices, goals, wanted, Definition.PERSISTENT)
        return MemoryPlan(last.requested_bytes, last.live, persistent, first, last.is_short)


def _alias(node: int) -> str:
    return f"ua-memory{node}"


def _device(devices: Iterable[VmDevice], node: int) -> VmDevice | None:
    here = on_node(devices, node)
    return next((one for one in here if one.kind is DeviceKind.VIRTIO_MEM), None)


def _shrunk(facts: MemoryFacts, target: MemoryTarget, goals: Iterable[CellGoal]) -> dict[int, int]:
    """What each cell that is to have less is asked for: together no more than the guest can spare,
    from the first cell on. A guest that needs more again gets it where it gave."""
    losing = [goal for goal in goals if goal.gain_bytes < 0]
    wanted_bytes = facts.plugged_bytes + sum(goal.gain_bytes for goal in losing)
    safe_bytes = requestable_bytes(facts, wanted_bytes, target.most_bytes, MEMORY_BLOCK_BYTES)
    spare_bytes = facts.plugged_bytes - safe_bytes
    sizes = {}
    for goal in losing:
        given_bytes = min(spare_bytes, -goal.gain_bytes)
        device = _device(facts.devices, goal.node)
        largest_bytes = goal.boot_bytes + (0 if device is None else device.size_bytes)
        sizes[goal.node] = min(goal.plugged_bytes - given_bytes, largest_bytes)
        spare_bytes -= given_bytes
    return sizes


def _stage(
    facts: MemoryFacts, goals: Iterable[CellGoal], sizes: Mapping[int, int]
) -> MemoryStage | None:
    """None: nothing is to be changed in any of them."""
    held = {goal.node: goal.plugged_bytes for goal in goals}
    moved_bytes = sum(sizes[node] - held[node] for node in sizes)
    changes = _changes(facts.devices, goals, sizes, Definition.LIVE)
    if not changes and not moved_bytes:
        return None
    return MemoryStage(facts.plugged_bytes + moved_bytes, changes)


def _changes(
    devices: Iterable[VmDevice],
    goals: Iterable[CellGoal],
    sizes: Mapping[int, int],
    definition: Definition,
) -> tuple[SetRequested, ...]:
    found = [(goal, _device(devices, goal.node)) for goal in goals if goal.node in sizes]
    wanted = [
        (device, sizes[goal.node] - goal.boot_bytes) for goal, device in found if device is not None
    ]
    return tuple(
        SetRequested(device.alias, requested_bytes, definition)
        for device, requested_bytes in wanted
        if device.requested_bytes != requested_bytes
    )


def _refusal(
    facts: MemoryFacts, target: MemoryTarget, goals: Iterable[CellGoal]
) -> MemoryRefusal | None:
    most_bytes = target.max_bytes or facts.boot_bytes + sum(
        one.size_bytes for one in facts.devices if one.kind is DeviceKind.VIRTIO_MEM
    )
    for goal in goals:
        device = _device(facts.devices, goal.node)
        room_bytes = 0 if device is None else device.size_bytes
        others_bytes = target.wanted_bytes - goal.wanted_bytes
        largest_bytes = min(goal.boot_bytes + room_bytes, most_bytes - others_bytes)
        refusal = below_boot(goal) or _out_of_range(goal, largest_bytes)
        if refusal is not None:
            return refusal
    return None


def _out_of_range(goal: CellGoal, most_bytes: int) -> MemoryRefusal | None:
    wanted_bytes, least_bytes = goal.wanted_bytes, goal.boot_bytes
    if least_bytes <= wanted_bytes <= most_bytes and wanted_bytes % MEMORY_BLOCK_BYTES == 0:
        return None
    below = wanted_bytes // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES
    around = (below, below + MEMORY_BLOCK_BYTES)
    nearest = sorted({min(max(one, least_bytes), most_bytes) for one in around})
    return MemoryRefusal(
        f"{goal.label or 'the VM'} can have between {least_bytes} and {most_bytes} bytes of memory"
        f" in steps of 2 MiB, not {wanted_bytes}",
        tuple(nearest),
    )
