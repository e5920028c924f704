"""What every runtime of virtual machines promises, fake and real alike.

Each test has a machine with one VM at its usual size: one vCPU, 512 MiB. A real guest is booted
once and restored for each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

import msgspec
import pytest

from livesize.agent.vm.memory.virtio_mem import ALIAS
from livesize.api.group_changes import SetCpus, SetMemory
from livesize.api.vm_changes import (
    Definition,
    DeviceKind,
    OnlineVcpus,
    PersistVcpus,
    PinVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    UnplugDevice,
    VmChange,
    VmDevice,
    VmNote,
    WriteNote,
)
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    ImageMissingError,
    PodGroup,
    RuntimeCallError,
)
from livesize.runtime.vm import VmRuntime, VmView
from vms.machines import MACHINES, Machine, running
from vms.real import BOOT_SECONDS, LIMITS, MIB, UID, VM, have, pod_config, start_with
from vms.real import vm_config as config
from vms.saved import hears_agent
from vms.sizes import with_devices


@pytest.fixture(params=MACHINES)
async def machine(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> AsyncIterator[Machine]:
    async with running(request, tmp_path_factory, not_run, VM) as opened:
        yield opened


@pytest.fixture
def runtime(machine: Machine) -> VmRuntime:
    return machine.runtime


def online(view: VmView) -> int:
    return view.guest.vcpus_online if view.guest else 0


def seen(view: VmView) -> int:
    return view.guest.memory_seen_bytes if view.guest else 0


def plugged(view: VmView) -> int:
    return view.plugged_memory_bytes


async def change(
    runtime: VmRuntime, change: VmChange, holds: Callable[[VmView], bool], seconds: float = 60
) -> VmView:
    await runtime.change_vm(UID, change)
    view = await runtime.wait_vm(UID, holds, seconds)
    assert holds(view), f"after {change}: {view}"
    return view


async def use_vcpus(runtime: VmRuntime, count: int) -> VmView:
    return await change(runtime, OnlineVcpus(count), lambda view: online(view) == count)


async def have_memory(runtime: VmRuntime, total_bytes: int, before: VmView) -> VmView:
    """Until domain and guest both say so, to the byte."""
    wanted = seen(before) + total_bytes - plugged(before)
    return await change(
        runtime,
        have(total_bytes),
        lambda view: seen(view) == wanted and plugged(view) == total_bytes,
    )


def container(runtime: VmRuntime) -> ContainerView:
    pod = runtime.pod(UID)
    assert pod is not None
    (view,) = pod.containers
    return view


async def test_a_started_vm_runs_in_its_group_at_the_size_it_was_given(
    machine: Machine,
) -> None:
    runtime = machine.runtime
    view = await runtime.refresh_vm(UID)
    assert view.running
    assert (view.plugged_vcpus, view.persistent_vcpus, view.max_vcpus) == (1, 1, 4)
    assert view.boot_memory_bytes == view.plugged_memory_bytes == 512 * MIB
    assert view.requested_memory_bytes == view.persistent_memory_bytes == 512 * MIB
    assert view.max_memory_bytes == 2048 * MIB
    assert online(view) == 1
    assert 256 * MIB < seen(view) < 512 * MIB
    assert runtime.vm(UID) is not None
    started = container(runtime)
    assert (started.phase, started.attempt, started.hash) == (ContainerPhase.RUNNING, 0, "h1")
    assert started.pid > 0
    read = runtime.read(ContainerGroup(UID, "vm"))
    assert read.limits == LIMITS
    assert 0 < read.memory_working_set_bytes <= read.memory_usage_bytes
    assert runtime.read_limits(PodGroup(UID)) == LIMITS


async def test_starting_it_again_is_harmless_and_another_start_is_refused(
    runtime: VmRuntime,
) -> None:
    assert (await runtime.start_container(config())).pid == container(runtime).pid
    with pytest.raises(RuntimeCallError, match="still runs"):
        await runtime.start_container(config(attempt=1))


async def test_plugged_vcpus_come_online_by_themselves_and_persist_only_when_told(
    runtime: VmRuntime,
) -> None:
    view = await change(runtime, PlugVcpus(2), lambda view: online(view) == 2)
    assert (view.plugged_vcpus, view.persistent_vcpus) == (2, 1)
    await runtime.change_vm(UID, PersistVcpus(3))
    view = await runtime.refresh_vm(UID)
    assert (view.plugged_vcpus, view.persistent_vcpus) == (2, 3)
    await runtime.change_vm(UID, PersistVcpus(1))


async def test_the_guest_uses_as_many_vcpus_as_it_is_told(runtime: VmRuntime) -> None:
    await change(runtime, PlugVcpus(4), lambda view: online(view) == 4)
    for count in (4, 1, 3):
        view = await use_vcpus(runtime, count)
        assert view.plugged_vcpus == 4


async def test_memory_comes_and_goes_to_the_byte_without_a_restart(runtime: VmRuntime) -> None:
    before = await runtime.refresh_vm(UID)
    assert before.guest is not None
    for total_mib in (1024, 514, 512):
        view = await have_memory(runtime, total_mib * MIB, before)
        assert view.requested_memory_bytes == total_mib * MIB
        assert view.persistent_memory_bytes == 512 * MIB
        assert view.guest is not None
        assert view.guest.boot_id == before.guest.boot_id
        assert view.guest.uptime_seconds >= before.guest.uptime_seconds


async def test_persisting_memory_leaves_the_running_guest_alone(runtime: VmRuntime) -> None:
    await runtime.change_vm(UID, start_with(1024 * MIB))
    view = await runtime.refresh_vm(UID)
    assert view.persistent_memory_bytes == 1024 * MIB
    assert view.requested_memory_bytes == view.plugged_memory_bytes == 512 * MIB
    await runtime.change_vm(UID, start_with(512 * MIB))


REFUSED: tuple[VmChange, ...] = (
    PlugVcpus(5),
    PersistVcpus(5),
    OnlineVcpus(5),
    have(2050 * MIB),
    have(511 * MIB),
    have(513 * MIB),
    have(256 * MIB),
    SetRequested("ua-other", 0),
    start_with(2050 * MIB),
    start_with(513 * MIB),
    PlugDevice("ua-dimm0", 128 * MIB),  # all it may have is that of its device
    PlugDevice(ALIAS, 128 * MIB),
    UnplugDevice("ua-dimm0"),
    UnplugDevice("ua-dimm0", Definition.PERSISTENT),
    SetBalloon(256 * MIB),
    PinVcpus(VmPins(((0,), (0,)), (0,))),
    PinVcpus(VmPins(((),), (0,))),
    PinVcpus(VmPins(((0,),))),
)


async def test_what_cannot_be_is_refused_and_changes_nothing(runtime: VmRuntime) -> None:
    before = await runtime.refresh_vm(UID)
    for change in REFUSED:
        with pytest.raises(RuntimeCallError):
            await runtime.change_vm(UID, change)
        assert sizes(await runtime.refresh_vm(UID)) == sizes(before), change


def sizes(view: VmView) -> tuple[object, ...]:
    return (
        *(view.plugged_vcpus, view.persistent_vcpus, online(view)),
        *(view.requested_memory_bytes, view.plugged_memory_bytes, view.persistent_memory_bytes),
        *(view.devices, view.persistent_devices, view.note, view.pins, view.persistent_pins),
    )


async def test_a_wait_ends_with_its_time(runtime: VmRuntime) -> None:
    began = asyncio.get_running_loop().time()
    view = await runtime.wait_vm(UID, lambda view: False, 0.2)
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert view.running


async def test_what_the_guest_does_is_told(runtime: VmRuntime) -> None:
    events = runtime.events()
    await runtime.change_vm(UID, have(640 * MIB))
    async with asyncio.timeout(20):
        while (view := runtime.vm(UID)) is None or plugged(view) < 640 * MIB:
            event = await anext(events)
            assert (event.pod_uid, event.container) == (UID, "vm")


async def test_a_new_agent_finds_the_vm_as_it_is(machine: Machine, runtime: VmRuntime) -> None:
    await runtime.change_vm(UID, WriteNote(VmNote(memory_bytes_being_updated=1024 * MIB)))
    before, started = await runtime.refresh_vm(UID), container(runtime)
    runtime = await machine.restart_agent()
    assert container(runtime) == started
    after = runtime.vm(UID)
    assert after is not None
    assert sizes(after) == sizes(before)
    assert after.note == VmNote(1024 * MIB)
    assert before.guest is not None
    assert after.guest is not None
    assert after.guest.boot_id == before.guest.boot_id
    await change(runtime, PlugVcpus(4), lambda view: view.plugged_vcpus == 4)
    await runtime.change_vm(UID, WriteNote(VmNote()))


async def test_groups_are_written_like_those_of_containers(runtime: VmRuntime) -> None:
    for group in (ContainerGroup(UID, "vm"), PodGroup(UID)):
        await runtime.write(group, SetMemory(2048 * MIB))
        assert runtime.read_limits(group).memory_limit_bytes == 2048 * MIB
    for group in (PodGroup(UID), ContainerGroup(UID, "vm")):
        await runtime.write(group, SetMemory(LIMITS.memory_limit_bytes))


async def test_it_is_pinned_as_it_is_told_and_a_new_vcpu_is_not_yet(machine: Machine) -> None:
    runtime = machine.runtime
    first, *_, last = cpus = runtime.cpus()
    assert (await runtime.refresh_vm(UID)).pins == UNPINNED
    await runtime.write(ContainerGroup(UID, "vm"), SetCpus(cpus))
    pins = VmPins(((last,),), (first, last))
    await change(runtime, PinVcpus(pins), lambda view: view.pins == view.persistent_pins == pins)
    view = await change(runtime, PlugVcpus(2), lambda view: online(view) == 2)
    assert view.pins == VmPins(((last,), ()), (first, last))
    runtime = await machine.restart_agent()
    pins = VmPins(((last,), (first,)), (first,))
    await change(runtime, PinVcpus(pins), lambda view: view.pins == view.persistent_pins == pins)
    assert (await runtime.refresh_vm(UID)).pins == pins


async def test_a_vm_that_is_not_there_is_gone(runtime: VmRuntime) -> None:
    assert runtime.vm("nobody") is None
    for call in (
        runtime.refresh_vm("nobody"),
        runtime.change_vm("nobody", PlugVcpus(2)),
        runtime.wait_vm("nobody", lambda view: True, 1),
    ):
        with pytest.raises(GoneError):
            await call


async def test_a_missing_image_is_said_and_nothing_is_left(runtime: VmRuntime) -> None:
    await runtime.create_pod(pod_config("other"))
    broken = msgspec.structs.replace(VM, kernel="no-such-kernel")
    with pytest.raises(ImageMissingError, match="no-such-kernel"):
        await runtime.start_container(config("other", vm=broken))
    pod = runtime.pod("other")
    assert pod is not None
    assert pod.containers == ()
    with pytest.raises(GoneError):
        runtime.read(ContainerGroup("other", "vm"))
    await runtime.remove_pod("other")


async def test_a_stopped_vm_has_ended_and_a_pod_that_runs_is_not_removed(
    runtime: VmRuntime,
) -> None:
    with pytest.raises(RuntimeCallError, match="still runs"):
        await runtime.remove_pod(UID)
    waiting = asyncio.get_running_loop().create_task(runtime.wait_vm(UID, lambda _: False, 60))
    await runtime.stop_container(UID, "vm", 20)
    view = container(runtime)
    assert view.phase is ContainerPhase.EXITED
    assert view.exit_code in {0, 143}  # it was asked, and ended by itself
    assert view.finished_at is not None
    with pytest.raises(GoneError):
        await waiting
    with pytest.raises(GoneError):
        runtime.read(ContainerGroup(UID, "vm"))
    with pytest.raises(GoneError):
        await runtime.refresh_vm(UID)
    last = runtime.vm(UID)
    assert last is not None
    assert (last.running, last.guest) == (False, None)


async def test_the_next_start_has_the_size_it_is_given(machine: Machine) -> None:
    runtime = machine.runtime
    pins = VmPins(((0,), runtime.cpus()), runtime.cpus())
    bigger = with_devices(msgspec.structs.replace(VM, vcpus=2, memory_bytes=768 * MIB, pins=pins))
    with contextlib.suppress(GoneError):
        await runtime.stop_container(UID, "vm", 0)
    view = await runtime.start_container(config(attempt=1, vm=bigger))
    assert (view.phase, view.attempt) == (ContainerPhase.RUNNING, 1)
    first = await runtime.wait_vm(
        UID, lambda view: online(view) == 2 and plugged(view) == 768 * MIB, BOOT_SECONDS
    )
    assert (first.plugged_vcpus, first.persistent_vcpus, online(first)) == (2, 2, 2)
    assert first.plugged_memory_bytes == first.persistent_memory_bytes == 768 * MIB
    assert first.pins == first.persistent_pins == pins


async def test_devices_are_plugged_and_unplugged_by_their_names(machine: Machine) -> None:
    runtime = machine.runtime
    await runtime.stop_container(UID, "vm", 0)
    bare = msgspec.structs.replace(VM, max_memory_bytes=1024 * MIB, devices=())
    await runtime.start_container(config(attempt=1, vm=bare))
    before = await runtime.wait_vm(UID, hears_agent, BOOT_SECONDS)
    assert before.devices == before.persistent_devices == ()
    for number in range(2):
        await runtime.change_vm(UID, PlugDevice(f"ua-dimm{number}", 128 * MIB))
    await runtime.change_vm(UID, PlugDevice("ua-dimm0", 128 * MIB, 0, Definition.PERSISTENT))
    grown = seen(before) + 256 * MIB
    view = await runtime.wait_vm(UID, lambda view: seen(view) == grown, 60)
    assert (seen(view), plugged(view)) == (grown, 768 * MIB)
    assert view.devices == tuple(
        VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, 0, *(3 * [128 * MIB])) for number in range(2)
    )
    assert view.persistent_memory_bytes == 640 * MIB
    with pytest.raises(RuntimeCallError):
        await runtime.change_vm(UID, SetRequested("ua-dimm0", 0))
    await change(
        runtime,
        UnplugDevice("ua-dimm0"),
        lambda view: seen(view) == seen(before) + 128 * MIB and plugged(view) == 640 * MIB,
    )
    left = runtime.vm(UID)
    assert left is not None
    assert [device.alias for device in left.devices] == ["ua-dimm1"]
    assert [device.alias for device in left.persistent_devices] == ["ua-dimm0"]
    await runtime.change_vm(UID, UnplugDevice("ua-dimm0", Definition.PERSISTENT))
    assert (await runtime.refresh_vm(UID)).persistent_devices == ()


async def test_a_removed_pod_is_gone(machine: Machine) -> None:
    runtime = machine.runtime
    await runtime.stop_container(UID, "vm", 0)
    assert container(runtime).exit_code == 137
    await runtime.remove_pod(UID)
    assert runtime.pod(UID) is None
    assert runtime.vm(UID) is None
