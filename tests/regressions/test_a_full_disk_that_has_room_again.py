"""After a full disk was freed, four of ten resizes were still asked for 40 s later: what waits for
the disk, of this node or of the API server, goes on within the longest wait of a resize."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from livesize.agent.settings import AgentSettings
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

PODS = [f"db-{number}" for number in range(10)]


@pytest.fixture
def world(world: World) -> World:
    """Nothing may wait as long as a post to a server that is away."""
    world.settings = msgspec.structs.replace(
        world.settings,
        allocatable_cpu_milli=16_000,
        recheck_seconds=60.0,
        post_backoff_seconds=60.0,
        post_backoff_maximum_seconds=60.0,
        resize_backoff_seconds=0.02,
        resize_backoff_maximum_seconds=0.1,
    )
    return world


def test_a_resize_waits_two_seconds_at_most_for_its_next_try() -> None:
    assert AgentSettings(node_name="n").resize_backoff_maximum_seconds <= 2


async def test_resizes_go_on_when_the_api_servers_disk_has_room(world: World) -> None:
    await world.start()
    for name in PODS:
        await world.api.run_pod(name, container())
        await world.running(name)
    world.client.is_down = True
    for name in PODS:
        await world.api.resize(name, "app", cpu="400m")
    uids = [world.api.pod(name)["metadata"]["uid"] for name in PODS]
    await world.until(lambda: all(world.quota_us(uid) == 40_000 for uid in uids), "all applied")
    await asyncio.sleep(0.05)  # and told in vain
    world.client.is_down = False
    for name in PODS:
        await world.phase(name, "Done")


async def test_new_pods_and_resizes_go_on_when_the_nodes_disk_has_room(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    world.disk.is_full = True
    await world.api.resize("db", "app", cpu="400m")
    await world.api.run_pod("new", container())
    await asyncio.sleep(0.1)
    world.disk.is_full = False
    await world.phase("db", "Done")
    await world.running("new")
