"""Requests of one second were judged by name after a restart of the agent (ARK: "handled
sequentially in the order in which Pod additions and updates arrive")."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from livesize.api.kinds.priority_class import PRIORITY_CLASSES
from livesize.api.objects import evolve
from livesize.api.resize_state import order_of_request, resize_state
from unit.agent.world import World, container
from unit.apiserver.conftest import Rig
from virtual_time import virtual_time

pytestmark = virtual_time

PODS = "/api/v1/namespaces/default/pods"
NAMES = [f"pod-{number:02}" for number in range(12)]


async def test_requests_of_one_moment_are_judged_as_they_came(world: World) -> None:
    """The node has room for four of twelve, and hears of them all only when it starts."""
    await world.start()
    for name in NAMES:
        await world.api.run_pod(name, container(cpu="100m", memory="1Mi"))
        await world.running(name)
    await world.stop()
    came = list(NAMES)
    random.Random(4).shuffle(came)
    for name in came:
        await world.api.resize(name, "app", cpu="800m")
    # Not about the resize, and later than all requests.
    await world.api.edit(came[0], ("metadata", "labels"), {"seen": "later"})
    await world.start()
    for name in came[:4]:
        await world.phase(name, "Done")
    for name in came[4:]:
        await world.phase(name, "Deferred")


async def test_what_was_deferred_keeps_its_place(world: World) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="3"))
    for name in ("a", "b"):
        await world.api.run_pod(name, container(cpu="100m", memory="1Mi"))
        await world.running(name)
    for name in ("b", "a"):
        await world.api.resize(name, "app", cpu="3")
        await world.phase(name, "Deferred")
    for _ in range(2):
        await world.stop()
        await world.start()
    await world.api.mark_deleted("big")
    await world.phase("b", "Done")
    assert world.api.phase("a") == "Deferred"


async def test_after_a_restart_a_deferred_one_goes_by_its_priority_too(world: World) -> None:
    await world.start()
    await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 7})
    await world.api.run_pod("big", container(cpu="3"))
    for name, priority in (("old", ""), ("important", "high")):
        one = container(cpu="100m", memory="1Mi")
        await world.api.run_pod(name, one, priorityClassName=priority)
        await world.running(name)
    for name in ("old", "important"):
        await world.api.resize(name, "app", cpu="3")
        await world.phase(name, "Deferred")
    await world.stop()
    await world.api.vanish("big")
    await world.start()
    await world.phase("important", "Done")
    assert world.api.phase("old") == "Deferred"


async def test_every_request_has_a_number_of_its_own_that_stays(rig: Rig) -> None:
    """Many at once, over the API server, whose clock stands still: nothing but the order of
    commits tells them apart."""
    await rig.add_node("n1")
    for name in NAMES:
        await rig.add_pod(name, node="n1")
    size = {"name": "app", "resources": {"requests": {"cpu": "600m"}}}

    async def ask(name: str) -> Any:
        answer = await rig.patch(
            f"{PODS}/{name}/resize", {"spec": {"containers": [size]}}, "strategic"
        )
        assert answer.status == 200
        return answer.json

    asked = {pod["metadata"]["name"]: pod for pod in await asyncio.gather(*map(ask, NAMES))}
    came = {name: order_of_request(pod) for name, pod in asked.items()}
    assert len(set(came.values())) == len(NAMES)
    for name in NAMES:
        label = {"metadata": {"labels": {"one": "more"}}}
        assert (await rig.patch(f"{PODS}/{name}", label)).status == 200
        answer = {"kind": "Resizing", "apiVersion": "v1", "request": {"requestStatus": "Rejected"}}
        told = await rig.request("POST", f"{PODS}/{name}/resizing", answer, token="n1")
        assert told.status == 201
        assert order_of_request(told.json) == came[name]


async def test_another_request_has_another_place(rig: Rig) -> None:
    await rig.add_node("n1")
    await rig.add_pod("web", node="n1")
    places = []
    for cpu in ("600m", "700m"):
        size = {"name": "app", "resources": {"requests": {"cpu": cpu}}}
        asked = await rig.patch(f"{PODS}/web/resize", {"spec": {"containers": [size]}}, "strategic")
        assert "requestedVersion" not in resize_state(asked.json)
        label = evolve({}, ("metadata", "labels", "size"), cpu)
        seen = await rig.patch(f"{PODS}/web", label)
        places.append(order_of_request(seen.json))
        assert places[-1] == int(asked.json["metadata"]["resourceVersion"])
    assert places[0] < places[1]
