"""A VM's resize is done when the guest's own figure says so, not when memory is plugged in.

A stock kernel leaves added memory offline. Once the first wait had failed, the second attempt found
everything plugged in and called it Done, though the guest had nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.agent.vm.memory.facts import is_seen
from livesize.agent.vm.plan import VmFacts, plan_vm_resize
from livesize.api.conditions import find_condition
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.api.vm_changes import OnlineMemory, VmChange
from livesize.api.vm_size import MemoryBase
from livesize.runtime.fake_vm_memory import KERNEL_BYTES
from unit.agent.test_vm_plan import facts, groups, limits, target
from unit.agent.vm_world import MIB, VmWorld, start_with
from virtual_time import virtual_time

pytestmark = virtual_time

LACKS = "it has no qemu-guest-agent that could bring them online"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    made = VmWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()
    assert made.violations == []


def state(world: VmWorld) -> Object:
    return resize_state(world.api.pod("db"))


async def stock_guest(world: VmWorld, memory: str = "512Mi") -> str:
    uid = await world.run_vm("db", memory=memory)
    world.vm(uid).onlines_by_itself = False
    return uid


async def failed_often(world: VmWorld) -> None:
    """Several attempts have begun and ended: each waits for ``guest_seconds``."""
    await world.clock.sleep(10 * world.settings.guest_seconds)


async def test_memory_that_stays_offline_is_brought_online_by_the_agent(world: VmWorld) -> None:
    uid = await stock_guest(world)
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    assert OnlineMemory() in world.history
    vm = world.vm(uid)
    assert vm.offline_bytes == 0
    seen = lookup(world.api.pod("db"), "status", "virtualMachineStatus", "guest", "memorySeen")
    assert seen == f"{1024 - KERNEL_BYTES // MIB}Mi"
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Done")
    assert vm.plugged_bytes == 512 * MIB


async def test_without_an_agent_it_is_in_progress_and_says_what_the_guest_lacks(
    world: VmWorld,
) -> None:
    uid = await stock_guest(world)
    vm = world.vm(uid)
    vm.has_agent = False
    await world.api.resize("db", "vm", memory="1Gi")
    await world.until(lambda: LACKS in state(world)["message"], "it says what the guest lacks")
    await failed_often(world)
    assert state(world)["phase"] == "InProgress"
    assert "1Gi are plugged in, of which the guest does not use 504Mi" in state(world)["message"]
    condition = find_condition(world.api.served("db"), "PodResizeInProgress")
    assert condition is not None
    assert "reason" not in condition, "nothing failed"
    assert start_with(1024 * MIB) not in world.history
    vm.offline_bytes = 0  # somebody has done it by hand
    vm.release()
    await world.phase("db", "Done")


async def test_a_restart_of_the_agent_and_of_the_guest_do_not_make_it_done(world: VmWorld) -> None:
    uid = await stock_guest(world)
    vm = world.vm(uid)
    vm.has_agent = False
    await world.api.resize("db", "vm", memory="1Gi")
    await world.until(lambda: LACKS in state(world)["message"], "it says what the guest lacks")
    await world.stop()
    await world.start()
    vm.reboot()
    await failed_often(world)
    assert state(world)["phase"] == "InProgress"
    vm.has_agent = True
    vm.release()
    await world.phase("db", "Done")


async def test_going_back_is_done_though_the_guest_never_had_it(world: VmWorld) -> None:
    uid = await stock_guest(world)
    world.vm(uid).has_agent = False
    await world.api.resize("db", "vm", memory="1Gi")
    await world.until(lambda: LACKS in state(world)["message"], "it says what the guest lacks")
    await world.api.resize("db", "vm", memory="512Mi")
    await world.phase("db", "Done")
    assert world.vm(uid).plugged_bytes == 512 * MIB


async def test_nothing_is_brought_online_while_memory_is_given_back(world: VmWorld) -> None:
    """What a guest is about to give back is offline for a moment."""
    await world.set(guest_seconds=60.0)
    uid = await world.run_vm("db", memory="1Gi")
    vm = world.vm(uid)
    vm.hold()
    await world.api.resize("db", "vm", memory="512Mi")
    await world.until(lambda: "to go" in state(world)["message"], "it takes its time")
    await world.clock.sleep(5 * world.settings.progress_seconds)
    assert OnlineMemory() not in world.history
    vm.release()
    await world.phase("db", "Done")


async def test_where_the_agent_may_run_nothing_it_is_said_that_a_shrink_may_be_refused(
    world: VmWorld,
) -> None:
    uid = await stock_guest(world)
    world.vm(uid).agent_may_exec = False
    await world.api.resize("db", "vm", memory="1Gi")
    await world.phase("db", "Done")
    condition = find_condition(world.api.served("db"), "PodResized")
    assert condition is not None
    assert "may refuse to give it back in a later shrink" in condition["message"]
    assert "guest-exec" in condition["message"]


async def test_a_guest_that_says_nothing_is_in_progress_and_says_what_it_lacks(
    world: VmWorld,
) -> None:
    await world.set(boot_seconds=0.0)
    uid = await world.run_vm("db")
    world.vm(uid).be_silent()
    await world.api.resize("db", "vm", memory="1Gi")
    words = "install and start qemu-guest-agent in it"
    await world.until(lambda: words in state(world)["message"], words)
    await failed_often(world)
    assert state(world)["phase"] == "InProgress"
    world.vm(uid).speak()
    await world.phase("db", "Done")


async def test_what_is_offline_after_a_boot_is_brought_online(world: VmWorld) -> None:
    """A guest that reboots has what was plugged in before offline again."""
    uid = await world.run_vm("db", memory="1Gi")
    vm = world.vm(uid)
    vm.onlines_by_itself = False
    for boot in (1, 2):
        vm.reboot()
        assert vm.offline_bytes == 768 * MIB
        world.happened(uid)
        await world.until(lambda: vm.offline_bytes == 0, "it is used")
        assert world.history.count(OnlineMemory()) == boot


async def test_a_guest_that_does_not_follow_is_asked_once_for_each_boot(world: VmWorld) -> None:
    uid = await world.run_vm("db", memory="1Gi")
    vm = world.vm(uid)
    world.refuses[OnlineMemory] = "it allows nothing"
    asked: list[object] = []
    vm.onlines_by_itself = False
    runtime, change = world._runtime, world._runtime.change_vm

    async def counted(pod_uid: str, what: VmChange) -> None:
        asked.append(what)
        await change(pod_uid, what)

    runtime.change_vm = counted  # type: ignore[method-assign]
    vm.reboot()
    world.happened(uid)
    await world.until(lambda: asked, "it was asked")
    for _ in range(5):
        world.happened(uid)
        await world.clock.sleep(0.02)
    assert asked == [OnlineMemory()]


BASE = MemoryBase(512 * MIB, 472 * MIB, "b")


def seen(plugged: int, total: int, boot_id: str = "b") -> VmFacts:
    return facts(
        1,
        plugged,
        seen_bytes=total * MIB,
        boot_id=boot_id,
        noted_bytes=plugged * MIB,
        noted_base=BASE,
        boot_bytes=512 * MIB,
    )


@pytest.mark.parametrize(
    ("now", "base", "is_there"),
    [
        pytest.param(seen(1024, 984), BASE, True, id="all of it"),
        pytest.param(seen(1024, 472), BASE, False, id="nothing"),
        pytest.param(seen(1024, 984 - 8), BASE, True, id="but for the books of its pages"),
        pytest.param(seen(1024, 984 - 9), BASE, False, id="more than the books"),
        pytest.param(seen(1024, 984 - 20, "c"), BASE, True, id="another boot keeps a little more"),
        pytest.param(seen(1024, 984 - 128, "c"), BASE, False, id="a block, after another boot"),
        pytest.param(seen(1024, 1000), BASE, True, id="blocks from before came along"),
        pytest.param(seen(256, 300), BASE, True, id="of a shrink what was offline went first"),
        pytest.param(seen(1024, 900), None, True, id="not noted: as much as a kernel keeps"),
        pytest.param(seen(1024, 472), None, False, id="not noted: more than a kernel keeps"),
    ],
)
def test_the_guests_own_figure(now: VmFacts, base: MemoryBase | None, is_there: bool) -> None:
    assert is_seen(now.memory, base) is is_there


def test_memory_that_is_plugged_and_not_seen_is_not_in_step() -> None:
    plan = plan_vm_resize(seen(1024, 472), groups(limits(1, 1024)), target(1, 1024))
    assert "vm:memory:guest" in [step.name for step in plan.steps]
