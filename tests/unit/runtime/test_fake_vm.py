"""The fake guest does as it is told: held, silent, greedy, refusing, rebooting."""

from __future__ import annotations

import asyncio

import pytest

from livesize.api.group_changes import SetMemory
from livesize.api.vm_changes import OnlineVcpus, PlugVcpus, UnplugVcpus
from livesize.machinery.context import system_context
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.fake_vm_memory import KERNEL_BYTES
from livesize.runtime.interface import GoneError, PodGroup, RuntimeCallError
from livesize.runtime.vm import GuestSilentError, VmView
from vms.real import LIMITS, MIB, UID, have, pod_config, vm_config


@pytest.fixture
async def runtime() -> FakeRuntime:
    runtime = FakeRuntime(context=system_context(), machine=FakeMachine(system_context()))
    await runtime.open()
    await runtime.create_pod(pod_config())
    await runtime.start_container(vm_config())
    return runtime


@pytest.fixture
def guest(runtime: FakeRuntime) -> FakeVm:
    return runtime.world.vms[UID]


def viewed(runtime: FakeRuntime) -> VmView:
    view = runtime.vm(UID)
    assert view is not None
    return view


def online(view: VmView) -> int | None:
    return view.guest.vcpus_online if view.guest else None


async def test_a_held_guest_answers_but_moves_only_when_released(
    runtime: FakeRuntime, guest: FakeVm
) -> None:
    guest.hold()
    await runtime.change_vm(UID, PlugVcpus(4))
    await runtime.change_vm(UID, have(1024 * MIB))
    view = viewed(runtime)
    assert (view.plugged_vcpus, online(view)) == (4, 1)
    assert (view.requested_memory_bytes, view.plugged_memory_bytes) == (1024 * MIB, 512 * MIB)
    waiting = asyncio.get_running_loop().create_task(
        runtime.wait_vm(UID, lambda view: online(view) == 4, 5)
    )
    await asyncio.sleep(0)
    guest.release()
    assert (await waiting).plugged_memory_bytes == 1024 * MIB


async def test_a_silent_guest_is_not_heard_and_refuses_its_agent(
    runtime: FakeRuntime, guest: FakeVm
) -> None:
    guest.be_silent()
    assert viewed(runtime).guest is None
    with pytest.raises(GuestSilentError):
        await runtime.change_vm(UID, OnlineVcpus(1))
    with pytest.raises(RuntimeCallError):
        await runtime.change_vm(UID, UnplugVcpus(1))
    guest.speak()
    assert online(viewed(runtime)) == 1


async def test_memory_in_use_is_given_back_when_it_is_free(
    runtime: FakeRuntime, guest: FakeVm
) -> None:
    await runtime.change_vm(UID, have(2048 * MIB))
    guest.use_memory(1024 * MIB)
    await runtime.change_vm(UID, have(512 * MIB))
    assert viewed(runtime).plugged_memory_bytes == 1024 * MIB + KERNEL_BYTES
    assert viewed(runtime).requested_memory_bytes == 512 * MIB
    guest.use_memory(100 * MIB)
    assert viewed(runtime).plugged_memory_bytes == 512 * MIB


async def test_a_failure_is_raised_once_and_changes_nothing(
    runtime: FakeRuntime, guest: FakeVm
) -> None:
    guest.fail_next_change(RuntimeCallError("the domain said no"))
    with pytest.raises(RuntimeCallError, match="the domain said no"):
        await runtime.change_vm(UID, PlugVcpus(2))
    assert viewed(runtime).plugged_vcpus == 1
    await runtime.change_vm(UID, PlugVcpus(2))
    assert viewed(runtime).plugged_vcpus == 2


async def test_a_reboot_brings_every_plugged_vcpu_online_again(
    runtime: FakeRuntime, guest: FakeVm
) -> None:
    await runtime.change_vm(UID, PlugVcpus(4))
    await runtime.change_vm(UID, OnlineVcpus(1))
    before = viewed(runtime)
    guest.reboot()
    after = viewed(runtime)
    assert before.guest is not None
    assert after.guest is not None
    assert after.guest.boot_id != before.guest.boot_id
    assert (after.guest.vcpus_online, after.plugged_vcpus) == (4, 4)


async def test_the_order_of_group_and_domain_can_be_seen(runtime: FakeRuntime) -> None:
    await runtime.write(PodGroup(UID), SetMemory(LIMITS.memory_limit_bytes))
    await runtime.change_vm(UID, have(1024 * MIB))
    expected = [SetMemory(LIMITS.memory_limit_bytes), have(1024 * MIB)]
    assert runtime.world.actions == expected


async def test_a_vm_that_ends_ends_the_waiting_for_it(runtime: FakeRuntime) -> None:
    waiting = asyncio.get_running_loop().create_task(runtime.wait_vm(UID, lambda _: False, 5))
    await asyncio.sleep(0)
    runtime.world.exit(UID, "vm", 255)
    with pytest.raises(GoneError):
        await waiting
    assert not viewed(runtime).running
