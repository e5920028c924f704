"""The agent dies between any two steps of a VM's resize; a new one finishes it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion
from livesize.api.resize_state import resize_state
from livesize.api.vm_changes import VmNote
from livesize.runtime.vm import Accelerator
from unit.agent.vm_world import MIB, VmWorld
from unit.agent.world import CrashAt
from virtual_time import virtual_time

pytestmark = virtual_time

GROW = [
    *("checkpoint", "accept"),
    *("pod:cpu", "container:vm:cpu", "vm:vcpus:tune", "vm:vcpus:safe"),
    *("vm:vcpus:plug", "vm:vcpus:guest", "vm:vcpus:persist"),
    *("pod:memory", "container:vm:memory", "vm:memory:safe"),
    *("vm:memory:note", "vm:memory:request", "vm:memory:guest", "vm:memory:persist"),
    *("vm:memory:clear", "actuated", "report"),
]
SHRINK = [
    *("checkpoint", "accept"),
    *("vm:vcpus:safe", "vm:vcpus:online", "vm:vcpus:guest", "vm:vcpus:persist"),
    *("vm:vcpus:tune", "container:vm:cpu", "pod:cpu", "freed:cpu"),
    *(
        "vm:memory:safe",
        "vm:memory:note",
        "vm:memory:request",
        "vm:memory:guest",
        "vm:memory:persist",
    ),
    *("vm:memory:clear", "container:vm:memory", "pod:memory"),
    *("actuated", "report"),
]


def points(steps: list[str]) -> list[str]:
    return [f"resize/{step}/{side}" for step in steps for side in ("before", "after")]


def assert_in_step(world: VmWorld, uid: str, vcpus: int, memory: int) -> None:
    vm = world.vm(uid)
    assert (vm.online_vcpus, vm.persistent_vcpus) == (vcpus, vcpus)
    assert {vm.requested_bytes, vm.plugged_bytes, vm.persistent_bytes} == {memory * MIB}
    assert vm.note == VmNote()
    assert world.group_bytes(uid) == (memory * MIB, memory * MIB)
    assert world.quotas(uid) == (vcpus * CPU_PERIOD_US, vcpus * CPU_PERIOD_US)
    assert (vm.boots, world.attempt(uid, "vm")) == (1, 0)
    assert world.violations == []


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        pytest.param(("1", "512Mi"), ("3", "1Gi"), GROW, id="grow"),
        pytest.param(("3", "1Gi"), ("1", "512Mi"), SHRINK, id="shrink"),
    ],
)
async def test_these_are_all_the_crash_points(
    tmp_path: Path, before: tuple[str, str], after: tuple[str, str], steps: list[str]
) -> None:
    world, crash = VmWorld(tmp_path), CrashAt()
    await world.start(crash)
    await world.run_vm("db", *before)
    await world.api.resize("db", "vm", cpu=after[0], memory=after[1])
    await world.phase("db", "Done")
    await world.stop()
    assert [one for one in crash.reached if one.startswith("resize/")] == points(steps)
    told = [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]
    assert told == steps[:-1], "the history has every step but the one that posts it"


@pytest.mark.parametrize("point", points(GROW))
async def test_growth_completes_after_a_crash(tmp_path: Path, point: str) -> None:
    world = VmWorld(tmp_path)
    await world.start(CrashAt(point))
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    await world.api.resize("db", "vm", cpu="3", memory="1Gi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert_in_step(world, uid, 3, 1024)
    await world.stop()


@pytest.mark.parametrize("point", points(SHRINK))
async def test_a_shrink_completes_after_a_crash(tmp_path: Path, point: str) -> None:
    world = VmWorld(tmp_path)
    await world.start(CrashAt(point))
    uid = await world.run_vm("db", cpu="3", memory="1Gi")
    await world.api.resize("db", "vm", cpu="1", memory="512Mi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert_in_step(world, uid, 1, 512)
    await world.stop()


@pytest.mark.parametrize("accelerator", list(Accelerator))
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_random_walk_with_crashes_ends_where_it_was_told_to(
    tmp_path: Path, seed: int, accelerator: Accelerator
) -> None:
    source = random.Random(seed)
    world = VmWorld(tmp_path, CgroupVersion(seed), accelerator)
    await world.start()
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    vcpus, memory = 1, 512
    for _ in range(25):
        vcpus, memory = source.randint(1, 6), 2 * source.randint(128, 1000)
        await world.api.resize("db", "vm", cpu=str(vcpus), memory=f"{memory}Mi")
        match source.randrange(4):
            case 0:
                await world.stop()
                await world.start()
            case 1:
                world.vm(uid).use_memory(source.randint(20, 200) * MIB)
            case 2:
                await world.phase("db", "Done")
                assert_in_step(world, uid, vcpus, memory)
            case _:
                pass
    world.vm(uid).use_memory(20 * MIB)
    await world.phase("db", "Done")
    assert_in_step(world, uid, vcpus, memory)
    await world.stop()
