"""A guest that named ten million CPUs stalled the agent for 13 s. It is not believed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.objects import lookup
from livesize.api.resize_state import resize_state
from unit.agent.vm_world import VmWorld
from virtual_time import virtual_time

pytestmark = virtual_time


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[VmWorld]:
    made = VmWorld(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_what_a_guest_says_that_cannot_be_is_said_in_its_status(world: VmWorld) -> None:
    await world.set(boot_seconds=0.0)
    uid = await world.run_vm("db")
    why = "it names the CPUs '0-9999999', and its domain can have 6"
    world.vm(uid).lie(why)
    world.happened(uid)
    path = ("status", "virtualMachineStatus", "guest", "message")
    words = f"what the guest says cannot be, and is dropped: {why}"
    await world.until(lambda: lookup(world.api.pod("db"), *path) == words, words)
    await world.api.resize("db", "vm", cpu="2")
    await world.until(lambda: words in resize_state(world.api.pod("db"))["message"], words)
    assert resize_state(world.api.pod("db"))["phase"] == "InProgress"
