"""The Node object of a machine that others believed to be gone."""

from __future__ import annotations

import asyncio

import msgspec

from livesize.api.conditions import is_true
from livesize.api.kinds import NODES
from livesize.api.objects import lookup
from unit.agent.world import World


async def test_a_node_that_was_given_up_says_that_it_lives_with_its_next_heartbeat(
    world: World,
) -> None:
    world.settings = msgspec.structs.replace(world.settings, lease_seconds=0.05)
    await world.start()
    await world.until(lambda: ("nodes", "", "node-1") in world.api.objects, "registered")
    await world.until(lambda: is_true(world.api.node(), "Ready"), "ready")
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await world.api.patch(NODES, "node-1", unknown, subresource="status")
    assert not is_true(world.api.node(), "Ready")
    await world.until(lambda: is_true(world.api.node(), "Ready"), "ready again")
    posted = lookup(world.api.node(), "metadata", "resourceVersion")
    await asyncio.sleep(0.2)
    assert lookup(world.api.node(), "metadata", "resourceVersion") == posted, "only when it is due"


async def test_a_node_that_was_deleted_is_registered_with_the_next_heartbeat(
    world: World,
) -> None:
    world.settings = msgspec.structs.replace(world.settings, lease_seconds=0.05)
    await world.start()
    await world.until(lambda: ("nodes", "", "node-1") in world.api.objects, "registered")
    await world.api.delete(NODES, "node-1")
    await world.until(lambda: ("nodes", "", "node-1") in world.api.objects, "registered")
    await world.until(lambda: is_true(world.api.node(), "Ready"), "ready")
