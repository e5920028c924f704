"""Virtual machines through the whole agent, on a machine in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import CPU_PERIOD_US
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.api.vm_changes import (
    OnlineVcpus,
    PersistVcpus,
    PlugVcpus,
    SetRequested,
    TuneCpu,
    UnplugVcpus,
    VmNote,
    VmTune,
    WriteNote,
)
from livesize.api.vm_size import MemoryBase
from livesize.runtime.fake_vm_memory import KERNEL_BYTES
from livesize.runtime.interface import ContainerGroup, PodGroup
from livesize.runtime.vm import Accelerator
from unit.agent.vm_world import MIB, VmWorld, have, start_with, virtual_machine
from virtual_time import virtual_time

pytestmark = virtual_time

BOOT = "00000000-0000-0000-0000-{:012}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    world = VmWorld(tmp_path)
    await world.start()
    yield world
    await world.stop()
    assert world.violations == []


def vm_status(world: VmWorld, name: str = "db") -> Object:
    status: Object = world.api.pod(name)["status"]["virtualMachineStatus"]
    return status


async def test_a_vm_starts_and_its_status_says_what_was_read_back(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2", memory="512Mi")
    status = vm_status(world)
    size = {"cpu": "2", "memory": "512Mi"}
    assert status["resources"] == {"requests": size, "limits": size}
    assert status["maximum"] == {"cpu": "6", "memory": "4Gi"}
    assert status["accelerator"] == "tcg"
    assert status["restartCount"] == 0
    assert status["pid"] == world.pid(uid, "vm")
    assert status["guest"]["vcpusOnline"] == 2
    assert status["guest"]["memoryPlugged"] == "512Mi"
    assert status["guest"]["agent"] is True
    assert status["devices"][0]["current"] == "256Mi"
    assert "containerStatuses" not in world.api.pod("db")["status"], "it is derived"
    (served,) = world.api.served("db")["status"]["containerStatuses"]
    assert (served["name"], served["ready"], served["restartCount"]) == ("vm", True, 0)
    assert served["resources"] == status["resources"]
    assert world.group_bytes(uid) == (512 * MIB, 512 * MIB)
    assert world.quotas(uid) == (200_000, 200_000)
    config = world.vm(uid).size
    assert (config.kernel, config.initrd) == ("guest.vmlinuz", "guest.initrd")
    assert "memhp_default_state=online_movable" in config.command_line


async def test_a_resize_of_a_vm_without_its_image_says_what_it_waits_for(world: VmWorld) -> None:
    images, world.machine.vm_image_names = world.machine.vm_image_names, ()
    await world.api.run_pod("db", virtualMachine=virtual_machine("1", "512Mi"))
    await world.until(lambda: world.vm_state("db") == "Waiting", "it lacks its image")
    await world.api.resize("db", "vm", cpu="2")
    cause = "vm (ErrImageNeverPull: image guest.vmlinuz is not on this machine)"
    await world.until(
        lambda: resize_state(world.api.pod("db")).get("message", "").endswith(cause),
        "the resize says the cause",
    )
    world.machine.vm_image_names = images
    await world.until(
        lambda: resize_state(world.api.pod("db"))["phase"] == "Done", "it runs at its new size"
    )


async def test_a_guest_that_is_not_heard_yet_is_starting(world: VmWorld) -> None:
    uid = await world.run_silent_vm("db")
    assert "vcpusOnline" not in vm_status(world)["guest"]
    assert world.history == [], "there is nothing to drive back"
    world.vm(uid).speak()
    await world.until(lambda: vm_status(world)["state"] == "Running", "it is heard")


@pytest.mark.parametrize(
    ("cpu", "memory", "vcpus", "size"),
    [("4", "2Gi", 4, 2048), ("1", "256Mi", 1, 256), ("3", "256Mi", 3, 256)],
)
async def test_a_resize_reaches_groups_domain_and_guest(
    world: VmWorld, cpu: str, memory: str, vcpus: int, size: int
) -> None:
    uid = await world.run_vm("db", cpu="2", memory="1Gi")
    pid = world.pid(uid, "vm")
    await world.api.resize("db", "vm", cpu=cpu, memory=memory)
    await world.phase("db", "Done")
    vm = world.vm(uid)
    assert (vm.online_vcpus, vm.persistent_vcpus) == (vcpus, vcpus)
    assert {vm.requested_bytes, vm.plugged_bytes, vm.persistent_bytes} == {size * MIB}
    assert vm.note == VmNote()
    assert world.group_bytes(uid) == (size * MIB, size * MIB)
    assert world.quotas(uid) == (vcpus * CPU_PERIOD_US, vcpus * CPU_PERIOD_US)
    wanted = {"cpu": cpu, "memory": memory}
    assert vm_status(world)["resources"] == {"requests": wanted, "limits": wanted}
    assert vm_status(world)["guest"]["vcpusOnline"] == vcpus
    assert (world.pid(uid, "vm"), vm.boots) == (pid, 1)


async def test_a_guest_that_follows_soon_is_told_in_one_commit(
    world: VmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.agent.vm.shape.QUICK_SECONDS", 5.0)
    await world.set(accept_delay_seconds=0.001, progress_seconds=5.0, guest_seconds=5.0)
    uid = await world.run_vm("db", memory="512Mi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="1Gi")
    await world.until(lambda: have(1024 * MIB) in world.history, "it was asked")
    await asyncio.sleep(0.01)
    world.vm(uid).release()
    await world.phase("db", "Done")
    assert [post["request"]["requestStatus"] for post in world.client.posts] == ["Done"]


def base(plugged: int) -> MemoryBase:
    return MemoryBase(plugged * MIB, plugged * MIB - KERNEL_BYTES, BOOT.format(1))


async def test_the_order_of_growth_and_of_shrinking(world: VmWorld) -> None:
    """ARK: "CGroup, vmConfig, domain definition are persisted in such order"."""
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    pod, vm = PodGroup(uid), ContainerGroup(uid, "vm")
    overhead = world.overhead_bytes(uid)
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    assert world.history == [
        (pod, SetMemory(1024 * MIB + overhead)),
        (vm, SetMemory(1024 * MIB + overhead)),
        WriteNote(VmNote(1024 * MIB, base(512))),
        have(1024 * MIB),
        start_with(1024 * MIB),
        WriteNote(VmNote()),
    ]
    world.history.clear()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Done")
    assert world.history == [
        WriteNote(VmNote(512 * MIB, base(1024))),
        have(512 * MIB),
        start_with(512 * MIB),
        WriteNote(VmNote()),
        (vm, SetMemory(512 * MIB + overhead)),
        (pod, SetMemory(512 * MIB + overhead)),
    ]
    world.history.clear()
    await world.api.resize("db", "vm", cpu="3")
    await world.phase("db", "Done")
    await world.api.resize("db", "vm", cpu="1")
    await world.phase("db", "Done")
    assert world.history == [
        (pod, SetCpu(3072, 300_000)),
        (vm, SetCpu(3072, 300_000)),
        TuneCpu(VmTune(3072, 300_000, CPU_PERIOD_US)),
        PlugVcpus(3),
        PersistVcpus(3),
        OnlineVcpus(1),
        PersistVcpus(1),
        TuneCpu(VmTune(1024, 100_000, CPU_PERIOD_US)),
        (vm, SetCpu(1024, 100_000)),
        (pod, SetCpu(1024, 100_000)),
    ]
    assert world.vm(uid).plugged_vcpus == 3, "under emulation nothing is unplugged"


async def test_with_kvm_vcpus_are_really_unplugged(tmp_path: Path) -> None:
    world = VmWorld(tmp_path, accelerator=Accelerator.KVM)
    await world.start()
    uid = await world.run_vm("db", cpu="4")
    await world.api.resize("db", "vm", cpu="2")
    await world.phase("db", "Done")
    assert UnplugVcpus(2) in world.history
    assert (world.vm(uid).plugged_vcpus, world.vm(uid).online_vcpus) == (2, 2)
    await world.stop()


async def test_a_shrink_goes_as_far_as_is_safe_and_goes_on_when_memory_is_freed(
    world: VmWorld,
) -> None:
    uid = await world.run_vm("db", cpu="1", memory="2Gi")
    world.vm(uid).use_memory(1000 * MIB - KERNEL_BYTES)
    await world.api.resize("db", "vm", cpu="2", memory="512Mi")
    await world.phase("db", "Error")
    assert world.vm(uid).plugged_bytes == 1064 * MIB
    message = resize_state(world.api.pod("db"))["message"]
    assert f"{552 * MIB} bytes to go" in message
    assert f"the guest uses {1000 * MIB}" in message
    assert world.group_bytes(uid) == (2048 * MIB, 2048 * MIB), "the groups are narrowed last"
    assert world.vm(uid).online_vcpus == 2, "the other resource does not wait"
    assert world.vm(uid).note.memory_bytes_being_updated == 512 * MIB
    assert vm_status(world)["guest"]["memoryPlugged"] == "1064Mi"
    world.vm(uid).use_memory(200 * MIB - KERNEL_BYTES)
    await world.phase("db", "Done")
    assert world.group_bytes(uid) == (512 * MIB, 512 * MIB)
    assert world.vm(uid).note == VmNote()


async def test_going_back_from_a_shrink_that_cannot_finish(world: VmWorld) -> None:
    uid = await world.run_vm("db", memory="2Gi")
    world.vm(uid).use_memory(1000 * MIB - KERNEL_BYTES)
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Error")
    await world.api.resize("db", "vm", memory="2Gi")
    await world.phase("db", "Done")
    assert world.vm(uid).plugged_bytes == 2048 * MIB


async def test_a_newer_request_does_not_wait_for_a_guest_that_does_not_move(
    world: VmWorld,
) -> None:
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory="2Gi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "InProgress")
    await world.api.resize("db", "vm", memory="2Gi")
    await world.phase("db", "Done")
    assert world.vm(uid).requested_bytes == 2048 * MIB


async def test_a_refusing_domain_gets_its_groups_narrowed_again(world: VmWorld) -> None:
    """F49: "the cgroup rolled back with the error raised if the domain fails"."""
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    world.refuses = {SetRequested: "no", PlugVcpus: "no CPU"}
    await world.api.resize("db", "vm", cpu="2", memory="1Gi")
    await world.phase("db", "Error")
    await world.until(
        lambda: (
            world.group_bytes(uid) == (512 * MIB, 512 * MIB)
            and world.quotas(uid) == (100_000, 100_000)
        ),
        "both are rolled back",
    )
    world.refuses = {}
    await world.phase("db", "Done")
    assert world.group_bytes(uid) == (1024 * MIB, 1024 * MIB)


async def test_cpu_that_fails_does_not_hold_up_memory(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    world.refuses = {PlugVcpus: "no CPU today"}
    await world.api.resize("db", "vm", cpu="2", memory="1Gi")
    await world.until(lambda: world.vm(uid).plugged_bytes == 1024 * MIB, "memory has grown")
    await world.phase("db", "Error")
    assert "no CPU today" in resize_state(world.api.pod("db"))["message"]


@pytest.mark.parametrize("what", ["domain", "note", "persistent", "vcpus", "pod group", "vm group"])
async def test_what_somebody_changed_by_hand_is_driven_back(world: VmWorld, what: str) -> None:
    """F50: "each changed by hand in turn, the live domain is the truth"."""
    uid = await world.run_vm("db", cpu="2", memory="512Mi")
    vm, machine = world.vm(uid), world.machine
    groups = {"pod group": PodGroup(uid), "vm group": ContainerGroup(uid, "vm")}
    match what:
        case "domain":
            vm.change(have(256 * MIB))
        case "note":
            vm.note = VmNote(5 * MIB)
        case "persistent":
            vm.persistent_vcpus = 5
            vm.change(start_with(1024 * MIB))
        case "vcpus":
            vm.change(PlugVcpus(3))
        case _:
            limits = machine.group(groups[what]).limits
            wider = msgspec.structs.replace(limits, memory_limit_bytes=None, cpu_quota_us=None)
            machine.set_limits(groups[what], wider)

    def in_step() -> bool:
        return (
            (vm.online_vcpus, vm.persistent_vcpus) == (2, 2)
            and {vm.requested_bytes, vm.plugged_bytes, vm.persistent_bytes} == {512 * MIB}
            and vm.note == VmNote()
            and world.group_bytes(uid) == (512 * MIB, 512 * MIB)
            and world.quotas(uid) == (200_000, 200_000)
        )

    await world.until(in_step, "all three are at what is allocated")
    world.violations.clear()  # of what was done by hand
    assert world.client.posts == [], "nobody asked, so nobody is told"


async def test_after_a_reboot_of_the_guest_its_vcpus_are_as_allocated(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="4")
    await world.api.resize("db", "vm", cpu="2")
    await world.phase("db", "Done")
    world.vm(uid).reboot()
    assert world.vm(uid).online_vcpus == 4
    world.happened(uid)
    await world.until(lambda: world.vm(uid).online_vcpus == 2, "two of them are offline again")
    await world.until(
        lambda: vm_status(world)["guest"]["bootId"] == BOOT.format(2), "the new boot is told"
    )
    world.violations.clear()


async def test_a_vm_that_was_killed_starts_again_at_its_allocated_size(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    await world.api.resize("db", "vm", cpu="2", memory="1Gi")
    await world.phase("db", "Done")
    world.machine.exit(uid, "vm", 137)
    await world.until(lambda: vm_status(world).get("restartCount") == 1, "it is started again")
    await world.until(lambda: vm_status(world)["state"] == "Running", "it runs")
    config = world.vm(uid).size
    assert (config.vcpus, config.memory_bytes) == (2, 1024 * MIB)
    assert vm_status(world)["lastState"]["terminated"]["exitCode"] == 137


async def test_a_vm_killed_in_the_middle_of_a_resize_comes_back_at_the_new_size(
    world: VmWorld,
) -> None:
    uid = await world.run_vm("db", memory="2Gi")
    world.vm(uid).use_memory(1900 * MIB - KERNEL_BYTES)
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Error")
    world.machine.exit(uid, "vm", 137)
    await world.phase("db", "Done")
    await world.until(lambda: uid in world.machine.vms, "it is started again")
    assert world.vm(uid).size.memory_bytes == 512 * MIB
    assert world.group_bytes(uid) == (512 * MIB, 512 * MIB)


async def test_a_vm_restarts_by_policy_exactly_once(world: VmWorld) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    uid = await world.run_vm("db", memory="512Mi", resizePolicy=policy)
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    assert world.attempt(uid, "vm") == 1
    assert world.vm(uid).size.memory_bytes == 1024 * MIB
    assert not any(isinstance(one, SetRequested) for one in world.history)


async def test_a_restarted_agent_finds_the_vm_and_leaves_it_alone(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2", memory="1Gi")
    pid = world.pid(uid, "vm")
    await world.stop()
    await world.start()
    await world.api.resize("db", "vm", cpu="3")
    await world.phase("db", "Done")
    assert (world.pid(uid, "vm"), world.attempt(uid, "vm")) == (pid, 0)
    assert world.history[:2] == [
        (PodGroup(uid), SetCpu(3072, 300_000)),
        (ContainerGroup(uid, "vm"), SetCpu(3072, 300_000)),
    ]


async def test_a_guest_at_rest_is_not_told_of_again_and_again(world: VmWorld) -> None:
    uid = await world.run_vm("db")
    version = world.api.pod("db")["metadata"]["resourceVersion"]
    for used in (151, 155, 160):
        world.vm(uid).use_memory(used * MIB - KERNEL_BYTES)
        world.happened(uid)
        await world.until(lambda: True, "a turn")
    assert world.api.pod("db")["metadata"]["resourceVersion"] == version
    world.vm(uid).use_memory(300 * MIB - KERNEL_BYTES)
    world.happened(uid)
    available = ("status", "virtualMachineStatus", "guest", "memoryAvailable")
    await world.until(lambda: lookup(world.api.pod("db"), *available) == "212Mi", "it is news")


async def test_a_vm_is_deleted(world: VmWorld) -> None:
    uid = await world.run_vm("db")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "the object is gone")
    assert uid not in world.machine.pods


async def test_a_node_without_virtual_machines_says_so(tmp_path: Path) -> None:
    world = VmWorld(tmp_path)
    await world.start()
    assert world.agent is not None
    await world.stop()
    from unit.agent.world import World  # the one without

    plain = World(tmp_path)
    await plain.start()
    size = {"cpu": "1", "memory": "512Mi"}
    vm = {"kernel": {"image": "guest.vmlinuz"}, "resources": {"requests": size, "limits": size}}
    await plain.api.run_pod("db", virtualMachine=vm)
    await plain.until(lambda: lookup(plain.api.pod("db"), "status", "phase") == "Failed", "no")
    assert "runs no virtual machines" in plain.api.pod("db")["status"]["message"]
    await plain.stop()
