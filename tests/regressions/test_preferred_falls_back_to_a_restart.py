"""InPlaceResizePreferred never fell back on a pod (IBM: "realized preferrably without pod restart
but if that fails for any reason to accomplish it with a pod restart"; decisions 37)."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, uid_of
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE, fallback_seconds
from livesize.api.resize_state import resize_state
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from unit.agent.world import CrashAt, PatientWorld, World, container
from virtual_time import CLOCK, virtual_time

pytestmark = virtual_time

MIB = 1 << 20
PREFERRED = {"resizeAction": "InPlaceResizePreferred"}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "name": "db",
    "uid": "of-the-set",
    "controller": True,
}
LONG_SECONDS = 2 * fallback_seconds({"metadata": {}, "spec": {}})


@pytest.fixture
def world() -> World:
    return PatientWorld()


async def run(
    world: World,
    annotations: dict[str, str],
    points: CrashPoints = NO_CRASH_POINTS,
    **more: Any,
) -> str:
    """Two containers; the first holds 48 of its 64 MiB."""
    await world.start(points)
    spec = {key: value for key, value in more.items() if key != "ownerReferences"}
    await world.api.run_pod("db", container(), container("side"), **spec)
    uid = await world.running("db")
    await world.api.edit("db", ("metadata", "annotations"), annotations)
    if "ownerReferences" in more:
        await world.api.edit("db", ("metadata", "ownerReferences"), more["ownerReferences"])
    world.machine.use_memory(uid, "app", 48 * MIB)
    return uid


def attempts(world: World, uid: str) -> tuple[int, int]:
    return world.attempt(uid, "app"), world.attempt(uid, "side")


async def test_memory_that_is_held_is_given_up_by_a_restart_of_the_pod(world: World) -> None:
    uid = await run(world, PREFERRED)
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Done")
    assert attempts(world, uid) == (1, 1), "all its containers, once"
    assert uid_of(world.api.pod("db")) == uid
    assert world.memory_bytes(uid) == 32 * MIB
    assert "Error" in (await world.api.told("db")), "in place was tried first"
    await world.until(lambda: "ResizeRestarts" in world.api.event_reasons("db"), "it is told")


@pytest.mark.parametrize(
    ("annotations", "more"),
    [
        ({"resizeAction": "InPlaceResize"}, {}),
        ({}, {}),
        ({**PREFERRED, ON_DEADLINE: "Keep"}, {}),
        ({**PREFERRED, DEADLINE: "876000h"}, {}),
        (PREFERRED, {"restartPolicy": "Never"}),
        (PREFERRED, {"ownerReferences": [OWNER]}),
    ],
    ids=["in place only", "nothing said", "kept", "not yet", "never restarts", "its owner's"],
)
async def test_otherwise_it_is_waited_for(
    world: World, annotations: dict[str, str], more: Any
) -> None:
    uid = await run(world, annotations, **more)
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    await CLOCK.sleep(LONG_SECONDS)  # it tries again and again
    assert attempts(world, uid) == (0, 0)
    world.machine.use_memory(uid, "app", MIB)
    await world.phase("db", "Done")
    assert attempts(world, uid) == (0, 0)


@pytest.mark.parametrize(("cpu", "phase"), [("3500m", "Deferred"), ("64", "Infeasible")])
async def test_without_room_nothing_restarts_and_only_another_node_helps(
    world: World, cpu: str, phase: str
) -> None:
    uid = await run(world, PREFERRED)
    await world.api.run_pod("other", container(cpu="1"))
    await world.running("other")
    await world.api.resize("db", "app", cpu=cpu)
    await world.phase("db", phase)
    await CLOCK.sleep(LONG_SECONDS)
    assert attempts(world, uid) == (0, 0)
    assert "only another node helps" in resize_state(world.api.pod("db"))["message"]


async def test_an_agent_that_dies_in_between_restarts_nothing_twice(world: World) -> None:
    uid = await run(world, PREFERRED, CrashAt("resize/start:app/after"))
    await world.api.resize("db", "app", memory="32Mi")
    await world.crashed()
    assert attempts(world, uid) == (1, 0)
    await world.start()
    await world.phase("db", "Done")
    assert attempts(world, uid) == (1, 1)


def test_how_long_it_is_tried() -> None:
    def pod(**annotations: str) -> Object:
        return {"metadata": {"annotations": annotations}, "spec": {}}

    assert fallback_seconds(pod()) == 30
    assert fallback_seconds(pod(**{DEADLINE: "2m"})) == 120
    assert fallback_seconds(pod(**{ON_DEADLINE: "Revert"})) is None
