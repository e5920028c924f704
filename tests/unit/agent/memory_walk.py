"""A domain's memory that follows plans step by step, and checks what holds after each of them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from livesize.agent.resize.plan import PodObservation, SetGroup
from livesize.agent.vm.memory.dimm_choice import SLOTS
from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.technologies import TECHNOLOGIES
from livesize.agent.vm.plan import (
    ConfirmMemory,
    HoldMemory,
    MarkSafe,
    RefuseMemory,
    VmFacts,
    VmPlan,
    VmTarget,
    plan_vm_resize,
)
from livesize.api.group_changes import SetMemory
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.api.vm_changes import (
    DeviceKind,
    PlugDevice,
    SetBalloon,
    SetRequested,
    UnplugDevice,
    VmDevice,
    VmNote,
    WriteNote,
)
from livesize.api.vm_size import CellSize, Technology, VmSize
from livesize.runtime.fake_vm_memory import KERNEL_BYTES, FakeMemory
from livesize.runtime.vm_config import VmConfig

MIB = 2**20
OVERHEAD = 200 * MIB
ROUNDS = 6


def size_of(boot: int, now: int, most: int, least: int = 0, **more: object) -> VmSize:
    """In MiB."""
    plain = VmSize(1, now * MIB, 4, most * MIB, boot * MIB, least * MIB)
    return replace(plain, **more)


def limits(memory_bytes: int) -> KernelLimits:
    return KernelLimits(1024, CPU_PERIOD_US, memory_bytes + OVERHEAD)


class MemoryWalk:
    """``group_bytes``: the limit of both groups without the overhead."""

    def __init__(self, name: str, size: VmSize) -> None:
        self.technology = TECHNOLOGIES[name]
        self.size = replace(size, boot_memory_bytes=self.technology.boot_bytes(size))
        size = self.size
        self.memory = FakeMemory(
            VmConfig(
                vcpus=1,
                max_vcpus=4,
                memory_bytes=size.memory_bytes,
                max_memory_bytes=size.max_memory_bytes,
                boot_memory_bytes=size.boot_memory_bytes,
                devices=self.technology.initial_devices(size),
                technology=Technology(name) if name in set(Technology) else Technology.AUTO,
                cells=size.boot_cells,
                balloon_bytes=self.technology.initial_balloon(size),
            )
        )
        self.note = VmNote()
        self.marked_bytes = 0
        held_bytes = max(self.memory.plugged_bytes, self.memory.requested_bytes)
        self.pod_bytes = self.vm_bytes = held_bytes
        self.cells = {cell.id: cell.memory_bytes for cell in size.cells}
        self.lowest_bytes = held_bytes

    def facts(self) -> MemoryFacts:
        memory = self.memory
        seen = memory.seen_by_node
        return MemoryFacts(
            boot_bytes=memory.boot_bytes,
            devices=memory.devices,
            persistent_devices=memory.persistent_devices,
            seen_bytes=sum(seen),
            available_bytes=max(0, sum(seen) - memory.used_bytes),
            noted_bytes=self.note.memory_bytes_being_updated,
            noted_base=self.note.base,
            boot_id="boot",
            balloon=memory.balloon,
            persistent_balloon=memory.persistent_balloon,
            cells=self.size.boot_cells,
            seen_by_node=seen,
        )

    def plan(self, wanted_bytes: int, cells: Mapping[int, int] | None = None) -> VmPlan:
        view = VmFacts(False, 1, 1, 1, self.facts())
        target = VmTarget(
            1,
            wanted_bytes,
            OVERHEAD,
            limits(wanted_bytes),
            technology=self.technology.name,
            cells=tuple(CellSize(*cell) for cell in sorted((cells or {}).items())),
            min_memory_bytes=self.size.min_memory_bytes,
            max_memory_bytes=self.size.max_memory_bytes,
        )
        groups = PodObservation(limits(self.pod_bytes), {"vm": limits(self.vm_bytes)})
        return plan_vm_resize(view, groups, target)

    def resize(self, wanted: int, cells: Mapping[int, int] | None = None) -> str:
        """To so many MiB; return why it did not come there, or nothing."""
        wanted_bytes = wanted * MIB
        named = {cell: size * MIB for cell, size in (cells or {}).items()}
        named = {**self.cells, **named} if self.cells else {}
        if self.cells and not cells:
            named = self.cells
        floor_bytes = min(self.memory.plugged_bytes, wanted_bytes)
        if self.cells.keys() == named.keys() != set():  # what one gives another may get later
            held = self.facts().plugged_by_cell
            floor_bytes = sum(min(held[cell], size) for cell, size in named.items())
        untouched = {cell: size for cell, size in self.cells.items() if named.get(cell) == size}
        for _ in range(ROUNDS):
            end = self._round(self.plan(wanted_bytes, named), floor_bytes, untouched)
            if end != "again":
                break
        if not end:
            self.cells = dict(named)
            self._check_arrived(wanted_bytes)
        return end

    def _round(self, plan: VmPlan, floor_bytes: int, untouched: Mapping[int, int]) -> str:
        for step in plan.steps:
            match step:
                case HoldMemory(why=why):
                    return why
                case RefuseMemory(refusal=refusal):
                    return refusal.why
                case SetGroup(container=name, after=SetMemory(limit_bytes=limit_bytes)):
                    self._set_group(name, (limit_bytes or 0) - OVERHEAD)
                case MarkSafe(limit_bytes=limit_bytes):
                    held_bytes = min(self.pod_bytes, self.vm_bytes) + OVERHEAD
                    assert held_bytes >= (limit_bytes or 0), "the mark would be refused"
                    self.marked_bytes = (limit_bytes or 0) - OVERHEAD
                case WriteNote(note=note):
                    self.note = note
                case SetRequested() | PlugDevice() | UnplugDevice() | SetBalloon():
                    self.memory.change(step)
                    assert self.memory.requested_bytes <= max(
                        self.marked_bytes, self.memory.plugged_bytes
                    ), "no more than was marked safe"
                case ConfirmMemory(requested_bytes=requested_bytes, is_last=is_last):
                    self.memory.settle()
                    self._check(floor_bytes, untouched)
                    if self.memory.plugged_bytes != requested_bytes:
                        return "the guest keeps it"
                    if is_last and (step.is_short or requested_bytes != step.wanted_bytes):
                        return "the guest cannot spare the rest"
                case _:
                    raise AssertionError(step)
            self._check(floor_bytes, untouched)
        return "again" if plan.steps else ""

    def _set_group(self, name: str | None, bytes_: int) -> None:
        if name is None:
            self.pod_bytes = bytes_
        else:
            self.vm_bytes = bytes_

    def _check(self, floor_bytes: int, untouched: Mapping[int, int]) -> None:
        memory = self.memory
        held_bytes = max(memory.plugged_bytes, memory.requested_bytes)
        assert held_bytes <= self.vm_bytes <= self.pod_bytes, "the groups hold it"
        assert memory.plugged_bytes >= floor_bytes, "no less than the smaller of old and new"
        assert memory.panics == 0, "the guest has what it needs"
        for devices in (memory.devices, memory.persistent_devices):
            assert len(dimms(devices)) <= SLOTS
            assert len({one.alias for one in devices}) == len(devices)
            least = [one.requested_bytes for one in devices if one.kind is DeviceKind.VIRTIO_MEM]
            assert memory.boot_bytes + sum(least) <= self.size.max_memory_bytes
        assert held_bytes <= self.size.max_memory_bytes, "no more than the maximum"
        if memory.balloon is not None and memory.balloon.requested_bytes < memory.boot_bytes:
            plugged = [one.current_bytes for one in memory.devices]
            assert not any(plugged), "never filled while anything is plugged in"
        held = self.facts().plugged_by_cell
        assert all(held[cell] == size for cell, size in untouched.items()), "only the named moves"

    def _check_arrived(self, wanted_bytes: int) -> None:
        memory = self.memory
        assert memory.requested_bytes == memory.plugged_bytes == wanted_bytes
        assert memory.persistent_bytes == wanted_bytes
        assert sizes(memory.devices) == sizes(memory.persistent_devices)
        assert self.pod_bytes == self.vm_bytes == wanted_bytes
        assert self.note == VmNote()
        if self.cells:
            assert self.facts().plugged_by_cell == self.cells
        assert sum(memory.seen_by_node) == wanted_bytes - KERNEL_BYTES


def dimms(devices: tuple[VmDevice, ...]) -> list[VmDevice]:
    return [one for one in devices if one.kind is DeviceKind.DIMM]


def sizes(devices: tuple[VmDevice, ...]) -> list[tuple[int, int, int]]:
    """The same for two sets of devices that do not differ but in their names."""
    return sorted((one.node, one.size_bytes, one.requested_bytes) for one in devices)
