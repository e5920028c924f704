"""A promise that a newer request overtakes before it was applied, or told."""

from __future__ import annotations

from livesize.agent.allocation.ledger import footprint_of
from livesize.api.objects import Object
from livesize.api.resize_state import allocated_sizes
from livesize.runtime.interface import ContainerGroup, ContainerPhase, PodGroup
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

RESTARTS = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
MIB = 1 << 20


def allocated_cpu(pod: Object) -> str:
    return str(allocated_sizes(pod)["app"]["requests"]["cpu"])


def has_ended(world: World, uid: str) -> bool:
    return world.machine.pods[uid].containers["app"].phase is ContainerPhase.EXITED


async def test_what_is_allocated_is_told_with_the_refusal_of_what_came_after(world: World) -> None:
    """The first was accepted and applied; that its answer found a newer request took its words
    away, and the API went on to count the old size."""
    await world.start()
    await world.api.run_pod("db", container(cpu="500m"))
    uid = await world.running("db")
    with world.client.deaf():
        await world.api.resize("db", "app", cpu="1")
        await world.api.resize("db", "app", cpu="64")
    await world.phase("db", "Infeasible")
    await world.until(lambda: world.quota_us(uid) == 100_000, "the first is applied")
    assert allocated_cpu(world.api.pod("db")) == "1"


async def test_what_was_taken_back_at_once_leaves_no_room_taken(world: World) -> None:
    """Back at the size it has: there is nothing to apply, and the room of the larger promise was
    never given back."""
    await world.start()
    await world.api.run_pod("db", container(cpu="500m"))
    uid = await world.running("db")
    with world.client.deaf():
        await world.api.resize("db", "app", cpu="3")
        await world.api.resize("db", "app", cpu="500m")
    await world.phase("db", "Done")
    assert world.agent is not None
    ledger = world.agent._admission.ledger
    entry = ledger.get(uid)
    assert entry is not None
    assert footprint_of(entry).cpu_milli == ledger.used.cpu_milli == 500


async def test_a_container_restarts_at_the_size_its_pod_was_made_ready_for(world: World) -> None:
    """A larger promise came while it was stopped: started at that size, it would have had more
    than its pod."""
    await world.start()
    await world.api.run_pod("db", container(memory="64Mi", resizePolicy=RESTARTS))
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    await world.api.resize("db", "app", memory="32Mi")
    await world.until(lambda: has_ended(world, uid), "it is stopped")
    await world.api.resize("db", "app", memory="256Mi")
    sizes: list[tuple[int, int]] = []
    group, real = ContainerGroup(uid, "app"), world.machine.apply

    def apply(at: object, change: object) -> None:
        real(at, change)  # type: ignore[arg-type]
        inner, outer = (world.machine.groups.get(one) for one in (group, PodGroup(uid)))
        if inner is not None and outer is not None:
            sizes.append(
                (inner.limits.memory_limit_bytes or 0, outer.limits.memory_limit_bytes or 0)
            )

    world.machine.apply = apply  # type: ignore[method-assign]
    world.machine.release_writes(PodGroup(uid))
    await world.phase("db", "Done")
    assert sizes[-1] == (256 * MIB, 256 * MIB)
    assert all(inner <= outer for inner, outer in sizes)
