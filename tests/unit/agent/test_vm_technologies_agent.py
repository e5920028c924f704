"""The same VM by every memory technology, through the whole agent (F75)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from livesize.agent.vm import sizes
from livesize.api.conditions import find_condition
from livesize.api.errors import StatusError
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.api.resources import Resources
from livesize.api.vm_changes import (
    Definition,
    OnlineVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    UnplugDevice,
    UnplugVcpus,
    VmNote,
    VmTune,
)
from livesize.api.vm_size import CellSize, Technology, VmSize, VmTopology
from livesize.runtime.fake_vm_memory import KERNEL_BYTES
from unit.agent.vm_world import GIB, MIB, VmWorld
from unit.agent.world import CrashAt
from virtual_time import virtual_time

pytestmark = virtual_time

EVERY = list(Technology)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    world = VmWorld(tmp_path)
    await world.start()
    yield world
    await world.stop()
    assert world.violations == []
    assert all(vm.memory.panics == 0 for vm in world.machine.vms.values())


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Every VM is said to have that besides."""
    real = sizes.vm_size_of

    def say(change: Callable[[VmSize], VmSize]) -> None:
        def changed(
            pod: Object,
            resources: Resources | None = None,
            cells: tuple[CellSize, ...] | None = None,
        ) -> VmSize:
            return change(real(pod, resources, cells))

        monkeypatch.setattr(sizes, "vm_size_of", changed)

    return say


def state(world: VmWorld) -> Object:
    return resize_state(world.api.pod("db"))


def status(world: VmWorld) -> Object:
    told: Object = lookup(world.api.pod("db"), "status", "virtualMachineStatus")
    return told


async def says(world: VmWorld, words: str) -> None:
    await world.until(lambda: words in str(state(world).get("message")), words)


def assert_has(world: VmWorld, uid: str, memory: int) -> None:
    view = world.vm(uid).view()
    assert view.requested_memory_bytes == view.plugged_memory_bytes == memory * MIB
    assert view.persistent_memory_bytes == memory * MIB
    assert world.group_bytes(uid) == (memory * MIB, memory * MIB)
    assert view.note == VmNote()
    assert view.guest is not None
    assert view.guest.memory_seen_bytes == memory * MIB - KERNEL_BYTES
    assert world.vm(uid).boots == 1
    guest = status(world)["guest"]
    assert guest["memoryRequested"] == guest["memoryPlugged"]


# The same test for all of them


@pytest.mark.parametrize("technology", EVERY)
async def test_memory_comes_and_goes_and_the_guest_confirms_it(
    world: VmWorld, technology: Technology
) -> None:
    """ARK: "set memory to X + Delta; repeat to increase memory to X + 3*Delta; then reduce memory
    to X"."""
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="512Mi")
    await world.until(lambda: world.group_bytes(uid)[0] == 512 * MIB, "it has given back")
    for size in (1024, 2048, 512):
        await world.api.resize("db", "vm", memory=f"{size}Mi")
        await world.phase("db", "Done")
        assert_has(world, uid, size)
        told = status(world)["memory"]
        assert told["technology"] == technology
        assert told["current"] in (f"{size}Mi", f"{size // 1024}Gi")
        assert told["maxExpandable"] == "4Gi"
        assert told["maxBootTime"] == ("4Gi" if technology == "balloon" else "256Mi")
    asked = {type(one) for one in world.history if not isinstance(one, tuple)}
    kinds = {"dimm": {PlugDevice, UnplugDevice}, "balloon": {SetBalloon}}
    assert asked & {PlugDevice, UnplugDevice, SetBalloon, SetRequested} == kinds.get(
        technology, {SetRequested}
    )


@pytest.mark.parametrize("technology", EVERY)
async def test_both_at_once_and_only_what_the_guest_can_spare(
    world: VmWorld, technology: Technology
) -> None:
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", cpu="1", memory="2Gi")
    world.vm(uid).use_memory(1000 * MIB)
    await world.api.resize("db", "vm", cpu="2", memory="512Mi")
    await world.phase("db", "Error")
    left = world.vm(uid).plugged_bytes
    assert 1064 * MIB <= left < 2048 * MIB, "as far as it can"
    assert "bytes to go" in state(world)["message"]
    assert world.vm(uid).online_vcpus == 2, "CPU does not wait"
    assert world.group_bytes(uid) == (2048 * MIB, 2048 * MIB)
    world.vm(uid).use_memory(20 * MIB)
    await world.phase("db", "Done")
    assert_has(world, uid, 512)


@pytest.mark.parametrize("technology", EVERY)
async def test_a_vm_boots_again_at_its_last_allocated_size(
    world: VmWorld, technology: Technology
) -> None:
    """F90, and ARK's "dynamically determine boot VM with its previously allocated memory"."""
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="512Mi")
    await world.api.resize("db", "vm", memory="1408Mi")
    await world.phase("db", "Done")
    world.machine.exit(uid, "vm", 137)
    await world.until(lambda: status(world).get("restartCount") == 1, "it is started again")
    await world.until(lambda: status(world)["state"] == "Running", "it runs")
    await world.until(
        lambda: world.group_bytes(uid) == (1408 * MIB, 1408 * MIB), "at the size it had"
    )
    assert_has(world, uid, 1408)


@pytest.mark.parametrize("technology", EVERY)
async def test_a_guest_that_reboots_has_its_size(world: VmWorld, technology: Technology) -> None:
    """ARK: "set VM memory to X + Delta; reboot VM; verify the memory is X + Delta"."""
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="512Mi")
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    world.vm(uid).reboot()
    world.happened(uid)
    await world.until(
        lambda: status(world)["guest"]["bootId"].endswith("2"), "the new boot is told"
    )
    view = world.vm(uid).view()
    assert view.plugged_memory_bytes == view.persistent_memory_bytes == GIB


@pytest.mark.parametrize("technology", EVERY)
async def test_a_vm_that_runs_keeps_its_technology(world: VmWorld, technology: Technology) -> None:
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="512Mi")
    other = Technology.DIMM if technology is not Technology.DIMM else Technology.VIRTIO_MEM
    await world.set(memory_technology=other)
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    assert_has(world, uid, 1024)
    assert status(world)["memory"]["technology"] == technology


@pytest.mark.parametrize("technology", EVERY)
async def test_what_the_next_start_would_have_is_driven_back(
    world: VmWorld, technology: Technology
) -> None:
    """F50: "each changed by hand in turn, the live domain is the truth"."""
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="1Gi")
    memory, definition = world.vm(uid).memory, Definition.PERSISTENT
    before = memory.persistent_devices, memory.persistent_balloon
    if memory.persistent_balloon is not None:
        memory.change(SetBalloon(2 * MIB, definition))
    for device in memory.persistent_devices:
        if technology is Technology.DIMM:
            memory.change(UnplugDevice(device.alias, definition))
        else:
            memory.change(SetRequested(device.alias, 0, definition))
    assert (memory.persistent_devices, memory.persistent_balloon) != before
    world.happened(uid)
    await world.until(
        lambda: (memory.persistent_devices, memory.persistent_balloon) == before, "as it was"
    )
    assert world.client.posts == []


# Balloon, and auto below what the VM boots with


async def test_a_balloon_vm_starts_with_all_and_falls_to_its_size(world: VmWorld) -> None:
    """decisions 46: "boots at memory.max and falls to its size"."""
    await world.set(memory_technology=Technology.BALLOON)
    boot = world.machine.boot_vm
    at_start: list[tuple[int, int]] = []

    def look(config: object) -> None:
        boot(config)  # type: ignore[arg-type]
        (uid,) = world.machine.vms
        at_start.append(world.group_bytes(uid))

    world.machine.boot_vm = look  # type: ignore[method-assign]
    uid = await world.run_vm("db", memory="512Mi")
    assert at_start == [(4 * GIB, 4 * GIB)], "the groups hold what it boots with"
    await world.until(lambda: world.group_bytes(uid) == (512 * MIB, 512 * MIB), "it has fallen")
    assert world.vm(uid).size.boot_memory_bytes == 4 * GIB
    assert_has(world, uid, 512)


async def test_auto_falls_below_what_it_boots_with_and_comes_back(
    world: VmWorld, sized: Callable[..., None]
) -> None:
    """F88: "below the boot size by balloon, above it by plugging"."""
    sized(lambda size: replace(size, boot_memory_bytes=GIB, min_memory_bytes=256 * MIB))
    uid = await world.run_vm("db", memory="2Gi")
    asked = []
    for size in (512, 1536, 768, 1024):
        world.history.clear()
        await world.api.resize("db", "vm", memory=f"{size}Mi")
        await world.phase("db", "Done")
        assert_has(world, uid, size)
        live = [
            one
            for one in world.history
            if isinstance(one, SetBalloon | SetRequested) and one.definition == "live"
        ]
        asked.append([type(one).__name__ for one in live])
    assert asked == [
        ["SetRequested", "SetBalloon"],
        ["SetBalloon", "SetRequested"],
        ["SetRequested", "SetBalloon"],
        ["SetBalloon"],
    ]


# DIMMs that the guest holds


@pytest.fixture
async def dimm_world(world: VmWorld) -> VmWorld:
    await world.set(memory_technology=Technology.DIMM)
    return world


def unplugs(world: VmWorld) -> list[object]:
    return [one for one in world.history if one == UnplugDevice("ua-dimm1")]


async def test_a_pending_unplug_is_said_and_goes_on_by_itself(dimm_world: VmWorld) -> None:
    """ARK: "if the VMConfig.ResourceupdteInProgress is set, ignore the call from Kubelet for VM
    update to the same resource"; F89."""
    world = dimm_world
    uid = await world.run_vm("db", cpu="1", memory="1280Mi")
    vm = world.vm(uid)
    vm.hold()  # a suspended guest
    await world.api.resize("db", "vm", memory="768Mi")
    await says(world, "asked to give back ua-dimm1")
    assert state(world)["phase"] == "InProgress"
    assert status(world)["resourceUpdateInProgress"] is True
    assert status(world)["memoryLimitInBytesBeingUpdated"] == 768 * MIB
    await world.until(lambda: status(world)["devices"][1].get("unplug") == "pending", "it is told")
    await world.api.resize("db", "vm", memory="1Gi")  # a newer one: it waits
    await says(world, "its newest size follows when it lets go or refuses")
    await asyncio.sleep(0.3)
    assert len(unplugs(world)) == 1, "it is not disturbed"
    assert "ResizeError" not in world.api.event_reasons("db"), "nothing has failed"
    vm.release()
    await world.phase("db", "Done")
    assert_has(world, uid, 1024)
    assert len(unplugs(world)) == 1
    assert "resourceUpdateInProgress" not in status(world)


async def test_cpu_goes_through_while_a_dimm_is_held(dimm_world: VmWorld) -> None:
    world = dimm_world
    uid = await world.run_vm("db", cpu="1", memory="1280Mi")
    vm, let_go = world.vm(uid), world.vm(uid).memory._let_go
    vm.memory._let_go = lambda: None  # type: ignore[method-assign]  # all but this
    await world.api.resize("db", "vm", memory="768Mi")
    await says(world, "has not answered yet")
    await world.api.resize("db", "vm", cpu="3")
    await world.until(lambda: vm.online_vcpus == 3, "the guest has its CPUs")
    assert vm.note.memory_bytes_being_updated == 768 * MIB, "memory is still under way"
    vm.memory._let_go = let_go  # type: ignore[method-assign]
    vm.release()
    await world.phase("db", "Done")
    assert_has(world, uid, 768)


async def test_a_rejected_unplug_is_an_error_and_asked_for_again(dimm_world: VmWorld) -> None:
    world = dimm_world
    uid = await world.run_vm("db", memory="1280Mi")
    vm = world.vm(uid)
    vm.keep_dimms()
    await world.api.resize("db", "vm", memory="768Mi")
    await world.phase("db", "Error")
    await says(world, "the guest refuses to give back ua-dimm")
    await world.until(lambda: status(world)["devices"][1].get("unplug") == "rejected", "it is told")
    assert world.group_bytes(uid) == (1280 * MIB, 1280 * MIB)
    assert vm.view().persistent_memory_bytes == 1280 * MIB, "only when it has really gone"
    await world.api.resize("db", "vm", memory="1280Mi")
    await world.phase("db", "Done")
    await world.api.resize("db", "vm", memory="768Mi")
    await world.phase("db", "Error")
    vm.keep_dimms(keeps=False)
    await world.phase("db", "Done")
    assert_has(world, uid, 768)


async def test_a_silent_guest_keeps_its_dimms(dimm_world: VmWorld) -> None:
    world = dimm_world
    await world.set(boot_seconds=0.0)
    uid = await world.run_vm("db", memory="1280Mi")
    world.vm(uid).be_silent()
    await world.api.resize("db", "vm", memory="768Mi")
    await says(world, "the guest does not say whether it uses")
    assert unplugs(world) == [], "what it can spare is not known"
    world.vm(uid).speak()
    await world.phase("db", "Done")
    assert_has(world, uid, 768)


async def test_an_agent_that_restarts_finds_the_unplug_under_way(dimm_world: VmWorld) -> None:
    world = dimm_world
    uid = await world.run_vm("db", memory="1280Mi")
    world.vm(uid).hold()
    await world.api.resize("db", "vm", memory="768Mi")
    await says(world, "has not answered yet")
    await world.stop()
    world.vm(uid).release()
    await world.start()
    await world.phase("db", "Done")
    assert_has(world, uid, 768)


async def test_a_size_that_no_dimms_make_names_the_nearest(dimm_world: VmWorld) -> None:
    world = dimm_world
    uid = await world.run_vm("db", memory="768Mi")
    with pytest.raises(StatusError, match="640Mi and 768Mi"):
        await world.api.resize("db", "vm", memory="700Mi")
    await world.api.resize("db", "vm", memory="640Mi")
    await world.phase("db", "Error")
    await says(world, "no room to plug in smaller ones first")
    await says(world, f"the nearest sizes are {256 * MIB} and {768 * MIB} bytes")
    assert world.history == []
    assert world.group_bytes(uid) == (768 * MIB, 768 * MIB)


# Cells

BOOT = (CellSize(0, 128 * MIB), CellSize(1, 128 * MIB))


@pytest.mark.parametrize("technology", [Technology.VIRTIO_MEM, Technology.DIMM])
async def test_only_the_named_cell_grows_and_shrinks(
    world: VmWorld, sized: Callable[..., None], technology: Technology
) -> None:
    def with_cells(size: VmSize) -> VmSize:
        second = CellSize(1, size.memory_bytes - 128 * MIB)
        return replace(size, cells=(BOOT[0], second), boot_cells=BOOT)

    sized(with_cells)
    await world.set(memory_technology=technology)
    uid = await world.run_vm("db", memory="256Mi")
    for size in (1280, 768, 256):
        await world.api.resize("db", "vm", memory=f"{size}Mi")
        await world.phase("db", "Done")
        assert_has(world, uid, size)
        guest = world.vm(uid).view().guest
        assert guest is not None
        assert guest.memory_by_node == (128 * MIB - KERNEL_BYTES, (size - 128) * MIB)
        assert [cell["plugged"] for cell in status(world)["cells"]] == [
            "128Mi",
            f"{size - 128}Mi",
        ]
    touched = {one.alias for one in world.history if isinstance(one, SetRequested | UnplugDevice)}
    assert "ua-memory0" not in touched


# vCPUs


async def test_a_guest_without_an_agent_really_loses_vcpus(world: VmWorld) -> None:
    """decisions 24: "Without an agent: real unplug within the creation budget"."""
    await world.set(boot_seconds=0.0)
    uid = await world.run_vm("db", cpu="2", cpu_max="4")
    vm = world.vm(uid)
    vm.has_agent = False
    await world.api.resize("db", "vm", cpu="1")
    await world.phase("db", "Done")
    assert UnplugVcpus(1) in world.history
    assert not any(isinstance(one, OnlineVcpus) for one in world.history)

    def condition() -> Object | None:
        return find_condition(world.api.pod("db"), "LiveMigratable")

    await world.until(condition, "it cannot be migrated live")
    found = condition()
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "VcpusUnplugged")
    await world.api.resize("db", "vm", cpu="3")
    await world.phase("db", "Done")
    assert vm.created_vcpus == 4
    await world.api.resize("db", "vm", cpu="2")
    await world.phase("db", "Error")
    await says(world, "1 CPUs that are unplugged could not come back")
    assert vm.plugged_vcpus == 3
    await world.api.resize("db", "vm", cpu="4")
    await says(world, "1 more need a restart of it")
    assert vm.running
    world.machine.exit(uid, "vm", 137)
    await world.phase("db", "Done")
    await world.until(lambda: condition() is None, "after a restart it can")


async def test_vcpus_come_in_whole_sockets(world: VmWorld, sized: Callable[..., None]) -> None:
    sized(lambda size: replace(size, topology=VmTopology(cores=2, threads=1)))
    uid = await world.run_vm("db", cpu="2")
    await world.api.resize("db", "vm", cpu="3")
    await says(world, "its sockets have 2 CPUs each, not 3; the nearest are 2 and 4")
    assert world.quotas(uid) == (200_000, 200_000)
    await world.api.resize("db", "vm", cpu="4")
    await world.phase("db", "Done")
    assert world.vm(uid).online_vcpus == 4


async def test_cputune_follows_the_group_and_drift_of_it_is_driven_back(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2")
    vm = world.vm(uid)
    assert vm.tune == VmTune(2048, 200_000, 100_000)
    await world.api.resize("db", "vm", cpu="4")
    await world.phase("db", "Done")
    tuned = VmTune(4096, 400_000, 100_000)
    assert vm.tune == vm.persistent_tune == tuned
    steps = [one for one in world.history if isinstance(one, TuneCpu | PlugVcpus)]
    assert steps == [TuneCpu(tuned), PlugVcpus(4)]
    for place in ("tune", "persistent_tune"):
        setattr(vm, place, VmTune(2, 1000, 100_000))
        world.happened(uid)
        await world.until(lambda: vm.tune == vm.persistent_tune == tuned, place)


# The agent dies between any two steps

UP, DOWN = ("512Mi", "1408Mi"), ("1408Mi", "512Mi")
STEPS = {
    Technology.AUTO: {
        UP: ("safe", "note", "balloon", "guest", "request", "persist", "clear"),
        DOWN: ("safe", "note", "request", "guest", "balloon", "persist", "clear"),
    },
    Technology.DIMM: {
        UP: ("safe", "note", "plug", "guest", "persist", "clear"),
        DOWN: ("safe", "note", "unplug", "guest", "persist", "clear"),
    },
    Technology.BALLOON: {
        UP: ("safe", "note", "balloon", "guest", "persist", "clear"),
        DOWN: ("safe", "note", "balloon", "guest", "persist", "clear"),
    },
}
POINTS = [
    pytest.param(technology, change, step, id=f"{technology}-{change[1]}-{step}")
    for technology, changes in STEPS.items()
    for change, steps in changes.items()
    for step in steps
]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(("technology", "change", "step"), POINTS)
async def test_a_change_completes_after_a_crash(
    tmp_path: Path,
    sized: Callable[..., None],
    technology: Technology,
    change: tuple[str, str],
    step: str,
    side: str,
) -> None:
    if technology is Technology.AUTO:
        sized(lambda size: replace(size, boot_memory_bytes=GIB, min_memory_bytes=256 * MIB))
    world = VmWorld(tmp_path)
    world.settings = replace(world.settings, memory_technology=technology)
    await world.start(CrashAt(f"resize/vm:memory:{step}/{side}"))
    uid = await world.run_vm("db", memory=change[0])
    await world.api.resize("db", "vm", memory=change[1])
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert_has(world, uid, int(change[1].removesuffix("Mi")))
    assert world.violations == []
    assert world.vm(uid).memory.panics == 0
    await world.stop()
