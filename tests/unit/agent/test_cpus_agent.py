"""The static CPU policy from the API to the machine: the whole agent on a machine in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.cpus.plan import CpuSupply, shared_pool
from livesize.agent.cpus.pool import CpuPool
from livesize.api.group_changes import SetCpus
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import lookup
from livesize.api.resources import Amounts
from livesize.machinery.context import system_context
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    ContainerView,
    PodConfig,
    RuntimeCallError,
)
from unit.agent.world import CrashAt, World, container
from virtual_time import virtual_time

pytestmark = virtual_time

SUPPLY = CpuSupply((0, 1, 2, 3, 4, 5), (0,))
LIMITS = KernelLimits(100, None, None)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.machine.facts = msgspec.structs.replace(world.machine.facts, cpu_milli=6000)
    world.settings = msgspec.structs.replace(
        world.settings, cpus=SUPPLY, allocatable_cpu_milli=6000
    )
    yield world
    await world.stop()


def cpus(world: World, uid: str, name: str = "app") -> tuple[int, ...] | None:
    return world.machine.group(ContainerGroup(uid, name)).cpus


def bindings(world: World) -> list[tuple[str, tuple[int, ...]]]:
    """What was bound while it ran, in order."""
    return [
        (group.pod_uid, change.cpus)
        for group, change in world.machine.writes
        if isinstance(change, SetCpus)
    ]


async def test_exclusive_cpus_move_one_three_two_and_the_pool_around_them(world: World) -> None:
    await world.start()
    await world.api.run_pod("shared", container(cpu="200m"))
    shared = await world.running("shared")
    assert cpus(world, shared) == (0, 1, 2, 3, 4, 5)
    await world.api.run_pod("db", container(cpu="1"))
    db = await world.running("db")
    assert (cpus(world, db), cpus(world, shared)) == ((1,), (0, 2, 3, 4, 5))

    await world.api.resize("db", "app", cpu="3")
    await world.phase("db", "Done")
    assert (cpus(world, db), cpus(world, shared)) == ((1, 2, 3), (0, 4, 5))

    await world.api.resize("db", "app", cpu="2")
    await world.phase("db", "Done")
    assert cpus(world, db) == (1, 2)
    await world.until(lambda: cpus(world, shared) == (0, 3, 4, 5), "the pool is wider again")

    await world.api.mark_deleted("db")
    await world.until(lambda: cpus(world, shared) == SUPPLY.usable, "all is shared again")
    assert bindings(world) == [
        (shared, (0, 2, 3, 4, 5)),  # left before it is given to db
        (shared, (0, 4, 5)),
        (db, (1, 2, 3)),
        (db, (1, 2)),
        (shared, (0, 3, 4, 5)),  # shared after it was given up
        (shared, SUPPLY.usable),
    ]
    assert world.starts == 2, "nothing restarted"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"cpu": "1500m"}, "is not whole", id="not whole"),
        pytest.param({"cpu": "6"}, "exclusive CPUs (static CPU policy)", id="all: no pool left"),
    ],
)
async def test_what_can_never_be_is_infeasible_with_an_event(
    world: World, words: dict[str, str], message: str
) -> None:
    await world.start()
    await world.api.run_pod("db", container(cpu="1"))
    db = await world.running("db")
    await world.api.resize("db", "app", **words)
    await world.phase("db", "Infeasible")
    assert message in lookup(world.api.pod("db"), "status", "resizeState", "message")
    await world.until(
        lambda: "ResizeInfeasible" in world.api.event_reasons("db"), "an event says so"
    )
    assert cpus(world, db) == (1,)


async def test_cpu_of_pods_that_share_is_resized_in_whole_cpus_too(world: World) -> None:
    await world.start()
    await world.api.run_pod("small", container(cpu="500m"))
    small = await world.running("small")
    await world.api.resize("small", "app", cpu="600m")
    await world.phase("small", "Infeasible")
    await world.api.resize("small", "app", cpu="500m", memory="32Mi")
    await world.phase("small", "Done")
    assert world.memory_bytes(small) == 32 * 1024 * 1024
    await world.api.resize("small", "app", cpu="2")
    await world.phase("small", "Done")
    assert cpus(world, small) == (1, 2), "Guaranteed and whole: now it has them alone"


async def test_growth_waits_for_cpus_and_is_done_when_a_neighbour_gives_them_up(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod("a", container(cpu="2"))
    a = await world.running("a")
    await world.api.run_pod("b", container(cpu="3"))
    b = await world.running("b")
    await world.api.resize("a", "app", cpu="3")
    await world.phase("a", "Deferred")
    assert "free: 2, capacity: 5" in lookup(world.api.pod("a"), "status", "resizeState", "message")
    await world.api.resize("b", "app", cpu="1")
    await world.phase("a", "Done")
    assert (cpus(world, a), cpus(world, b)) == ((1, 2, 4), (3,))


async def test_a_pod_for_which_there_are_too_few_is_not_admitted(world: World) -> None:
    await world.start()
    await world.api.run_pod("a", container(cpu="3"))
    await world.running("a")
    await world.api.run_pod("b", container(cpu="3"))
    await world.until(
        lambda: lookup(world.api.pod("b"), "status", "reason") == "OutOfcpu", "it is rejected"
    )


@pytest.mark.parametrize(
    "point",
    [
        f"resize/{step}/{side}"
        for step in ("checkpoint", "node:shared-cpus", "container:app:cpuset", "actuated")
        for side in ("before", "after")
    ],
)
async def test_an_agent_killed_in_the_middle_is_followed_by_one_that_finishes(
    world: World, point: str
) -> None:
    points = CrashAt()
    await world.start(points)
    await world.api.run_pod("shared", container(cpu="100m"))
    shared = await world.running("shared")
    await world.api.run_pod("db", container(cpu="2"))
    db = await world.running("db")
    points.point = point
    await world.api.resize("db", "app", cpu="4")
    await world.crashed()
    taken = set(cpus(world, db) or ())
    assert {1, 2} <= taken
    assert not taken.intersection(cpus(world, shared) or ()), "nobody has what db has"
    promised = {one.name: one.cpus for one in await world.checkpointed()}["db"]["app"]
    assert set(promised) >= taken, "durable before it was used"
    await world.start()
    await world.phase("db", "Done")
    assert (cpus(world, db), cpus(world, shared)) == ((1, 2, 3, 4), (0, 5))
    assert world.starts == 2


async def test_what_was_bound_by_hand_is_put_right(world: World) -> None:
    await world.start()
    await world.api.run_pod("shared", container(cpu="100m"))
    shared = await world.running("shared")
    await world.api.run_pod("db", container(cpu="2"))
    db = await world.running("db")
    world.machine.group(ContainerGroup(db, "app")).cpus = (4,)
    world.machine.group(ContainerGroup(shared, "app")).cpus = (1, 2)
    await world.until(lambda: cpus(world, db) == (1, 2), "db has its own again")
    await world.until(lambda: cpus(world, shared) == (0, 3, 4, 5), "and nobody else has")


async def test_without_the_policy_all_cpus_are_everybodys_again(world: World) -> None:
    await world.start()
    await world.api.run_pod("shared", container(cpu="100m"))
    shared = await world.running("shared")
    await world.api.run_pod("db", container(cpu="2"))
    db = await world.running("db")
    await world.stop()
    world.settings = msgspec.structs.replace(world.settings, cpus=None)
    await world.start()
    await world.until(
        lambda: cpus(world, db) == cpus(world, shared) == SUPPLY.usable, "all are shared"
    )
    await world.stop()
    assert [one.cpus for one in await world.checkpointed()] == [{}, {}]


async def test_cpus_go_from_one_container_to_another_on_a_full_node(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container("a", cpu="4"), container("b", cpu="1"))
    db = await world.running("db")
    assert (cpus(world, db, "a"), cpus(world, db, "b")) == ((1, 2, 3, 4), (5,))
    with world.client.deaf():
        await world.api.resize("db", "a", cpu="2")
        await world.api.resize("db", "b", cpu="3")
    await world.phase("db", "Done")
    assert cpus(world, db, "a") == (1, 2)
    assert set(cpus(world, db, "b") or ()) == {3, 4, 5}


async def test_a_container_that_restarts_to_grow_has_all_its_cpus_when_it_is_done(
    world: World,
) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    await world.start()
    await world.api.run_pod(
        "db", container("a", cpu="4"), container("b", cpu="1", resizePolicy=policy)
    )
    db = await world.running("db")
    with world.client.deaf():
        await world.api.resize("db", "a", cpu="2")
        await world.api.resize("db", "b", cpu="3")
    await world.phase("db", "Done")
    assert (cpus(world, db, "a"), cpus(world, db, "b")) == ((1, 2), (3, 4, 5))
    assert (world.attempt(db, "a"), world.attempt(db, "b")) == (0, 1)


class SlowStarts(FakeRuntime):
    """A start takes until it is let go."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__(context=system_context(), machine=machine)
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        if config.name == "slow":
            self.begun.set()
            await self.let_go.wait()
        return await super().start_container(config)


async def test_who_is_being_started_leaves_a_cpu_before_its_new_owner_gets_it() -> None:
    machine = FakeMachine(system_context(), cpu_milli=6000)
    runtime, ledger = SlowStarts(machine), Ledger(Amounts(6000, 1 << 40))
    keeper = CpuPool(runtime, ledger, lambda: shared_pool(SUPPLY, ledger.entries()))
    for uid in ("sharing", "owner"):
        ledger.record(Allocation(uid, "default", uid, 1, (), ()))
        await runtime.create_pod(PodConfig(uid, "default", uid, LIMITS))
    slow, quick = (
        ContainerConfig(uid, name, FAKE_IMAGE, (), (), (), "", "", LIMITS)
        for uid, name in (("sharing", "slow"), ("owner", "app"))
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keeper.start(slow))
        await runtime.begun.wait()
        ledger.record(Allocation("owner", "default", "owner", 1, (), (), cpus={"app": (1, 2)}))
        owner = tasks.create_task(keeper.start(quick))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not owner.done(), "it waits for the one that was started on all CPUs"
        runtime.let_go.set()
    assert machine.group(ContainerGroup("sharing", "slow")).cpus == (0, 3, 4, 5)
    assert machine.group(ContainerGroup("owner", "app")).cpus == (1, 2)


async def test_going_back_before_it_was_applied_gives_all_of_it_back(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(cpu="1"))
    db = await world.running("db")
    for _ in range(100):
        world.machine.fail_next_write(ContainerGroup(db, "app"), RuntimeCallError("busy"))
    await world.api.resize("db", "app", cpu="3")
    await world.phase("db", "Error")
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")
    assert cpus(world, db) == (1,)
    await world.api.run_pod("all-the-rest", container(cpu="4"))
    rest = await world.running("all-the-rest")
    assert cpus(world, rest) == (2, 3, 4, 5)


async def test_a_pool_that_cannot_be_narrowed_holds_up_the_growth(world: World) -> None:
    await world.start()
    await world.api.run_pod("shared", container(cpu="100m"))
    shared = await world.running("shared")
    await world.api.run_pod("db", container(cpu="1"))
    db = await world.running("db")
    group = ContainerGroup(shared, "app")
    for _ in range(5):
        world.machine.fail_next_write(group, RuntimeCallError("the kernel is busy"))
    await world.api.resize("db", "app", cpu="2")
    await world.until(lambda: "ResizeError" in world.api.event_reasons("db"), "it is told")
    await world.phase("db", "Done")
    assert (cpus(world, db), cpus(world, shared)) == ((1, 2), (0, 3, 4, 5))
