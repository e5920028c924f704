"""A pod on its way out: ended at once where that was asked, told as ended, counted till then."""

from __future__ import annotations

import asyncio

from livesize.api.objects import Object, lookup
from livesize.runtime.fake import Behaviour
from livesize.runtime.interface import PodGroup
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

STUBBORN = ("ignore",)


async def stubborn(world: World, *, grace_seconds: int = 600, **more: object) -> str:
    world.machine.behaviours[STUBBORN] = Behaviour(ignores_sigterm=True)
    app = container(command=list(STUBBORN), **more)
    await world.api.run_pod("db", app, terminationGracePeriodSeconds=grace_seconds)
    return await world.running("db")


def ready(pod: Object) -> str:
    conditions = pod["status"]["conditions"]
    return str(next(one["status"] for one in conditions if one["type"] == "Ready"))


async def test_a_pod_deleted_by_force_ends_at_once_and_counts_until_then(world: World) -> None:
    """Its process ran on for its whole grace, and nobody saw it."""
    await world.start()
    uid = await stubborn(world)
    await world.api.vanish("db")
    assert world.agent is not None
    ledger = world.agent._admission.ledger
    assert ledger.get(uid) is not None
    await world.until(lambda: ledger.get(uid) is None, "its room is free")
    assert uid not in world.machine.pods


async def test_a_pod_being_stopped_ends_at_once_when_its_object_is_forced_away(
    world: World,
) -> None:
    await world.start()
    uid = await stubborn(world)
    await world.api.mark_deleted("db", grace_seconds=600)
    await world.until(lambda: "Killing" in world.api.event_reasons("db"), "it is being stopped")
    await world.api.vanish("db")
    await world.until(lambda: uid not in world.machine.pods, "it is off the machine")


async def test_force_does_not_wait_for_a_hook_either(world: World) -> None:
    world.machine.behaviours[("hook",)] = Behaviour(exit_code=None)  # never ends
    await world.start()
    hook = {"preStop": {"exec": {"command": ["hook"]}}}
    uid = await stubborn(world, lifecycle=hook)
    await world.api.mark_deleted("db", grace_seconds=600)
    await world.until(lambda: world.machine.commands, "the hook runs")
    await world.api.mark_deleted("db", grace_seconds=0)
    await world.until(lambda: uid not in world.machine.pods, "it is off the machine")


async def test_a_deleted_pod_that_a_finalizer_keeps_is_told_as_ended(world: World) -> None:
    """It was shown Running, in CrashLoopBackOff with "back-off 0s", and deleted every 10 s."""
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.finalize("db", "example.com/keep")
    await world.api.mark_deleted("db", grace_seconds=1)
    await world.until(lambda: world.client.deletes == 1, "it was let go")
    await asyncio.sleep(0.5)  # two looks of an idle worker
    pod = world.api.pod("db")
    (status,) = pod["status"]["containerStatuses"]
    assert pod["status"]["phase"] == "Failed"  # SIGTERM is no success
    assert lookup(status, "state", "terminated", "exitCode") == 143
    assert (status["ready"], ready(pod)) == (False, "False")
    assert world.client.deletes == 1
    assert uid not in world.machine.pods
    assert world.starts == 1


async def test_it_is_told_though_the_api_was_away_when_it_ended(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.finalize("db", "example.com/keep")
    world.client.is_down = True
    await world.api.mark_deleted("db", grace_seconds=1)
    await world.until(lambda: uid not in world.machine.pods, "it is off the machine")
    world.client.is_down = False
    await world.until(lambda: world.api.pod("db")["status"]["phase"] == "Failed", "it is told")
    (status,) = world.api.pod("db")["status"]["containerStatuses"]
    assert lookup(status, "state", "terminated", "exitCode") == 143


async def test_a_pod_deleted_with_nothing_wrong_has_succeeded(world: World) -> None:
    world.machine.behaviours[("job",)] = Behaviour(exit_code=0)
    await world.start()
    await world.api.run_pod("job", container(command=["job"]), restartPolicy="Always")
    await world.until(lambda: any(one.containers for one in world.machine.pods.values()), "it ran")
    await world.api.finalize("job", "example.com/keep")
    await world.api.mark_deleted("job", grace_seconds=1)
    await world.until(lambda: world.api.pod("job")["status"]["phase"] == "Succeeded", "it is told")


async def test_what_an_agent_finds_gone_from_the_machine_is_told_as_unknown(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.stop()
    await world.api.finalize("db", "example.com/keep")
    await world.api.mark_deleted("db", grace_seconds=1)
    del world.machine.pods[uid]
    world.machine.groups.pop(PodGroup(uid))
    await world.start()
    await world.until(lambda: world.api.pod("db")["status"]["phase"] == "Failed", "it is told")
    (status,) = world.api.pod("db")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


async def test_an_agent_that_stops_its_pods_says_that_nothing_is_ready(world: World) -> None:
    """The next start served Ready of before, until the containers had started again."""
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    agent = world.agent
    assert agent is not None
    await world.stop()
    await agent.stop_workloads(asyncio.Event())
    pod = world.api.pod("db")
    (status,) = pod["status"]["containerStatuses"]
    assert (ready(pod), status["ready"]) == ("False", False)
    assert "terminated" in status["state"]
    assert pod["status"]["phase"] == "Running", "it starts again with the next agent"


async def test_an_agent_that_comes_new_says_first_what_does_not_run(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.stop()  # and the machine loses its power
    del world.machine.pods[uid]
    world.machine.groups.clear()
    world.machine.behaviours[()] = Behaviour(start_error="it takes long")
    assert ready(world.api.pod("db")) == "True"
    await world.start()
    await world.until(lambda: ready(world.api.pod("db")) == "False", "it is told")
    assert world.api.pod("db")["status"]["phase"] == "Running"


async def test_at_a_stop_pods_without_objects_are_ended_at_once_and_told_apart(
    world: World,
) -> None:
    await world.start()
    uid = await stubborn(world)
    agent = world.agent
    assert agent is not None
    world.machine.behaviours[STUBBORN] = Behaviour(ignores_sigterm=True)
    await world.api.mark_deleted("db", grace_seconds=600)
    await world.until(lambda: "Killing" in world.api.event_reasons("db"), "it is being stopped")
    assert agent.deleted_pods() == 1
    await world.stop()
    await world.api.vanish("db")
    agent._informer._objects.clear()
    async with asyncio.timeout(2):
        await agent.stop_workloads(asyncio.Event())
    assert uid not in world.machine.pods


async def test_an_agent_that_was_told_of_no_pod_yet_calls_none_deleted(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    await world.stop()
    world.client.is_down = True
    await world.start()
    assert world.agent is not None
    assert world.agent.deleted_pods() == 0
    world.client.is_down = False
