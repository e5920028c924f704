"""The agent dies between any two steps; a new one converges, and restarts no workload twice."""

from __future__ import annotations

import pytest

from livesize.agent.allocation.memory_file import MemoryDisk
from livesize.api.objects import uid_of
from livesize.api.resize_state import resize_state
from unit.agent.world import CrashAt, World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1024 * 1024
POLICY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def points(plan: str, *steps: str) -> list[str]:
    return [f"{plan}/{step}/{side}" for step in steps for side in ("before", "after")]


LIVE = points(
    "resize",
    "checkpoint",
    "accept",
    "pod:cpu",
    "container:app:cpu",
    "pod:memory",
    "container:app:memory",
    "actuated",
    "report",
)
RESTART = points(
    "resize", "checkpoint", "accept", "stop:app", "pod:memory", "start:app", "actuated", "report"
)
REMOVE = points("remove", "stop", "remove", "forget", "delete")


async def test_these_are_all_the_crash_points_of_a_resize(world: World) -> None:
    crash = CrashAt()
    await world.start(crash)
    await world.api.run_pod("db", container())
    await world.running("db")
    await world.api.resize("db", "app", cpu="1", memory="128Mi")
    await world.phase("db", "Done")
    assert [point for point in crash.reached if point.startswith("resize/")] == LIVE


@pytest.mark.parametrize("point", LIVE)
async def test_a_live_resize_completes_after_a_crash_and_restarts_nothing(
    world: World, point: str
) -> None:
    await world.start(CrashAt(point))
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    pid = world.pid(uid)
    await world.api.resize("db", "app", cpu="1", memory="128Mi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert (world.quota_us(uid), world.pod_quota_us(uid)) == (100_000, 100_000)
    assert world.memory_bytes(uid) == 128 * MIB
    assert (world.pid(uid), world.attempt(uid)) == (pid, 0)


@pytest.mark.parametrize("point", RESTART)
async def test_a_restart_by_policy_happens_exactly_once_over_a_crash(
    world: World, point: str
) -> None:
    await world.start(CrashAt(point))
    app = container("app", resizePolicy=POLICY)
    await world.api.run_pod("db", app, container("side"), restartPolicy="OnFailure")
    uid = await world.running("db")
    side_pid = world.pid(uid, "side")
    await world.api.resize("db", "app", memory="128Mi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert world.attempt(uid, "app") == 1
    assert world.pid(uid, "side") == side_pid
    assert world.memory_bytes(uid) == 128 * MIB
    assert world.starts == 3, "two containers, and one of them once more"


@pytest.mark.parametrize("point", points("begin", "checkpoint", "group") + points("start", "app"))
async def test_a_start_completes_after_a_crash_with_one_container(world: World, point: str) -> None:
    await world.start(CrashAt(point))
    await world.api.run_pod("db", container())
    await world.crashed()
    await world.start()
    uid = await world.running("db")
    assert world.attempt(uid) == 0
    assert world.quota_us(uid) == 50_000


@pytest.mark.parametrize("point", REMOVE)
async def test_a_delete_completes_after_a_crash(world: World, point: str) -> None:
    await world.start(CrashAt(point))
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.mark_deleted("db")
    await world.crashed()
    await world.start()
    await world.until(lambda: not world.api.has("db"), "the object is gone")
    assert uid not in world.machine.pods
    await world.stop()
    assert await world.checkpointed() == ()


async def test_pods_are_admitted_at_allocated_before_resizes_are_judged(world: World) -> None:
    """ARK: "all Pods are admitted at their current ResourcesAllocated values, and resizes are
    handled after all existing Pods have been added". The checkpoint is lost, so that no pod counts
    before it is admitted anew."""
    await world.start()
    await world.api.run_pod("first", container(cpu="1"))
    await world.running("first")
    await world.api.run_pod("second", container(cpu="2"))
    second = await world.running("second")
    pid = world.pid(second)
    await world.stop()
    world.disk = MemoryDisk()
    await world.api.resize("first", "app", cpu="3")
    await world.start()
    await world.phase("first", "Deferred")
    assert world.pid(second) == pid
    assert world.api.pod("second")["status"]["phase"] == "Running"


async def test_a_pod_that_was_bound_meanwhile_comes_before_resizes_of_others(world: World) -> None:
    """It was promised the room by the scheduler, before the resize was judged by anybody."""
    await world.start()
    await world.api.run_pod("first", container(cpu="1"))
    await world.running("first")
    await world.stop()
    await world.api.resize("first", "app", cpu="3")
    await world.api.run_pod("second", container(cpu="2"))
    await world.start()
    await world.phase("first", "Deferred")
    await world.running("second")


async def test_a_lost_checkpoint_is_rebuilt_from_what_runs_and_what_the_api_says(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod("db", container(cpu="3"))
    uid = await world.running("db")
    pid = world.pid(uid)
    await world.stop()
    world.disk = MemoryDisk()
    await world.api.resize("db", "app", cpu="2")
    await world.start()
    await world.phase("db", "Done")
    assert (world.pid(uid), world.quota_us(uid)) == (pid, 200_000)


async def test_a_pod_deleted_while_no_agent_looked_is_taken_off_the_machine(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.stop()
    await world.api.vanish("db")
    await world.start()
    await world.until(lambda: uid not in world.machine.pods, "it is gone")


async def test_what_was_deferred_is_judged_again_and_said_only_once(world: World) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="3"))
    await world.api.run_pod("db", container())
    await world.running("big")
    await world.running("db")
    await world.api.resize("db", "app", cpu="2")
    await world.phase("db", "Deferred")
    await world.stop()
    await world.start()
    await world.api.mark_deleted("big")
    await world.phase("db", "Done")
    told = ["None", "Requested", "Deferred", "InProgress", "Done"]
    assert (await world.api.told("db")) == told


async def test_promises_are_durable_before_the_machine_is_touched(world: World) -> None:
    await world.start(CrashAt("resize/pod:cpu/before"))
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.resize("db", "app", cpu="1")
    await world.crashed()
    assert world.quota_us(uid) == 50_000
    (entry,) = await world.checkpointed()
    assert entry.uid == uid_of(world.api.pod("db"))
    assert entry.allocated[0]["requests"]["cpu"] == "1"
    assert entry.actuated[0]["requests"]["cpu"] == "500m"
    assert entry.generation == resize_state(world.api.pod("db"))["generation"]
