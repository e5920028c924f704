"""What only a real guest shows of cells, topologies, DIMMs and balloons.

The guests are those of tests/contract/test_vm_memory_contract.py, restored for each test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import pytest

from livesize.api.vm_changes import (
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    UnplugDevice,
    VmBalloon,
    VmNote,
    VmTune,
    WriteNote,
)
from livesize.runtime.libvirt.facts import parse_facts
from livesize.runtime.libvirt.runtime import LibvirtRuntime
from livesize.runtime.vm import VmView
from vms.configs import DIMM, WITH_BALLOON, WITH_CELLS, WITH_DIMMS
from vms.machines import begin_in_guest, in_guest, libvirt_domain
from vms.real import BOOT_SECONDS, MIB, UID
from vms.saved import hears_agent, saved_guest

pytestmark = pytest.mark.vms

_PLACES = """\
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
  cat $cpu/topology/physical_package_id $cpu/topology/core_id; ls -d $cpu/node*
done"""


@pytest.fixture
async def dimms(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> AsyncIterator[LibvirtRuntime]:
    saved = await asyncio.to_thread(saved_guest, request, tmp_path_factory, not_run, WITH_DIMMS)
    async with saved.running() as runtime:
        yield runtime


@pytest.fixture
async def ballooned(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> AsyncIterator[LibvirtRuntime]:
    saved = await asyncio.to_thread(saved_guest, request, tmp_path_factory, not_run, WITH_BALLOON)
    async with saved.running() as runtime:
        yield runtime


@pytest.fixture
async def cells(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> AsyncIterator[LibvirtRuntime]:
    saved = await asyncio.to_thread(saved_guest, request, tmp_path_factory, not_run, WITH_CELLS)
    async with saved.running() as runtime:
        yield runtime


def seen(view: VmView) -> int:
    return view.guest.memory_seen_bytes if view.guest else 0


def by_node(view: VmView) -> tuple[int, ...]:
    return view.guest.memory_by_node if view.guest else ()


def left(view: VmView) -> int:
    assert view.balloon is not None
    return view.balloon.current_bytes


async def test_the_guest_sees_sockets_and_cores_and_which_cell_they_are_in(
    cells: LibvirtRuntime,
) -> None:
    await cells.change_vm(UID, PlugVcpus(4))
    view = await cells.wait_vm(
        UID, lambda view: bool(view.guest and view.guest.vcpus_online == 4), 60
    )
    assert view.created_vcpus == 4
    words = (await in_guest(cells, _PLACES)).split()
    sockets, cores, nodes = words[0::3], words[1::3], [word[-1] for word in words[2::3]]
    assert sockets == ["0", "0", "1", "1"]
    assert cores == ["0", "1", "0", "1"]
    assert nodes == ["0", "0", "1", "1"], "whole sockets, in equal blocks"


async def test_a_guest_with_an_agent_alone_says_what_each_node_has(
    cells: LibvirtRuntime,
) -> None:
    told = by_node(await cells.refresh_vm(UID))
    vm = cells._require_vm(UID)
    vm._observer.guest.close()  # as for an agent that is started now: nobody answers on the line
    vm._observer.guest.open = lambda _path: None  # type: ignore[method-assign]
    await cells.change_vm(UID, SetRequested("ua-memory1", 64 * MIB))
    grown = (told[0], told[1] + 64 * MIB)
    view = await cells.wait_vm(UID, lambda view: by_node(view) == grown, BOOT_SECONDS)
    assert by_node(view) == grown
    assert not vm._observer.guest.speaks_up


async def test_a_dimm_beside_a_balloon_is_not_what_the_balloon_leaves(
    ballooned: LibvirtRuntime,
) -> None:
    """QEMU counts it into its target: one that leaves it out would take it away again."""
    before = await ballooned.refresh_vm(UID)
    await ballooned.change_vm(UID, SetBalloon(640 * MIB))
    await ballooned.wait_vm(UID, lambda view: left(view) == 640 * MIB, 60)
    await ballooned.change_vm(UID, PlugDevice(DIMM, 128 * MIB))
    view = await ballooned.wait_vm(UID, lambda view: seen(view) == seen(before), 60)
    assert (seen(view), view.balloon) == (seen(before), VmBalloon(640 * MIB, 640 * MIB))
    await ballooned.change_vm(UID, SetBalloon(704 * MIB))
    view = await ballooned.wait_vm(UID, lambda view: seen(view) == seen(before) + 64 * MIB, 60)
    assert (seen(view), view.balloon) == (seen(before) + 64 * MIB, VmBalloon(*2 * [704 * MIB]))
    await ballooned.change_vm(UID, UnplugDevice(DIMM))
    view = await ballooned.wait_vm(UID, lambda view: seen(view) == seen(before) - 64 * MIB, 60)
    assert (len(view.devices), view.balloon) == (1, VmBalloon(*2 * [704 * MIB]))


async def test_a_balloon_that_another_program_moves_is_seen(ballooned: LibvirtRuntime) -> None:
    domain = await asyncio.to_thread(libvirt_domain, ballooned)
    await asyncio.to_thread(domain.setMemoryFlags, 700 * 1024, 1)
    view = await ballooned.wait_vm(
        UID, lambda view: view.balloon == VmBalloon(700 * MIB, 700 * MIB), 30
    )
    assert view.requested_memory_bytes == 700 * MIB, "the planner sees what it did not ask for"


async def test_a_guest_that_reboots_falls_to_its_size_again(ballooned: LibvirtRuntime) -> None:
    before = await ballooned.refresh_vm(UID)
    assert before.guest is not None
    first = before.guest.boot_id
    await ballooned.change_vm(UID, SetBalloon(640 * MIB))
    await ballooned.wait_vm(UID, lambda view: left(view) == 640 * MIB, 60)
    await begin_in_guest(ballooned, "shutdown -r now")
    view = await ballooned.wait_vm(
        UID,
        lambda view: bool(
            hears_agent(view)
            and view.guest
            and view.guest.boot_id != first
            and left(view) == 640 * MIB
        ),
        BOOT_SECONDS,
    )
    assert view.guest is not None
    assert view.guest.boot_id != first
    assert view.balloon == VmBalloon(640 * MIB, 640 * MIB)
    assert seen(view) == seen(before) - 128 * MIB


async def test_what_is_plugged_in_survives_a_reboot(dimms: LibvirtRuntime) -> None:
    before = await dimms.refresh_vm(UID)
    assert before.guest is not None
    first = before.guest.boot_id
    await dimms.change_vm(UID, PlugDevice(DIMM, 256 * MIB))
    await dimms.wait_vm(UID, lambda view: seen(view) > seen(before), 60)
    await begin_in_guest(dimms, "shutdown -r now")
    view = await dimms.wait_vm(
        UID, lambda view: bool(view.guest and view.guest.boot_id != first), BOOT_SECONDS
    )
    assert seen(view) == seen(before) + 256 * MIB
    await dimms.change_vm(UID, UnplugDevice(DIMM))
    view = await dimms.wait_vm(
        UID, lambda view: not view.devices and seen(view) == seen(before), 60
    )
    assert view.devices == ()


async def test_an_unplug_does_not_hold_up_what_else_is_to_be_done(dimms: LibvirtRuntime) -> None:
    """libvirt's own way would wait five seconds for the guest."""
    await dimms.change_vm(UID, PlugDevice(DIMM, 128 * MIB))
    await dimms.wait_vm(UID, lambda view: view.plugged_memory_bytes == 640 * MIB, 30)
    domain = await asyncio.to_thread(libvirt_domain, dimms)
    await asyncio.to_thread(domain.suspend)
    try:
        async with asyncio.timeout(2):
            await dimms.change_vm(UID, UnplugDevice(DIMM))
            await dimms.change_vm(UID, PlugVcpus(2))
    finally:
        await asyncio.to_thread(domain.resume)
    view = await dimms.wait_vm(UID, lambda view: not view.devices, 30)
    assert (view.devices, view.plugged_vcpus) == ((), 2)


async def test_note_and_cpu_time_stand_in_the_persistent_definition(dimms: LibvirtRuntime) -> None:
    """Of the running VM, its group holds the CPU time."""
    tune, note = VmTune(512, 150_000, 100_000), VmNote(640 * MIB)
    await dimms.change_vm(UID, TuneCpu(tune))
    await dimms.change_vm(UID, WriteNote(note))
    domain = await asyncio.to_thread(libvirt_domain, dimms)
    live, stored = [parse_facts(await asyncio.to_thread(domain.XMLDesc, flag)) for flag in (0, 2)]
    assert (live.note, stored.note) == (note, note)
    assert (live.tune, stored.tune) == (VmTune(), tune)
    await dimms.change_vm(UID, TuneCpu(VmTune()))
