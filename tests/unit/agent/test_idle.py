"""Idle agents do not wake for nothing: what a pod that nothing happens to costs its node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livesize.agent.pods.worker import PodWorker
from livesize.api.objects import lookup
from livesize.runtime.fake import Behaviour
from unit.agent.vm_world import MIB, VmWorld
from unit.agent.world import PatientWorld, World, container
from virtual_time import CLOCK, virtual_time

pytestmark = virtual_time

HOUR_SECONDS = 3600.0


async def wakes_in_an_hour(pods: int) -> int:
    """How often the event loop of an agent has something to do."""
    world = PatientWorld()
    await world.start()
    for number in range(pods):
        await world.api.run_pod(f"pod-{number}", container("app", cpu="10m", memory="8Mi"))
        await world.running(f"pod-{number}")
    await CLOCK.sleep(120.0)
    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select, wakes = selector.select, []
    selector.select = lambda timeout: wakes.append(1) or select(timeout)
    await CLOCK.sleep(HOUR_SECONDS)
    selector.select = select
    await world.stop()
    return len(wakes)


async def test_fifty_idle_pods_wake_their_agent_no_more_often_than_one() -> None:
    few, many = await wakes_in_an_hour(1), await wakes_in_an_hour(50)
    assert many <= few + 10


async def test_an_agent_reads_its_node_no_more_often_than_it_tells_its_status() -> None:
    """Every agent read its Node every ten seconds."""
    world = PatientWorld()
    await world.start()
    await CLOCK.sleep(120.0)
    read, reads = world.client.get, []
    world.client.get = lambda *of: reads.append(of) or read(*of)  # type: ignore[method-assign]
    await CLOCK.sleep(HOUR_SECONDS)
    assert len(reads) <= HOUR_SECONDS / world.settings.node_status_seconds
    await world.stop()


async def turns_of(
    world: World, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None] = lambda: None
) -> int:
    """Within five looks at the machine, after ``happens``."""
    await world.clock.sleep(2 * world.settings.recheck_seconds)
    turns: list[str] = []
    turn = PodWorker._turn
    monkeypatch.setattr(PodWorker, "_turn", lambda self: turns.append(self.uid) or turn(self))
    happens()
    await world.clock.sleep(5 * world.settings.recheck_seconds)
    return len(turns)


async def test_a_pod_that_has_ended_has_no_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.machine.behaviours["once",] = Behaviour(exit_code=0)
    await world.start()
    await world.api.run_pod("job", container("app", command=["once"]), restartPolicy="Never")
    phase = lambda: lookup(world.api.pod("job"), "status", "phase")  # noqa: E731
    await world.until(lambda: phase() == "Succeeded", "it has ended")
    assert await turns_of(world, monkeypatch) == 0


@pytest.fixture
async def vm_world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    world = VmWorld(tmp_path)
    await world.start()
    yield world
    await world.stop()


@pytest.mark.parametrize(
    ("field", "value", "has_turns"),
    [
        ("used_bytes", 33 * MIB, False),  # a little more or less is no news
        ("used_bytes", 200 * MIB, True),
        ("online_vcpus", 1, True),
        ("persistent_vcpus", 1, True),
        ("boots", 2, True),
    ],
)
async def test_an_idle_virtual_machine_has_turns_only_when_it_reads_otherwise(
    vm_world: VmWorld, monkeypatch: pytest.MonkeyPatch, field: str, value: int, has_turns: bool
) -> None:
    """Of these changes libvirt reports nothing."""
    vm = vm_world.vm(await vm_world.run_vm("db", cpu="2"))
    found = await turns_of(vm_world, monkeypatch, lambda: setattr(vm, field, value))
    assert bool(found) is has_turns
