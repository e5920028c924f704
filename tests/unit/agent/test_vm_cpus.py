"""The static CPU policy and virtual machines: the group and the domain's pins go together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.agent.cpus.plan import CpuSupply
from livesize.api.group_changes import SetCpus
from livesize.api.vm_changes import OnlineVcpus, PinVcpus, PlugVcpus
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.runtime.interface import ContainerGroup
from unit.agent.vm_world import VmWorld, virtual_machine
from unit.agent.world import CrashAt, container
from virtual_time import virtual_time

pytestmark = virtual_time

SUPPLY = CpuSupply((0, 1, 2, 3, 4, 5), (0,))
ALL = SUPPLY.usable


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    world = VmWorld(tmp_path)
    world.settings = msgspec.structs.replace(
        world.settings, cpus=SUPPLY, allocatable_cpu_milli=6000
    )
    await world.start()
    yield world
    await world.stop()
    assert world.violations == []


def bound(world: VmWorld, uid: str) -> tuple[int, ...] | None:
    return world.machine.group(ContainerGroup(uid, "vm")).cpus


def pins(world: VmWorld, uid: str) -> VmPins:
    """Of the running domain and of the persistent one, which agree."""
    view = world.vm(uid).view()
    assert view.pins == view.persistent_pins
    return view.pins


def moves(world: VmWorld) -> list[object]:
    """What was done to CPUs, in order."""
    kinds = (SetCpus, PinVcpus, PlugVcpus, OnlineVcpus)
    plain = [one[1] if isinstance(one, tuple) else one for one in world.history]
    return [one for one in plain if isinstance(one, kinds)]


async def shared_vm(world: VmWorld, name: str, requested: str = "1") -> str:
    """One whose limit is above its request: it shares."""
    vm = virtual_machine("2", "512Mi")
    vm["resources"]["requests"] = {**vm["resources"]["requests"], "cpu": requested}
    await world.api.run_pod(name, virtualMachine=vm)
    uid = await world.running(name)
    await world.until(lambda: world.vm_state(name) == "Running", "the guest is heard")
    return uid


async def test_a_vm_has_its_cpus_alone_one_for_each_vcpu(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2")
    assert (bound(world, uid), pins(world, uid)) == ((1, 2), VmPins(((1,), (2,)), (1, 2)))
    assert moves(world) == [], "it was started so"


async def test_vcpus_that_stay_never_move(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="1")
    await world.api.resize("db", "vm", cpu="3")
    await world.phase("db", "Done")
    grown = VmPins(((1,), (2,), (3,)), (1, 2, 3))
    assert (bound(world, uid), pins(world, uid)) == ((1, 2, 3), grown)
    assert moves(world) == [SetCpus((1, 2, 3)), PlugVcpus(3), PinVcpus(grown)]

    world.history.clear()
    await world.api.resize("db", "vm", cpu="2")
    await world.phase("db", "Done")
    left = VmPins(((1,), (2,), (1, 2)), (1, 2))  # the third is plugged in, and switched off
    assert (bound(world, uid), pins(world, uid)) == ((1, 2), left)
    assert moves(world) == [OnlineVcpus(2), SetCpus((1, 2)), PinVcpus(left)]
    assert (world.vm(uid).boots, world.attempt(uid, "vm")) == (1, 0), "nothing restarted"


async def test_a_vm_that_shares_follows_the_pool(world: VmWorld) -> None:
    uid = await shared_vm(world, "web")
    assert pins(world, uid) == VmPins((ALL, ALL), ALL)
    await world.api.run_pod("alone", container(cpu="2"))
    await world.running("alone")
    rest = (0, 3, 4, 5)
    assert bound(world, uid) == rest, "before somebody else has them"
    await world.until(lambda: pins(world, uid) == VmPins((rest, rest), rest), "the domain follows")
    await world.api.mark_deleted("alone")
    await world.until(lambda: pins(world, uid) == VmPins((ALL, ALL), ALL), "all is shared again")
    assert world.api.event_reasons("web").count("ResizeError") == 0


@pytest.mark.parametrize(
    "point",
    [
        f"resize/{step}/{side}"
        for step in ("container:vm:cpuset", "vm:vcpus:plug", "vm:vcpus:pin")
        for side in ("before", "after")
    ],
)
async def test_an_agent_killed_in_the_middle_is_followed_by_one_that_finishes(
    world: VmWorld, point: str
) -> None:
    uid = await world.run_vm("db", cpu="1")
    await world.stop()
    await world.start(CrashAt(point))
    await world.api.resize("db", "vm", cpu="2")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert (bound(world, uid), pins(world, uid)) == ((1, 2), VmPins(((1,), (2,)), (1, 2)))


async def test_what_was_pinned_by_hand_comes_back(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2")
    wanted = pins(world, uid)
    world.vm(uid).pins = VmPins(((4,), (5,)), (5,))
    world.happened(uid)
    await world.until(lambda: world.vm(uid).pins == wanted, "each has its own again")


async def test_a_restarted_vm_has_the_same_cpus(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2")
    before = pins(world, uid)
    await world.api.run_pod("late", container(cpu="1"))
    await world.running("late")
    world.machine.exit(uid, "vm", 1)
    await world.until(lambda: world.attempt(uid, "vm") == 1, "it was started again")
    assert (bound(world, uid), pins(world, uid)) == ((1, 2), before)


async def test_without_the_policy_no_vm_is_held_to_any_cpu(world: VmWorld) -> None:
    uid = await world.run_vm("db", cpu="2")
    await world.stop()
    world.settings = msgspec.structs.replace(world.settings, cpus=None)
    await world.start()
    cpus = world.machine.cpus
    await world.until(lambda: pins(world, uid) == VmPins((cpus, cpus), cpus), "it may use all")
    new = await world.run_vm("new", cpu="1")
    assert (bound(world, new), pins(world, new)) == (None, UNPINNED)
