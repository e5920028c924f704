"""The Node object of a machine that others believed to be gone."""

from __future__ import annotations

import asyncio
import platform

import msgspec
import pytest

from livesize.api.architecture import architecture_of
from livesize.api.conditions import is_true
from livesize.api.kinds.node import NODES
from livesize.api.objects import lookup
from livesize.runtime.process.machine_facts import observe_machine
from unit.agent.world import World
from virtual_time import virtual_time

pytestmark = virtual_time


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


async def ready(world: World) -> None:
    await world.start()
    await world.until(lambda: ("nodes", "", "node-1") in world.api.objects, "registered")
    await world.until(lambda: is_true(world.api.node(), "Ready"), "ready")


async def test_its_architecture_is_named_as_kubernetes_does(world: World) -> None:
    await ready(world)
    node = world.api.node()
    assert lookup(node, "metadata", "labels", "kubernetes.io/arch") == "amd64"
    assert lookup(node, "status", "nodeInfo", "architecture") == "amd64"


async def test_a_node_with_an_older_name_of_its_architecture_gets_the_right_one(
    world: World,
) -> None:
    await ready(world)
    await world.stop()
    older = {"metadata": {"labels": {"kubernetes.io/arch": "x86_64", "disk": "fast"}}}
    await world.api.patch(NODES, "node-1", older)
    await world.start()
    labels = lambda: lookup(world.api.node(), "metadata", "labels")  # noqa: E731
    await world.until(lambda: labels()["kubernetes.io/arch"] == "amd64", "named anew")
    assert labels()["disk"] == "fast"


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64"), ("odd", "odd")],
)
def test_the_names_of_architectures(machine: str, name: str) -> None:
    assert architecture_of(machine) == name
    assert observe_machine().architecture == architecture_of(platform.machine())
