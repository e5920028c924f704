"""Memory technologies: virtio-mem's own rules, and that another one is one class and one row.

The other one stands in for DIMMs: whole devices of 256 MiB, one change at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryTarget,
    MemoryWait,
)
from livesize.agent.vm.memory.technologies import DEFAULT_TECHNOLOGY, TECHNOLOGIES
from livesize.agent.vm.memory.virtio_mem import ALIAS, VirtioMem
from livesize.api.resize_state import resize_state
from livesize.api.vm_changes import (
    Definition,
    DeviceKind,
    PlugDevice,
    SetRequested,
    UnplugDevice,
    VmDevice,
)
from livesize.api.vm_size import VmSize
from unit.agent.vm_world import MIB, VmWorld
from virtual_time import virtual_time

pytestmark = virtual_time

SIZE = VmSize(1, 768 * MIB, 4, 2050 * MIB, 512 * MIB)


def memory(requested: int, current: int | None = None, available: int = 4096) -> MemoryFacts:
    """Of a VM that boots with 512 MiB; sizes in MiB."""
    held = requested if current is None else current
    device = VmDevice(
        ALIAS,
        DeviceKind.VIRTIO_MEM,
        0,
        1664 * MIB,
        (requested - 512) * MIB,
        (held - 512) * MIB,
    )
    return MemoryFacts(512 * MIB, (device,), (device,), held * MIB, available * MIB)


def plan(facts: MemoryFacts, wanted: int, most: int = 4096) -> MemoryDecision:
    return VirtioMem().plan(facts, MemoryTarget(wanted * MIB, most * MIB))


def test_a_domain_starts_with_one_device_of_whole_sections() -> None:
    (device,) = VirtioMem().initial_devices(SIZE)
    assert device == VmDevice(ALIAS, DeviceKind.VIRTIO_MEM, 0, 13 * 128 * MIB, 256 * MIB)


def test_a_vm_that_boots_with_all_it_can_have_has_no_device() -> None:
    whole = replace(SIZE, memory_bytes=512 * MIB, max_memory_bytes=512 * MIB)
    assert VirtioMem().initial_devices(whole) == ()


def test_the_device_is_named_in_both_definitions() -> None:
    assert plan(memory(512), 1024) == MemoryPlan(
        1024 * MIB,
        (SetRequested(ALIAS, 512 * MIB),),
        (SetRequested(ALIAS, 512 * MIB, Definition.PERSISTENT),),
    )
    assert plan(memory(1024), 1024) == MemoryPlan(1024 * MIB)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        pytest.param(511, (512,), id="below what it boots with"),
        pytest.param(1025, (1024, 1026), id="not whole blocks"),
        pytest.param(4096, (2176,), id="more than its device holds"),
    ],
)
def test_a_size_that_cannot_be_had_is_refused_with_the_nearest(
    wanted: int, nearest: tuple[int, ...]
) -> None:
    refusal = plan(memory(768), wanted)
    assert isinstance(refusal, MemoryRefusal)
    assert refusal.nearest_bytes == tuple(size * MIB for size in nearest)
    assert f"not {wanted * MIB}" in refusal.why
    for size in nearest:
        assert isinstance(plan(memory(768), size), MemoryPlan)


def test_a_vm_without_a_device_can_only_stay_as_it_is() -> None:
    bare = MemoryFacts(512 * MIB, (), (), 400 * MIB, 300 * MIB)
    assert plan(bare, 512) == MemoryPlan(512 * MIB)
    assert isinstance(plan(bare, 514), MemoryRefusal)


@given(
    requested=st.integers(256, 1000),
    current=st.integers(256, 1000),
    wanted=st.integers(256, 1000),
    available=st.integers(0, 2000),
)
def test_the_guest_never_has_less_than_the_smaller_of_old_and_new(
    requested: int, current: int, wanted: int, available: int
) -> None:
    facts = memory(2 * requested, 2 * current, available)
    decision = plan(facts, 2 * wanted)
    assert isinstance(decision, MemoryPlan)
    assert decision.requested_bytes >= min(facts.plugged_bytes, 2 * wanted * MIB)
    for change in decision.live:
        assert isinstance(change, SetRequested)
        assert facts.boot_bytes + change.requested_bytes == decision.requested_bytes


class WholeDevices:
    """Grows and shrinks by whole devices; does not disturb a change under way (decisions 35)."""

    name = "whole-devices"
    step_bytes = 256 * MIB

    def boot_bytes(self, size: VmSize) -> int:
        return size.boot_memory_bytes

    def initial_balloon(self, _size: VmSize) -> int | None:
        return None

    def initial_devices(self, size: VmSize) -> tuple[VmDevice, ...]:
        count = (size.memory_bytes - size.boot_memory_bytes) // self.step_bytes
        step = self.step_bytes
        return tuple(
            VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, 0, step, step) for number in range(count)
        )

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        wanted, noted = target.wanted_bytes, facts.noted_bytes
        count, rest = divmod(wanted - facts.boot_bytes, self.step_bytes)
        if rest or count < 0:
            below = wanted - rest
            return MemoryRefusal(f"no devices make {wanted}", (below, below + self.step_bytes))
        if noted is not None and wanted != noted != facts.plugged_bytes:
            return MemoryWait("the guest does not let go of a device yet")
        live = self._changes(facts.devices, count, Definition.LIVE)
        return MemoryPlan(
            wanted, live, self._changes(facts.persistent_devices, count, Definition.PERSISTENT)
        )

    def _changes(
        self, devices: tuple[VmDevice, ...], count: int, definition: Definition
    ) -> tuple[PlugDevice | UnplugDevice, ...]:
        there = [device.alias for device in devices]
        wanted = [f"ua-dimm{number}" for number in range(count)]
        plugs = [one for one in wanted if one not in there]
        unplugs = [one for one in there if one not in wanted]
        return (
            *(PlugDevice(one, self.step_bytes, definition=definition) for one in plugs),
            *(UnplugDevice(one, definition) for one in reversed(unplugs)),
        )


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VmWorld]:
    monkeypatch.setitem(TECHNOLOGIES, DEFAULT_TECHNOLOGY, WholeDevices())
    made = VmWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()
    assert made.violations == []


def aliases(world: VmWorld, uid: str) -> list[str]:
    return [device.alias for device in world.vm(uid).view().devices]


async def test_another_technology_grows_and_shrinks_by_devices(world: VmWorld) -> None:
    uid = await world.run_vm("db", memory="512Mi")
    assert aliases(world, uid) == ["ua-dimm0"]
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    assert aliases(world, uid) == ["ua-dimm0", "ua-dimm1", "ua-dimm2"]
    assert PlugDevice("ua-dimm1", 256 * MIB, definition=Definition.PERSISTENT) in world.history
    assert world.group_bytes(uid) == (1024 * MIB, 1024 * MIB)
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Done")
    assert aliases(world, uid) == ["ua-dimm0"], "up and down again: the same devices"
    assert world.vm(uid).view().persistent_memory_bytes == 512 * MIB
    assert world.group_bytes(uid) == (512 * MIB, 512 * MIB)


async def test_its_refusal_names_the_nearest_sizes_and_touches_nothing(world: VmWorld) -> None:
    uid = await world.run_vm("db", memory="512Mi")
    await world.api.resize("db", "vm", memory="600Mi")
    await world.phase("db", "Error")
    message = resize_state(world.api.pod("db"))["message"]
    assert f"the nearest sizes are {512 * MIB} and {768 * MIB} bytes" in message
    assert world.history == []
    assert world.group_bytes(uid) == (512 * MIB, 512 * MIB)


async def test_it_waits_for_a_change_under_way_and_then_follows_the_newest(
    world: VmWorld,
) -> None:
    uid = await world.run_vm("db", memory="1Gi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.until(lambda: UnplugDevice("ua-dimm1") in world.history, "it was asked")
    await world.api.resize("db", "vm", memory="768Mi")

    def waits() -> bool:
        return "does not let go" in str(resize_state(world.api.pod("db")).get("message"))

    await world.until(waits, "the condition says what it waits for")
    assert aliases(world, uid) == ["ua-dimm0", "ua-dimm1", "ua-dimm2"]
    world.vm(uid).release()
    await world.phase("db", "Done")
    assert aliases(world, uid) == ["ua-dimm0", "ua-dimm1"]
