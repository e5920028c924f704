"""A VM's resize that takes its time: how far it is, what it waits for, and that it is safe.

The guest of the fake machine is held and moves by single steps, or has not been heard yet.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from livesize.agent.resize.progress import ProgressLine
from livesize.agent.shape import Progress
from livesize.agent.vm.messages import memory_shortfall
from livesize.api.conditions import find_condition
from livesize.api.group_changes import SetMemory
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.api.vm_changes import OnlineVcpus, PlugVcpus, SetRequested
from livesize.runtime.interface import ContainerGroup, PodGroup
from unit.agent.vm_world import GIB, MIB, VmWorld
from virtual_time import virtual_time

pytestmark = virtual_time


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    world = VmWorld(tmp_path)
    await world.start()
    yield world
    await world.stop()
    assert world.violations == []


def state(world: VmWorld) -> Object:
    return resize_state(world.api.pod("db"))


def guest(world: VmWorld) -> Object:
    told: Object = lookup(world.api.pod("db"), "status", "virtualMachineStatus", "guest")
    return told


async def says(world: VmWorld, message: str) -> None:
    await world.until(lambda: state(world)["message"] == message, message)


# How far it is


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(
            "2Gi",
            "512Mi",
            [
                ("2Gi", "memory: 2Gi of 512Mi, 1536Mi to go"),
                ("1536Mi", "memory: 1536Mi of 512Mi, 1Gi to go"),
                ("1Gi", "memory: 1Gi of 512Mi, 512Mi to go"),
            ],
            id="shrink",
        ),
        pytest.param(
            "512Mi",
            "1536Mi",
            [
                ("512Mi", "memory: 512Mi of 1536Mi, 1Gi to go"),
                ("1Gi", "memory: 1Gi of 1536Mi, 512Mi to go"),
            ],
            id="grow",
        ),
    ],
)
async def test_a_long_change_says_how_far_it_is(
    world: VmWorld, before: str, after: str, told: list[tuple[str, str]]
) -> None:
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory=before)
    vm = world.vm(uid)
    vm.hold()
    await world.api.resize("db", "vm", memory=after)
    for plugged, message in told:
        await says(world, message)
        assert state(world)["phase"] == "InProgress"
        assert guest(world)["memoryPlugged"] == plugged
        running = state(world)["steps"][-1]
        assert (running["name"], running["outcome"]) == ("vm:memory:guest", "Running")
        assert running["message"] == message
        condition = find_condition(world.api.served("db"), "PodResizeInProgress")
        assert condition is not None
        assert condition["message"] == message
        vm.move_memory(512 * MIB)
    vm.release()
    await world.phase("db", "Done")
    assert {step["outcome"] for step in state(world)["steps"]} == {"Done"}
    assert "to go" not in state(world)["message"]


async def test_vcpus_that_come_slowly_are_counted(world: VmWorld) -> None:
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", cpu="1")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", cpu="3")
    await says(world, "cpu: 1 CPUs of 3, 2 to go")
    world.vm(uid).release()
    await world.phase("db", "Done")


async def test_a_guest_that_does_not_move_is_not_told_of_again(world: VmWorld) -> None:
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory="2Gi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await says(world, "memory: 2Gi of 512Mi, 1536Mi to go")
    version = world.api.pod("db")["metadata"]["resourceVersion"]
    await asyncio.sleep(0.15)  # several looks
    assert world.api.pod("db")["metadata"]["resourceVersion"] == version


async def test_an_error_stays_one_until_something_moves(world: VmWorld) -> None:
    uid = await world.run_vm("db", memory="2Gi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Error")
    seen = {state(world)["phase"]}
    for _ in range(100):
        await asyncio.sleep(0.004)
        seen.add(state(world)["phase"])
    assert seen == {"Error"}, "a retry alone is no progress"
    await world.set(guest_seconds=60.0)
    await asyncio.sleep(0.05)
    world.vm(uid).move_memory(512 * MIB)
    await world.phase("db", "InProgress")
    await says(world, "memory: 1536Mi of 512Mi, 1Gi to go")


async def test_progress_that_cannot_be_posted_stops_nothing(world: VmWorld) -> None:
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory="2Gi")
    vm = world.vm(uid)
    vm.hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "InProgress")
    world.client.is_down = True
    vm.move_memory(512 * MIB)
    await asyncio.sleep(0.1)
    vm.release()
    await world.until(lambda: world.group_bytes(uid) == (512 * MIB, 512 * MIB), "it is applied")
    world.client.is_down = False
    await world.phase("db", "Done")


async def test_only_the_newest_word_is_posted_and_not_too_often() -> None:
    posted: list[tuple[float, str]] = []
    clock = asyncio.get_running_loop().time

    async def post(progress: Progress) -> None:
        posted.append((clock(), progress.message))

    line = ProgressLine(distance_seconds=0.05)
    line.report(Progress("step", "nobody listens yet", moved=False))
    async with asyncio.TaskGroup() as tasks:
        line.begin(tasks, post)
        for number in range(60):
            line.report(Progress("step", str(number), moved=True))
            await asyncio.sleep(0.002)
        await line.end()
        line.report(Progress("step", "too late", moved=True))
    assert posted[0][1] == "0"
    assert 2 <= len(posted) < 60
    times = [at for at, _ in posted]
    assert all(later - at >= 0.049 for at, later in itertools.pairwise(times))
    numbers = [int(message) for _, message in posted]
    assert numbers == sorted(set(numbers))


# A guest that still boots

NOT_HEARD = (
    "the guest has not answered yet; its size is changed when it does: it boots, or `livesize logs`"
    " shows on its console why not"
)


@pytest.mark.parametrize(
    ("cpu", "memory"), [("3", "2Gi"), ("1", "512Mi"), ("3", "512Mi"), ("1", "2Gi")]
)
async def test_a_resize_of_a_guest_that_still_boots_waits_for_it(
    world: VmWorld, cpu: str, memory: str
) -> None:
    uid = await world.run_silent_vm("db", cpu="2", memory="1Gi")
    await world.api.resize("db", "vm", cpu=cpu, memory=memory)
    await says(world, NOT_HEARD)
    assert state(world)["phase"] == "InProgress"
    seen: set[str] = set()
    for _ in range(60):  # longer than a guest that was heard may do nothing
        await asyncio.sleep(0.004)
        seen.add(state(world)["phase"])
    assert seen == {"InProgress"}
    assert world.history == [], "nothing was touched"
    size = {"cpu": cpu, "memory": memory}
    wanted = {"name": "vm", "requests": size, "limits": size}
    assert state(world)["allocated"] == [wanted], "but it is promised"
    world.vm(uid).speak()
    await world.phase("db", "Done")
    assert world.vm(uid).online_vcpus == int(cpu)
    assert (world.vm(uid).boots, world.attempt(uid, "vm")) == (1, 0)
    reasons = world.api.event_reasons("db")
    assert "ResizeError" not in reasons


async def test_the_newest_request_counts_once_the_guest_is_heard(world: VmWorld) -> None:
    uid = await world.run_silent_vm("db")
    for cpu in ("4", "2"):
        await world.api.resize("db", "vm", cpu=cpu)
        await says(world, NOT_HEARD)
        assert state(world)["phase"] == "InProgress"
    world.vm(uid).speak()
    await world.phase("db", "Done")
    assert PlugVcpus(2) in world.history
    assert PlugVcpus(4) not in world.history


async def test_an_agent_that_dies_while_the_guest_boots_goes_on_waiting(world: VmWorld) -> None:
    uid = await world.run_silent_vm("db")
    await world.api.resize("db", "vm", memory="1Gi")
    await says(world, NOT_HEARD)
    await world.stop()
    (entry,) = await world.checkpointed()
    assert entry.size("vm")["limits"]["memory"] == "1Gi", "the promise is durable"
    await world.start()
    world.vm(uid).speak()
    await world.phase("db", "Done")
    assert world.vm(uid).plugged_bytes == GIB


async def test_of_a_guest_that_is_never_heard_it_is_said_what_it_lacks(world: VmWorld) -> None:
    await world.set(boot_seconds=0.3)
    uid = await world.run_silent_vm("db")
    await world.api.resize("db", "vm", cpu="2")
    await says(world, NOT_HEARD)
    words = (
        "cpu: 2 CPUs are plugged in; the guest does not say whether it uses 2 CPUs:"
        " it boots, it hangs (`livesize logs` shows its console), or it has no agent; then install"
        " and start qemu-guest-agent in it"
    )
    await says(world, words)
    assert state(world)["phase"] == "InProgress"
    world.vm(uid).speak()
    await world.phase("db", "Done")


# Safe to hotplug (F66), and noted with the domain (F46)


def mark(world: VmWorld) -> Object | None:
    return find_condition(world.api.served("db"), "SafeToHotplug")


@pytest.mark.parametrize(("before", "after"), [("512Mi", "1Gi"), ("1Gi", "512Mi")])
async def test_a_change_under_way_is_marked_safe_until_it_is_done(
    world: VmWorld, before: str, after: str
) -> None:
    """decisions 28: "set only when the pod's allocated matches, removed when done"."""
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory=before)
    assert mark(world) is None
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory=after)
    await world.until(lambda: mark(world), "it is marked")
    condition = mark(world)
    assert condition is not None
    assert condition["status"] == "True"
    assert world.group_bytes(uid) == (GIB, GIB), "the groups hold the larger of the two"
    await world.until(
        lambda: "SafeToHotplug" in world.api.event_reasons("db"), "and there is an event"
    )
    world.vm(uid).release()
    await world.phase("db", "Done")
    assert mark(world) is None


async def test_a_refused_change_is_not_marked(world: VmWorld) -> None:
    await world.run_vm("db", memory="512Mi")
    world.refuses = {SetRequested: "no"}
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Error")
    assert mark(world) is None, "its groups were narrowed again"
    world.refuses = {}
    await world.phase("db", "Done")


async def test_a_group_narrowed_before_the_mark_keeps_the_domain_as_it_is(
    world: VmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await world.run_vm("db", memory="512Mi")
    pod, small = PodGroup(uid), world.machine.group(PodGroup(uid)).limits
    wide = SetMemory(GIB + world.overhead_bytes(uid))

    def narrow(_uid: str) -> None:
        if world.history[-1] == (ContainerGroup(uid, "vm"), wide):
            world.machine.set_limits(pod, small)

    monkeypatch.setattr(world, "check", narrow)
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Error")
    assert "memory may not be changed yet" in state(world)["message"]
    assert world.vm(uid).requested_bytes == 512 * MIB
    assert not any(isinstance(one, SetRequested) for one in world.history)
    monkeypatch.undo()
    await world.phase("db", "Done")


async def test_cpu_goes_through_while_memory_is_under_way(world: VmWorld) -> None:
    """ARK: "if the VMConfig.ResourceupdteInProgress is set, ignore the call from Kubelet for VM
    update to the same resource"; here the newest target is taken up instead (decisions 23)."""
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", cpu="1", memory="2Gi")
    vm = world.vm(uid)
    vm.use_memory(1000 * MIB)
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Error")  # it has gone as far as it can
    assert vm.note.memory_bytes_being_updated == 512 * MIB
    status = world.api.pod("db")["status"]["virtualMachineStatus"]
    assert status["resourceUpdateInProgress"] is True
    assert status["memoryLimitInBytesBeingUpdated"] == 512 * MIB
    await world.api.resize("db", "vm", cpu="3")
    await world.until(lambda: vm.online_vcpus == 3, "the guest has its CPUs")
    assert vm.note.memory_bytes_being_updated == 512 * MIB, "memory is still under way"
    await world.api.resize("db", "vm", memory="1536Mi")
    await world.phase("db", "Done")
    assert vm.plugged_bytes == 1536 * MIB
    status = world.api.pod("db")["status"]["virtualMachineStatus"]
    assert "resourceUpdateInProgress" not in status
    assert status["resources"]["limits"] == {"cpu": "3", "memory": "1536Mi"}


# A guest as its distribution made it


async def test_vcpus_that_stay_offline_are_switched_on_within_the_same_try(world: VmWorld) -> None:
    """A stock Debian has no rule that does so: nothing fails, and nothing is tried again for it."""
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", cpu="1")
    world.vm(uid).onlines_vcpus = False
    await world.api.resize("db", "vm", cpu="3")
    await world.phase("db", "Done")
    assert world.vm(uid).online_vcpus == 3
    assert [one for one in world.history if isinstance(one, PlugVcpus | OnlineVcpus)] == [
        PlugVcpus(3),
        OnlineVcpus(3),
    ]
    assert "ResizeError" not in world.api.event_reasons("db")


async def test_a_guest_that_takes_nothing_at_all_is_told_what_its_kernel_needs(
    world: VmWorld,
) -> None:
    view = world.vm(await world.run_vm("db", memory="512Mi")).view()
    needs = "its kernel needs CONFIG_MEMORY_HOTPLUG and the driver virtio_mem"
    assert needs not in memory_shortfall(view, GIB), "it has taken some"
    empty = tuple(replace(device, current_bytes=0) for device in view.devices)
    assert needs in memory_shortfall(replace(view, devices=empty), GIB)
    assert needs not in memory_shortfall(replace(view, devices=()), GIB)


async def test_a_kernel_that_holds_what_was_added_is_told_from_a_guest_that_needs_it(
    world: VmWorld,
) -> None:
    """Debian 13 brings added memory online itself, in the zone that its kernel uses too."""
    view = world.vm(await world.run_vm("db", memory="1Gi")).view()
    asked = tuple(
        replace(one, requested_bytes=one.requested_bytes - 256 * MIB) for one in view.devices
    )
    view, wanted_bytes = replace(view, devices=asked), GIB - 256 * MIB
    holds = "its kernel holds some of what was added for itself"
    assert holds in memory_shortfall(view, wanted_bytes)
    assert holds not in memory_shortfall(view, wanted_bytes - MIB), "it was not asked for so much"
    assert view.guest is not None
    busy = replace(view.guest, memory_available_bytes=0)
    assert holds not in memory_shortfall(replace(view, guest=busy), wanted_bytes)
