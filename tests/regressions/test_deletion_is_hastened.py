"""A second DELETE with a shorter grace had to wait out the first one's; and a pod deleted while a
resize restarted its container got the container started once more."""

from __future__ import annotations

from livesize.runtime.fake import Behaviour
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

STUBBORN = ("ignore",)
POLICY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


async def _stubborn_pod(world: World, grace_seconds: int) -> str:
    world.machine.behaviours[STUBBORN] = Behaviour(ignores_sigterm=True)
    await world.start()
    app = container(command=list(STUBBORN), resizePolicy=POLICY)
    await world.api.run_pod("db", app, terminationGracePeriodSeconds=grace_seconds)
    return await world.running("db")


async def test_a_shorter_grace_counts_at_once(world: World) -> None:
    await _stubborn_pod(world, 600)
    await world.api.mark_deleted("db", grace_seconds=600)
    await world.until(lambda: "Killing" in world.api.event_reasons("db"), "it is being stopped")
    await world.api.mark_deleted("db", grace_seconds=0)
    await world.until(lambda: not world.api.has("db"), "the pod is gone")


async def test_a_container_of_a_deleted_pod_is_not_started_again(world: World) -> None:
    await _stubborn_pod(world, 600)
    await world.api.resize("db", "app", memory="128Mi")
    await world.until(lambda: "Killing" in world.api.event_reasons("db"), "it is being stopped")
    await world.api.mark_deleted("db", grace_seconds=0)
    await world.until(lambda: not world.api.has("db"), "the pod is gone")
    assert world.starts == 1
