"""A CPU that the node can never have kept the memory of the pod from changing, and did not
say how to take it back (decisions 9: "Each resource type is judged alone")."""

from __future__ import annotations

import asyncio

from livesize.agent.admission.plan import Defer, Infeasible, refusal_message
from livesize.api.objects import Object
from livesize.api.resize_state import resize_state
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1 << 20


def state(world: World) -> Object:
    return resize_state(world.api.pod("db"))


def allocated(world: World) -> Object:
    size: Object = state(world)["allocated"][0]["requests"]
    return size


async def start(world: World) -> str:
    await world.start()
    await world.api.run_pod("db", container(cpu="500m", memory="64Mi"))
    return await world.running("db")


async def test_the_memory_of_the_same_request(world: World) -> None:
    uid = await start(world)
    pid = world.pid(uid)
    await world.api.resize("db", "app", cpu="64", memory="128Mi")
    await world.phase("db", "Infeasible")
    await world.until(lambda: world.memory_bytes(uid) == 128 * MIB, "it has its memory")
    assert allocated(world) == {"cpu": "500m", "memory": "128Mi"}
    assert state(world)["message"].endswith("what is allocated: app cpu 500m memory 128Mi")
    assert (world.quota_us(uid), world.pid(uid)) == (50_000, pid)
    served = world.api.served("db")
    assert served["spec"]["containers"][0]["resourcesAllocated"]["memory"] == "128Mi"
    await world.until(
        lambda: (
            world.api.pod("db")["status"]["containerStatuses"][0]["resources"]["limits"]["memory"]
            == "128Mi"
        ),
        "and says so",
    )
    assert world.api.phase("db") == "Infeasible", "the CPU is still refused"


async def test_the_memory_of_a_later_request_and_the_way_back(world: World) -> None:
    uid = await start(world)
    await world.api.resize("db", "app", cpu="64")
    await world.phase("db", "Infeasible")
    assert "what is allocated: app cpu 500m memory 64Mi" in state(world)["message"]
    await world.api.resize("db", "app", memory="32Mi")
    await world.until(lambda: world.memory_bytes(uid) == 32 * MIB, "less memory")
    await world.phase("db", "Infeasible")
    assert state(world)["generation"] == state(world)["observedGeneration"] == 3
    await world.api.resize("db", "app", cpu="500m")
    await world.phase("db", "Done")
    assert world.quota_us(uid) == 50_000


async def test_memory_that_has_to_wait_for_room(world: World) -> None:
    uid = await start(world)
    await world.api.run_pod("big", container(memory="3Gi"))
    await world.running("big")
    await world.api.resize("db", "app", cpu="64", memory="2Gi")
    await world.phase("db", "Infeasible")
    assert allocated(world)["memory"] == "64Mi"
    await world.api.mark_deleted("big")
    await world.until(lambda: world.memory_bytes(uid) == 2048 * MIB, "there is room now")
    await world.until(lambda: allocated(world)["memory"] == "2Gi", "and the API knows")


async def test_the_next_agent_finds_the_same(world: World) -> None:
    uid = await start(world)
    await world.api.resize("db", "app", cpu="64", memory="128Mi")
    await world.until(lambda: world.memory_bytes(uid) == 128 * MIB, "it has its memory")
    await world.phase("db", "Infeasible")
    await world.stop()
    [entry] = await world.checkpointed()
    assert entry.allocated[0]["requests"] == {"cpu": "500m", "memory": "128Mi"}
    posts = len(world.client.posts)
    await world.start()
    await asyncio.sleep(0.1)
    assert world.memory_bytes(uid) == 128 * MIB
    assert len(world.client.posts) == posts, "nothing is said again"


async def test_what_only_has_to_wait_stays_whole(world: World) -> None:
    """A deferred resize happens as a whole, when there is room for all of it."""
    uid = await start(world)
    await world.api.run_pod("big", container(cpu="3"))
    await world.running("big")
    await world.api.resize("db", "app", cpu="2", memory="128Mi")
    await world.phase("db", "Deferred")
    await asyncio.sleep(0.05)
    assert world.memory_bytes(uid) == 64 * MIB


def test_the_words() -> None:
    sizes = [
        {"name": "app", "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
        {"name": "side"},
    ]
    pod = {"status": {"resizeState": {"action": "InPlaceResizePreferred"}}}
    assert refusal_message({}, Infeasible("too much"), sizes) == (
        "too much. Ask for less, or take it back by asking for what is allocated:"
        " app cpu 1:2 memory 1Gi; side nothing"
    )
    assert refusal_message({}, Defer("not now"), sizes) == "not now"
    assert refusal_message(pod, Defer("not now"), sizes) == (
        "not now. A restart gives this node no more room: only another node helps"
    )
