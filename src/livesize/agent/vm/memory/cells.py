"""Where memory is to come and to go, NUMA cell by NUMA cell. Pure.

A VM without cells is one whose only cell is node 0. Cells that are to have more grow before others
shrink, where the groups hold both at once; else they shrink first.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.interface import MemoryRefusal, MemoryStage, MemoryTarget
from livesize.api.quantity import format_memory
from livesize.api.vm_changes import VmDevice
from livesize.api.vm_size import CellSize, VmSize


class CellGoal(msgspec.Struct, frozen=True):
    """``label``: how it is called in a sentence; empty: the VM as a whole."""

    node: int
    boot_bytes: int
    wanted_bytes: int
    plugged_bytes: int
    label: str = ""

    @property
    def gain_bytes(self) -> int:
        """What it is to get beyond what it has; less than zero: to give back."""
        return self.wanted_bytes - self.plugged_bytes


def cell_goals(facts: MemoryFacts, target: MemoryTarget) -> tuple[CellGoal, ...] | MemoryRefusal:
    """Those that are to get the most come first."""
    if not facts.cells:
        if target.cells:
            return MemoryRefusal("the VM was started without NUMA cells: it has none to change")
        return (CellGoal(0, facts.boot_bytes, target.wanted_bytes, facts.plugged_bytes),)
    wanted = {cell.id: cell.memory_bytes for cell in target.cells}
    held = facts.plugged_by_cell
    if not wanted and target.wanted_bytes == sum(held.values()):
        wanted = held
    if wanted.keys() != held.keys():
        cells = ", ".join(str(cell.id) for cell in facts.cells)
        return MemoryRefusal(
            f"the VM has the NUMA cells {cells}, and not each of them has a size to come to;"
            " name the cell that is to change in spec.virtualMachine.numa.cells"
        )
    goals = [
        CellGoal(
            cell.id,
            cell.memory_bytes,
            wanted[cell.id],
            held[cell.id],
            f"NUMA cell {cell.id} of the VM",
        )
        for cell in facts.cells
    ]
    return tuple(sorted(goals, key=lambda goal: -goal.gain_bytes))


def below_boot(goal: CellGoal) -> MemoryRefusal | None:
    """A cell keeps what it boots with: the balloon does not know cells."""
    if not goal.label or goal.wanted_bytes >= goal.boot_bytes:
        return None
    return MemoryRefusal(
        f"{goal.label} boots with {goal.boot_bytes} bytes and cannot have less, not"
        f" {goal.wanted_bytes} ({format_memory(goal.wanted_bytes)})",
        (goal.boot_bytes,),
    )


def in_order(
    facts: MemoryFacts, target: MemoryTarget, grow: MemoryStage | None, shrink: MemoryStage | None
) -> tuple[tuple[MemoryStage, ...], MemoryStage]:
    """Stages to be confirmed first, and the last one. Either is made as if it came alone. Growth
    for which the groups have no room yet waits until enough was given back."""
    nothing = MemoryStage(facts.plugged_bytes)
    if grow is None:
        return (), shrink or nothing
    covered_bytes = max(target.most_bytes, target.wanted_bytes)
    if shrink is None:
        is_short = grow.requested_bytes > covered_bytes
        return (), replace(nothing, is_short=True) if is_short else grow
    last_bytes = grow.requested_bytes + shrink.requested_bytes - facts.plugged_bytes
    if grow.requested_bytes <= covered_bytes:
        return (grow,), MemoryStage(last_bytes, shrink.live)
    if last_bytes > covered_bytes:
        return (), replace(shrink, is_short=True)
    return (shrink,), MemoryStage(last_bytes, grow.live)


def initial_cells(size: VmSize) -> tuple[tuple[CellSize, int], ...]:
    """What each cell of a new domain boots with, and what it has beyond that."""
    if not size.cells:
        boot = CellSize(0, size.boot_memory_bytes)
        return ((boot, max(0, size.memory_bytes - size.boot_memory_bytes)),)
    now = {cell.id: cell.memory_bytes for cell in size.cells}
    return tuple(
        (cell, max(0, now.get(cell.id, cell.memory_bytes) - cell.memory_bytes))
        for cell in size.boot_cells
    )


def on_node(devices: Iterable[VmDevice], node: int) -> tuple[VmDevice, ...]:
    return tuple(device for device in devices if device.node == node)
