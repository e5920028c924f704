"""The knobs of the fake machine; what it promises like a real one is in the contract suite."""

from __future__ import annotations

import asyncio

import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.context import system_context
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    MemoryInUseError,
    PodConfig,
    PodGroup,
    RuntimeCallError,
    RuntimeEvent,
)

MIB = 1024 * 1024
POD = PodGroup("u")
MAIN = ContainerGroup("u", "main")


@pytest.fixture
def world() -> FakeMachine:
    return FakeMachine(system_context())


@pytest.fixture
async def runtime(world: FakeMachine) -> FakeRuntime:
    runtime = FakeRuntime(context=world.context, machine=world)
    await runtime.open()
    limits = KernelLimits(1024, 100_000, 128 * MIB)
    await runtime.create_pod(PodConfig("u", "default", "db", limits))
    config = ContainerConfig(
        pod_uid="u",
        name="main",
        image=FAKE_IMAGE,
        command=(),
        args=(),
        env=(),
        working_dir="",
        hostname="db",
        limits=KernelLimits(512, 50_000, 64 * MIB),
    )
    await runtime.start_container(config)
    return runtime


async def test_only_the_next_write_fails(world: FakeMachine, runtime: FakeRuntime) -> None:
    world.fail_next_write(MAIN, RuntimeCallError("the disk is on fire"))
    with pytest.raises(RuntimeCallError, match="on fire"):
        await runtime.write(MAIN, SetCpu(512, 20_000))
    assert runtime.read(MAIN).limits.cpu_quota_us == 50_000
    await runtime.write(MAIN, SetCpu(512, 20_000))
    assert world.writes == [(MAIN, SetCpu(512, 20_000))]


async def test_held_writes_wait_for_their_release(world: FakeMachine, runtime: FakeRuntime) -> None:
    world.hold_writes(MAIN)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(runtime.write(MAIN, SetCpu(512, 20_000)))
        await runtime.write(POD, SetCpu(1024, 90_000))
        assert not waiting.done()
        world.release_writes(MAIN)
    assert [group for group, _ in world.writes] == [POD, MAIN]


async def test_memory_in_use_decides_about_a_shrink(
    world: FakeMachine, runtime: FakeRuntime
) -> None:
    world.use_memory("u", "main", 40 * MIB)
    with pytest.raises(MemoryInUseError):
        await runtime.write(MAIN, SetMemory(32 * MIB))
    world.use_memory("u", "main", 20 * MIB)
    await runtime.write(MAIN, SetMemory(32 * MIB))
    assert runtime.read(MAIN).limits.memory_limit_bytes == 32 * MIB


async def test_more_than_the_limit_kills_and_tells(
    world: FakeMachine, runtime: FakeRuntime
) -> None:
    events = runtime.events()
    world.use_memory("u", "main", 65 * MIB)
    assert await anext(events) == RuntimeEvent("u", "main")
    pod = runtime.pod("u")
    assert pod is not None
    assert pod.containers[0].oom_killed


async def test_somebody_else_may_change_a_group(world: FakeMachine, runtime: FakeRuntime) -> None:
    world.set_limits(MAIN, KernelLimits(2, None, None))
    assert runtime.read(MAIN).limits == KernelLimits(2, None, None)


async def test_version_2_lets_a_child_have_more_than_its_parent(runtime: FakeRuntime) -> None:
    runtime.world.version = CgroupVersion.V2
    await runtime.write(MAIN, SetCpu(512, 500_000))
    assert runtime.read(MAIN).limits.cpu_quota_us == 500_000
