"""A container that was started again at once left no word of how it had ended, not even that the
kernel had killed it for its memory; and after a stopped `livesize up` its restarts counted anew."""

from __future__ import annotations

from typing import Any

from livesize.api.objects import Object, uid_of
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

POLICY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def _status(world: World) -> Any:
    return world.api.pod("db").get("status", {}).get("containerStatuses", [{}])[0]


async def _running(world: World, **more: Any) -> Object:
    pod = await world.api.run_pod("db", container(**more))
    await world.until(lambda: "running" in _status(world).get("state", {}), "it runs")
    return pod


async def test_the_first_end_is_the_last_state_of_the_second_start(world: World) -> None:
    await world.start()
    pod = await _running(world)
    world.machine.exit(uid_of(pod), "app", 137, oom_killed=True)
    await world.until(lambda: _status(world)["restartCount"] == 1, "it has started again")
    ended = _status(world)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


async def test_a_restart_by_policy_is_the_last_state_too(world: World) -> None:
    await world.start()
    await _running(world, resizePolicy=POLICY)
    before = _status(world)["containerID"]
    await world.api.resize("db", "app", memory="128Mi")
    await world.until(lambda: world.api.phase("db") == "Done", "it is resized")
    assert _status(world)["restartCount"] == 1
    assert _status(world)["lastState"]["terminated"]["containerID"] == before


async def test_restarts_are_counted_on_after_the_workloads_were_stopped(world: World) -> None:
    await world.start()
    pod = await _running(world)
    world.machine.exit(uid_of(pod), "app", 1)
    await world.until(lambda: _status(world)["restartCount"] == 1, "it has started again")

    await world.stop()
    del world.machine.pods[uid_of(pod)]  # as `livesize up` leaves it when it is stopped
    await world.start()
    await world.until(lambda: _status(world)["restartCount"] == 2, "it was started once more")
