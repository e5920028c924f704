"""A resize of what does not run is Done when it runs at that size, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.api.objects import Object, uid_of
from livesize.api.resize_state import resize_state
from livesize.runtime.fake import FAKE_IMAGE
from livesize.runtime.interface import ContainerGroup, ContainerPhase
from unit.agent.vm_world import VmWorld
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time


def both(cpu: str, memory: str) -> Object:
    size = {"cpu": cpu, "memory": memory}
    return {"requests": size, "limits": size}


def status_of(world: World, name: str) -> Object:
    status: Object = world.api.served(name)["status"]["containerStatuses"][0]
    return status


async def test_one_that_never_started(world: World) -> None:
    await world.start()
    world.machine.image_names = ()
    await world.api.run_pod("db", container())
    await world.until(lambda: world.api.pod("db")["status"].get("containerStatuses"), "it waits")
    await world.api.resize("db", "app", cpu="1", memory="128Mi")
    await world.phase("db", "InProgress")
    await world.until(
        lambda: "app (ErrImage" in resize_state(world.api.pod("db"))["message"], "it says why"
    )
    status = status_of(world, "db")
    assert status["resources"] == both("1", "128Mi"), "allocated, as Kubernetes has it"
    world.machine.image_names = (FAKE_IMAGE,)
    await world.phase("db", "Done")
    assert world.quota_us(uid_of(world.api.pod("db"))) == 100_000
    assert "running" in status_of(world, "db")["state"]
    assert (await world.api.told("db")) == ["None", "Requested", "InProgress", "Done"]


async def crash(world: World, uid: str, name: str, waits: Callable[[], bool]) -> None:
    """End the container until the node does not start it again at once."""
    while not waits():
        if world.machine.pods[uid].containers[name].phase is ContainerPhase.RUNNING:
            world.machine.exit(uid, name, 1)
        await asyncio.sleep(0.005)


async def test_one_that_crashes_again_and_again(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, crash_backoff_seconds=0.3)
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await crash(world, uid, "app", lambda: "waiting" in status_of(world, "db")["state"])
    assert status_of(world, "db")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "InProgress")
    await world.until(
        lambda: "app (CrashLoopBackOff)" in resize_state(world.api.pod("db"))["message"], "why"
    )
    await world.phase("db", "Done")
    assert "running" in status_of(world, "db")["state"]
    assert world.quota_us(uid) == 100_000


async def test_another_that_does_not_run_holds_up_nothing(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), container("side", image="not-here"))
    uid = uid_of(world.api.pod("db"))
    machine = world.machine
    await world.until(lambda: ContainerGroup(uid, "app") in machine.groups, "one of them runs")
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")
    assert world.quota_us(uid) == 100_000


async def test_one_that_has_ended_for_good_is_not_waited_for(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), container("side"), restartPolicy="Never")
    uid = await world.running("db")
    world.machine.exit(uid, "app", 0)
    await world.until(lambda: "terminated" in status_of(world, "db")["state"], "it has ended")
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")


async def test_room_that_was_given_up_is_others_before_it_runs(world: World) -> None:
    await world.start()
    world.machine.image_names = ()
    await world.api.run_pod("db", container(cpu="3"))
    await world.until(lambda: world.api.pod("db")["status"].get("containerStatuses"), "it waits")
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "InProgress")
    assert world.agent is not None
    ledger = world.agent._admission.ledger
    await world.until(lambda: ledger.used.cpu_milli == 1000, "its footprint is the new one")


async def test_a_virtual_machine_that_is_off_shows_no_size(tmp_path: Path) -> None:
    world = VmWorld(tmp_path)
    world.settings = msgspec.structs.replace(world.settings, crash_backoff_seconds=5.0)
    await world.start()
    uid = await world.run_vm("db", cpu="1", memory="512Mi")
    assert world.api.pod("db")["status"]["virtualMachineStatus"]["resources"]
    await crash(world, uid, "vm", lambda: world.vm_state("db") == "Waiting")
    assert "resources" not in world.api.pod("db")["status"]["virtualMachineStatus"]
    await world.stop()
