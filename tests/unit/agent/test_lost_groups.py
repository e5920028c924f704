"""Another process takes a pod's groups or containers away: the agent sees it, says it, mends it."""

from __future__ import annotations

from livesize.api.objects import lookup
from livesize.runtime.interface import PodGroup
from unit.agent.world import World, container


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
