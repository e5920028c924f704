"""What every runtime of virtual machines promises of memory technologies, fake and real alike.

Three guests, each booted once and restored for each test: one that DIMMs are plugged into, one with
a balloon, and one with two NUMA cells of which each has a device and room for DIMMs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import msgspec
import pytest

from livesize.api.vm_changes import (
    Definition,
    DeviceKind,
    OnlineVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    Unplug,
    UnplugDevice,
    VmBalloon,
    VmChange,
    VmDevice,
    VmNote,
    VmTune,
    WriteNote,
    device_named,
)
from livesize.api.vm_size import CellSize, MemoryBase, Technology, VmTopology
from livesize.runtime.interface import GoneError, RuntimeCallError
from livesize.runtime.vm import VmRuntime, VmView
from livesize.runtime.vm_config import VmConfig
from vms.configs import CELLS, DIMM, WITH_BALLOON, WITH_CELLS, WITH_DIMMS
from vms.machines import MACHINES, Machine, running
from vms.real import BOOT_SECONDS, MIB, UID, pod_config, vm_config
from vms.saved import hears_agent


def _machine(vm: VmConfig) -> Callable[..., AsyncIterator[Machine]]:
    async def machine(
        request: pytest.FixtureRequest,
        tmp_path_factory: pytest.TempPathFactory,
        not_run: Callable[[str], NoReturn],
    ) -> AsyncIterator[Machine]:
        async with running(request, tmp_path_factory, not_run, vm) as opened:
            yield opened

    return machine


dimms = pytest.fixture(params=MACHINES)(_machine(WITH_DIMMS))
ballooned = pytest.fixture(params=MACHINES)(_machine(WITH_BALLOON))
cells = pytest.fixture(params=MACHINES)(_machine(WITH_CELLS))


def seen(view: VmView) -> int:
    return view.guest.memory_seen_bytes if view.guest else 0


def by_node(view: VmView) -> tuple[int, ...]:
    return view.guest.memory_by_node if view.guest else ()


def boot_id(view: VmView) -> str:
    assert view.guest is not None
    return view.guest.boot_id


def unplug_of(view: VmView, alias: str = DIMM) -> Unplug | None:
    """None: there is no such device."""
    device = device_named(view.devices, alias)
    return None if device is None else device.unplug


async def changed(
    runtime: VmRuntime, change: VmChange, holds: Callable[[VmView], bool], seconds: float = 60
) -> VmView:
    await runtime.change_vm(UID, change)
    view = await runtime.wait_vm(UID, holds, seconds)
    assert holds(view), f"after {change}: {view}"
    return view


# DIMMs.


async def test_a_dimm_is_the_guests_as_a_whole_and_goes_as_a_whole(dimms: Machine) -> None:
    runtime = dimms.runtime
    before = await runtime.refresh_vm(UID)
    assert (before.technology, before.devices) == (Technology.DIMM, ())
    view = await changed(
        runtime,
        PlugDevice(DIMM, 384 * MIB),
        lambda view: seen(view) == seen(before) + 384 * MIB,
    )
    size = 384 * MIB
    assert view.devices == (VmDevice(DIMM, DeviceKind.DIMM, 0, size, size, size),)
    assert view.requested_memory_bytes == view.plugged_memory_bytes == (512 + 384) * MIB
    assert (view.persistent_devices, view.persistent_memory_bytes) == ((), 512 * MIB)
    view = await changed(
        runtime,
        UnplugDevice(DIMM),
        lambda view: not view.devices and seen(view) == seen(before),
    )
    assert view.plugged_memory_bytes == 512 * MIB
    assert boot_id(view) == boot_id(before)


async def test_the_persistent_definition_is_changed_by_itself(dimms: Machine) -> None:
    runtime = dimms.runtime
    for alias in (DIMM, "ua-dimm1"):
        await runtime.change_vm(UID, PlugDevice(alias, 128 * MIB, 0, Definition.PERSISTENT))
    view = await runtime.refresh_vm(UID)
    size = 128 * MIB
    assert view.persistent_devices == tuple(
        VmDevice(alias, DeviceKind.DIMM, 0, size, size) for alias in (DIMM, "ua-dimm1")
    )
    assert view.devices == ()
    await runtime.change_vm(UID, UnplugDevice(DIMM, Definition.PERSISTENT))
    view = await runtime.refresh_vm(UID)
    assert [device.alias for device in view.persistent_devices] == ["ua-dimm1"]
    await runtime.change_vm(UID, UnplugDevice("ua-dimm1", Definition.PERSISTENT))


async def test_an_unplug_is_pending_until_the_guest_gets_to_it(dimms: Machine) -> None:
    """Asked once more meanwhile, nothing is different."""
    runtime = dimms.runtime
    before = await changed(
        runtime, PlugDevice(DIMM, 128 * MIB), lambda view: seen(view) > 512 * MIB
    )
    await dimms.hold_guest()
    try:
        for _ in range(2):
            await runtime.change_vm(UID, UnplugDevice(DIMM))
            view = await runtime.wait_vm(UID, lambda view: not view.devices, 0.3)
            assert unplug_of(view) is Unplug.PENDING
            assert view.requested_memory_bytes == view.plugged_memory_bytes == 640 * MIB
    finally:
        await dimms.let_guest_go()
    view = await runtime.wait_vm(UID, lambda view: not view.devices and hears_agent(view), 30)
    assert view.devices == ()
    assert seen(view) == seen(before) - 128 * MIB


async def test_a_guest_that_keeps_it_rejects_the_unplug_each_time(dimms: Machine) -> None:
    runtime = dimms.runtime
    await dimms.keep_dimms()
    await changed(runtime, PlugDevice(DIMM, 128 * MIB), lambda view: seen(view) > 512 * MIB)
    for _ in range(2):
        view = await changed(
            runtime, UnplugDevice(DIMM), lambda view: unplug_of(view) is Unplug.REJECTED, 30
        )
        assert view.plugged_memory_bytes == 640 * MIB
    assert seen(await runtime.refresh_vm(UID)) > 512 * MIB
    with pytest.raises(RuntimeCallError):
        await runtime.change_vm(UID, UnplugDevice("ua-dimm1"))
    after = runtime.vm(UID)
    assert after is not None
    assert unplug_of(after) is Unplug.REJECTED


async def test_a_new_agent_knows_of_no_unplug(dimms: Machine) -> None:
    await changed(dimms.runtime, PlugDevice(DIMM, 128 * MIB), lambda view: seen(view) > 512 * MIB)
    await dimms.hold_guest()
    try:
        await dimms.runtime.change_vm(UID, UnplugDevice(DIMM))
        runtime = await dimms.restart_agent()
        view = runtime.vm(UID)
        assert view is not None
        assert unplug_of(view) is Unplug.NONE
    finally:
        await dimms.let_guest_go()
    view = await runtime.wait_vm(UID, lambda view: not view.devices, 30)
    assert view.devices == (), "and hears what becomes of it"


DIMMS_REFUSED: tuple[VmChange, ...] = (
    PlugDevice(DIMM, 0),
    PlugDevice(DIMM, 64 * MIB),
    PlugDevice(DIMM, 200 * MIB),
    PlugDevice(DIMM, 1152 * MIB),  # above the maximum
    PlugDevice(DIMM, 128 * MIB, node=1),
    PlugDevice("ua-dimm0", 64 * MIB, 0, Definition.PERSISTENT),
    UnplugDevice(DIMM),
    SetRequested(DIMM, 0),
    SetBalloon(256 * MIB),
    SetBalloon(256 * MIB, Definition.PERSISTENT),
)


async def test_dimms_that_cannot_be_are_refused_and_change_nothing(dimms: Machine) -> None:
    before = await dimms.runtime.refresh_vm(UID)
    for change in DIMMS_REFUSED:
        with pytest.raises(RuntimeCallError):
            await dimms.runtime.change_vm(UID, change)
        after = await dimms.runtime.refresh_vm(UID)
        assert (after.devices, after.persistent_devices) == ((), ()), change
        assert seen(after) == seen(before), change


async def test_there_are_sixteen_slots(dimms: Machine) -> None:
    """In the persistent definition, where no guest has to take them."""
    runtime = dimms.runtime
    plugs = [
        PlugDevice(f"ua-dimm{number}", 128 * MIB, 0, Definition.PERSISTENT) for number in range(8)
    ]
    for plug in plugs:
        await runtime.change_vm(UID, plug)
    more = PlugDevice("ua-dimm8", 128 * MIB, 0, Definition.PERSISTENT)
    with pytest.raises(RuntimeCallError):
        await runtime.change_vm(UID, more)
    view = await runtime.refresh_vm(UID)
    assert view.persistent_memory_bytes == 1536 * MIB


# The balloon.


def left(view: VmView) -> int:
    assert view.balloon is not None
    return view.balloon.current_bytes


async def test_a_balloon_takes_and_gives_back_what_the_guest_booted_with(
    ballooned: Machine,
) -> None:
    runtime = ballooned.runtime
    before = await runtime.refresh_vm(UID)
    assert before.balloon == VmBalloon(768 * MIB, 768 * MIB)
    assert before.persistent_balloon == VmBalloon(768 * MIB)
    for left_mib in (512, 640, 768):
        wanted = seen(before) + (left_mib - 768) * MIB
        view = await changed(
            runtime,
            SetBalloon(left_mib * MIB),
            lambda view, wanted=wanted: seen(view) == wanted,  # type: ignore[misc]
        )
        assert view.balloon == VmBalloon(left_mib * MIB, left_mib * MIB)
        assert view.requested_memory_bytes == view.plugged_memory_bytes == left_mib * MIB
        assert view.persistent_balloon == VmBalloon(768 * MIB)
        assert boot_id(view) == boot_id(before)


async def test_the_next_starts_balloon_is_set_by_itself(ballooned: Machine) -> None:
    runtime = ballooned.runtime
    await runtime.change_vm(UID, SetBalloon(512 * MIB, Definition.PERSISTENT))
    view = await runtime.refresh_vm(UID)
    assert view.persistent_balloon == VmBalloon(512 * MIB)
    assert view.persistent_memory_bytes == 512 * MIB
    assert view.balloon == VmBalloon(768 * MIB, 768 * MIB)
    await runtime.change_vm(UID, SetBalloon(768 * MIB, Definition.PERSISTENT))


async def test_what_a_balloon_was_asked_for_is_known_before_the_guest_does_it(
    ballooned: Machine,
) -> None:
    """By the next agent too."""
    await ballooned.hold_guest()
    try:
        await ballooned.runtime.change_vm(UID, SetBalloon(640 * MIB))
        asked = VmBalloon(640 * MIB, 768 * MIB)
        assert (await ballooned.runtime.refresh_vm(UID)).balloon == asked
        runtime = await ballooned.restart_agent()
        view = runtime.vm(UID)
        assert view is not None
        assert view.balloon == asked
        assert view.requested_memory_bytes == 640 * MIB
    finally:
        await ballooned.let_guest_go()
    view = await runtime.wait_vm(UID, lambda view: left(view) == 640 * MIB, 60)
    assert view.balloon == VmBalloon(640 * MIB, 640 * MIB)


async def test_a_balloon_and_a_device_do_not_move_each_other(ballooned: Machine) -> None:
    runtime = ballooned.runtime
    before = await runtime.refresh_vm(UID)
    await changed(runtime, SetBalloon(640 * MIB), lambda view: left(view) == 640 * MIB)
    view = await changed(
        runtime,
        SetRequested("ua-memory0", 256 * MIB),
        lambda view: seen(view) == seen(before) + 128 * MIB,
    )
    assert view.balloon == VmBalloon(640 * MIB, 640 * MIB)
    assert view.plugged_memory_bytes == view.requested_memory_bytes == 896 * MIB


BALLOONS_REFUSED: tuple[VmChange, ...] = (
    SetBalloon(0),
    SetBalloon(770 * MIB),
    SetBalloon(513 * MIB),
    SetBalloon(1024 * MIB),
    SetBalloon(770 * MIB, Definition.PERSISTENT),
)


async def test_a_balloon_that_cannot_be_is_refused(ballooned: Machine) -> None:
    before = await ballooned.runtime.refresh_vm(UID)
    for change in BALLOONS_REFUSED:
        with pytest.raises(RuntimeCallError):
            await ballooned.runtime.change_vm(UID, change)
        after = await ballooned.runtime.refresh_vm(UID)
        assert (after.balloon, after.persistent_balloon) == (
            before.balloon,
            before.persistent_balloon,
        )


async def test_a_vm_falls_to_what_its_balloon_leaves_when_it_has_booted(
    ballooned: Machine,
) -> None:
    runtime = ballooned.runtime
    await runtime.stop_container(UID, "vm", 0)
    smaller = msgspec.structs.replace(
        WITH_BALLOON, memory_bytes=512 * MIB, balloon_bytes=512 * MIB, devices=()
    )
    await runtime.start_container(vm_config(attempt=1, vm=smaller))
    view = await runtime.wait_vm(
        UID, lambda view: hears_agent(view) and left(view) == 512 * MIB, BOOT_SECONDS
    )
    assert view.balloon == VmBalloon(512 * MIB, 512 * MIB)
    assert view.persistent_balloon == VmBalloon(512 * MIB)
    assert view.boot_memory_bytes == 768 * MIB
    assert (await runtime.refresh_vm(UID)).guest is not None


# Cells, and a topology.


async def test_a_vm_has_the_cells_it_was_given(cells: Machine) -> None:
    view = await cells.runtime.refresh_vm(UID)
    assert view.cells == CELLS
    assert view.boot_memory_bytes == view.plugged_memory_bytes == 512 * MIB
    assert view.max_memory_bytes == 1536 * MIB
    assert [device.node for device in view.devices] == [0, 1]
    first, second = by_node(view)
    assert 64 * MIB < first <= 256 * MIB
    assert 64 * MIB < second <= 256 * MIB
    assert first + second == seen(view)


async def test_only_the_cell_that_is_named_moves(cells: Machine) -> None:
    runtime = cells.runtime
    before = await runtime.refresh_vm(UID)
    first, second = by_node(before)
    for more_mib in (256, 2, 0):
        wanted = (first, second + more_mib * MIB)
        view = await changed(
            runtime,
            SetRequested("ua-memory1", more_mib * MIB),
            lambda view, wanted=wanted: by_node(view) == wanted,  # type: ignore[misc]
        )
        assert view.devices[0] == before.devices[0]
        assert view.devices[1].current_bytes == more_mib * MIB
    await changed(
        runtime,
        PlugDevice(DIMM, 128 * MIB, node=1),
        lambda view: by_node(view) == (first, second + 128 * MIB),
    )
    view = await changed(
        runtime,
        UnplugDevice(DIMM),
        lambda view: by_node(view) == (first, second) and len(view.devices) == 2,
    )
    assert boot_id(view) == boot_id(before)
    with pytest.raises(RuntimeCallError):
        await runtime.change_vm(UID, PlugDevice(DIMM, 128 * MIB, node=2))


async def test_vcpus_come_and_go_in_a_topology(cells: Machine) -> None:
    runtime = cells.runtime
    view = await runtime.refresh_vm(UID)
    assert view.topology == VmTopology(cores=2, threads=1)
    assert (view.plugged_vcpus, view.max_vcpus) == (2, 4)
    assert view.guest is not None
    assert view.guest.vcpus_online == 2

    def has(count: int) -> Callable[[VmView], bool]:
        return lambda view: view.guest is not None and view.guest.vcpus_online == count

    await changed(runtime, PlugVcpus(4), has(4))
    view = await changed(runtime, OnlineVcpus(2), has(2))
    assert view.plugged_vcpus == 4


# What is noted, and CPU time.


async def test_a_note_is_kept_and_a_new_start_has_none(dimms: Machine) -> None:
    note = VmNote(640 * MIB, MemoryBase(512 * MIB, 400 * MIB, "b", (512 * MIB,), (400 * MIB,)))
    await dimms.runtime.change_vm(UID, WriteNote(note))
    runtime = await dimms.restart_agent()
    view = runtime.vm(UID)
    assert view is not None
    assert view.note == note
    await runtime.stop_container(UID, "vm", 0)
    await runtime.start_container(vm_config(attempt=1, vm=WITH_DIMMS))
    view = await runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
    assert view.note == VmNote()


async def test_the_share_of_cpu_time_stands_in_the_definition(dimms: Machine) -> None:
    runtime = dimms.runtime
    assert (await runtime.refresh_vm(UID)).tune == VmTune()
    for tune in (
        VmTune(shares=512, quota_us=150_000, period_us=100_000),
        VmTune(shares=2048),
        VmTune(),
    ):
        view = await changed(runtime, TuneCpu(tune), lambda view: view.tune == view.persistent_tune)
        assert view.tune == tune
    for wrong in (VmTune(shares=1), VmTune(quota_us=10), VmTune(period_us=2_000_000)):
        with pytest.raises(RuntimeCallError):
            await runtime.change_vm(UID, TuneCpu(wrong))
    assert (await runtime.refresh_vm(UID)).tune == VmTune()


BROKEN: dict[str, dict[str, object]] = {
    "cells that do not add up": {"cells": (CellSize(0, 256 * MIB), CellSize(1, 128 * MIB))},
    "cells of other numbers": {"cells": (CellSize(1, 256 * MIB), CellSize(2, 256 * MIB))},
    "a device in no cell": {"cells": CELLS[:1], "boot_memory_bytes": 256 * MIB},
    "vCPUs that fill no socket": {"topology": VmTopology(cores=3)},
    "a balloon that leaves more than there is": {"balloon_bytes": 514 * MIB},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN)
async def test_a_vm_that_makes_no_sense_is_not_made(
    cells: Machine, changes: dict[str, object]
) -> None:
    runtime = cells.runtime
    await runtime.create_pod(pod_config("other"))
    broken = msgspec.structs.replace(WITH_CELLS, **changes)
    with pytest.raises(RuntimeCallError, match="a VM cannot be made with"):
        await runtime.start_container(vm_config("other", vm=broken))
    with pytest.raises(GoneError):
        await runtime.refresh_vm("other")
    await runtime.remove_pod("other")
