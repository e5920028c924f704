"""Another process takes a pod's groups or containers away: the agent sees it, says it, mends it."""

from __future__ import annotations

import asyncio

from livesize.api.objects import lookup
from livesize.runtime.interface import ContainerGroup, PodGroup, RuntimeEvent
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


async def test_a_pod_whose_groups_were_removed_is_started_again(world: World) -> None:
    """A second node on the same groups once removed them; the first called its dead containers
    running for ever, because the pod's group was made only with the pod."""
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.lose_groups(uid)
    await world.until(lambda: world.attempt(uid) == 1, "it was started again")
    await world.until(lambda: "SandboxChanged" in world.api.event_reasons("db"), "it is told")

    def restarts() -> int:
        return int(world.api.pod("db")["status"]["containerStatuses"][0]["restartCount"])

    await world.until(lambda: restarts() == 1, "the restart is told")
    (status,) = world.api.pod("db")["status"]["containerStatuses"]
    assert lookup(status, "lastState", "terminated", "exitCode") == 137
    assert PodGroup(uid) in world.machine.groups


async def test_a_pod_that_never_restarts_has_failed(world: World) -> None:
    await world.start()
    await world.api.run_pod("job", container(), restartPolicy="Never")
    uid = await world.running("job")
    world.machine.lose_groups(uid)
    await world.until(lambda: world.api.pod("job")["status"]["phase"] == "Failed", "it failed")


async def test_what_was_moved_out_of_its_group_does_not_go_on_without_limits(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.lose_groups(uid, kill=False)
    await world.until(lambda: world.attempt(uid) == 1, "it was started again")
    await world.running("db")
    assert world.memory_bytes(uid) == 64 * 1024 * 1024


async def test_what_cannot_be_mended_is_not_called_running(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.create_error = "no room for groups"
    world.machine.lose_groups(uid)

    def is_said() -> bool:
        (status,) = world.api.pod("db")["status"]["containerStatuses"]
        ready = next(c for c in world.api.pod("db")["status"]["conditions"] if c["type"] == "Ready")
        return "running" not in status["state"] and ready["status"] == "False"

    await world.until(is_said, "it is told that nothing runs")
    world.machine.create_error = ""
    await world.until(lambda: world.attempt(uid) == 1, "it was started again", seconds=8)


async def test_a_container_that_has_just_ended_is_not_taken_for_one_without_limits(
    world: World,
) -> None:
    """containerd removes the group of what has ended, and says a moment later that it has: the
    container was stopped once more, and why it had ended was lost."""
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    del world.machine.groups[ContainerGroup(uid, "app")]
    world.machine.feed.publish(RuntimeEvent(uid, ""))
    await asyncio.sleep(0.1)  # the worker looks, and waits for the news of its end
    assert world.attempt(uid) == 0
    world.machine.exit(uid, "app", 137, oom_killed=True)
    await world.until(lambda: world.attempt(uid) == 1, "it was started again")

    def last() -> object:
        (status,) = world.api.pod("db")["status"]["containerStatuses"]
        return lookup(status, "lastState", "terminated", "reason")

    await world.until(lambda: last() == "OOMKilled", "how it ended is told")
    assert "Killing" not in world.api.event_reasons("db")
