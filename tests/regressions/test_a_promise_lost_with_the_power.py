"""That a resize is done is told before it is on disk: a node that loses its power hears of it
again, from whoever it told, before it gives the room to anybody or takes it from anybody."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.agent.allocation.checkpoint import Checkpoint
from unit.agent.world import FileWorld, container
from virtual_time import virtual_time

pytestmark = virtual_time

GIB = 1024**3


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FileWorld]:
    world = FileWorld(tmp_path)
    yield world
    await world.stop()


@pytest.fixture
def node(world: FileWorld) -> FileWorld:
    """As in production: what is applied at once is told as done only."""
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=5.0)
    return world


async def running(world: FileWorld, **size: str) -> str:
    """An agent, and one pod on its node; return the pod's uid."""
    await world.start()
    await world.api.run_pod("db", container(**size))
    return await world.running("db")


async def resized(world: FileWorld, **amounts: str) -> None:
    """Resize, and lose the power before the disk has it; the agent is not running."""
    await world.stop()
    before = world.path.with_name("before.db")
    shutil.copy(world.path, before)
    await world.start()
    await world.api.resize("db", "app", **amounts)
    await world.phase("db", "Done")
    await world.stop()
    shutil.copy(before, world.path)
    world.machine.pods.clear()
    world.machine.groups.clear()


@pytest.mark.parametrize(("memory", "size_bytes"), [("1Gi", GIB), ("3Gi", 3 * GIB)])
async def test_a_pod_has_what_was_told(node: FileWorld, memory: str, size_bytes: int) -> None:
    uid = await running(node, memory="2Gi")
    await resized(node, memory=memory)
    await node.start()
    pods = node.machine.pods
    await node.until(lambda: uid in pods and "app" in pods[uid].containers, "started again")
    await node.until(lambda: node.memory_bytes(uid) == size_bytes, "at the size that was told")
    assert node.api.phase("db") == "Done"
    await node.stop()
    entries = await node.checkpointed()
    assert [entry.allocated[0]["requests"]["memory"] for entry in entries] == [memory]
    assert [entry.generation for entry in entries] == [2]


async def test_the_room_that_was_given_up_is_still_given_up(node: FileWorld) -> None:
    await running(node, memory="3Gi")
    await resized(node, memory="1Gi")
    await node.api.run_pod("late", container(memory="2Gi"))
    await node.start()
    await node.running("late")


async def test_what_was_grown_into_goes_to_nobody_else(node: FileWorld) -> None:
    await running(node, memory="1Gi")
    await resized(node, memory="3Gi")
    await node.api.run_pod("late", container(memory="2Gi"))
    await node.start()
    await node.until(lambda: node.api.pod("late")["status"].get("reason"), "judged")
    assert node.api.pod("late")["status"]["reason"] == "OutOfmemory"


async def test_what_was_asked_since_is_judged_anew(node: FileWorld) -> None:
    uid = await running(node, memory="1Gi")
    await resized(node, memory="2Gi")
    await node.api.resize("db", "app", memory="3Gi")
    await node.start()
    await node.phase("db", "Done")
    assert node.memory_bytes(uid) == 3 * GIB


async def test_an_older_word_of_the_api_server_changes_nothing(node: FileWorld) -> None:
    """A promise that was made and not told: the checkpoint is newer."""
    uid = await running(node, memory="1Gi")
    await node.api.resize("db", "app", memory="2Gi")
    await node.phase("db", "Done")
    node.client.is_down = True
    await node.api.resize("db", "app", memory="3Gi")
    await node.until(lambda: node.memory_bytes(uid) == 3 * GIB, "applied")
    await node.stop()
    node.client.is_down = False
    await node.start()
    await node.phase("db", "Done")
    assert node.memory_bytes(uid) == 3 * GIB


async def test_done_is_told_before_it_is_on_disk(
    node: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(node)
    monkeypatch.setattr(Checkpoint, "sync", lambda _: None)  # the disk never gets to it
    await node.api.resize("db", "app", cpu="1")
    await node.phase("db", "Done")
    monkeypatch.undo()


async def test_a_disk_that_has_failed_is_waited_for(
    node: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await running(node)
    failures: list[int] = []

    def fail(descriptor: int) -> None:
        failures.append(descriptor)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("os.fdatasync", fail)
        await node.api.resize("db", "app", cpu="1")
        await node.until(lambda: failures, "the disk has failed")
        await node.api.resize("db", "app", cpu="2")
        await node.until(lambda: node.quota_us(uid) == 200_000, "applied")
        tried = len(failures)
        await node.until(lambda: len(failures) > tried + 2, "tried again and again")
        assert node.api.phase("db") == "Requested", "not told before it is on disk"
    await node.phase("db", "Done")
