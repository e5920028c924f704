"""What a generation means to clients of Kubernetes: a graceful deletion is a new one, and whoever
writes a condition says which one it has seen."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.objects import Object, lookup
from unit.agent.world import World, container
from unit.apiserver.conftest import Rig, pod
from virtual_time import virtual_time

pytestmark = virtual_time

PODS = "/api/v1/namespaces/default/pods"
OWN = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


async def test_a_graceful_delete_raises_it_once(rig: Rig) -> None:
    await rig.add_pod(node="n1")
    answer = await rig.request("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 60})
    assert answer.json["metadata"]["generation"] == 2
    hastened = await rig.request("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 5})
    assert hastened.json["metadata"]["deletionGracePeriodSeconds"] == 5
    assert hastened.json["metadata"]["generation"] == 2


async def test_so_does_one_that_a_finalizer_holds_up(rig: Rig) -> None:
    held: Any = pod()
    held["metadata"]["finalizers"] = ["example.com/held"]
    await rig.request("POST", PODS, held)
    answer = await rig.request("DELETE", f"{PODS}/web")
    assert answer.json["metadata"]["generation"] == 2


async def test_being_bound_is_told_with_it(rig: Rig) -> None:
    await rig.add_node("n1")
    await rig.request("POST", PODS, pod())
    binding = {"target": {"kind": "Node", "name": "n1"}}
    bound = await rig.request("POST", f"{PODS}/web/binding", binding, token="scheduler")
    assert bound.status == 201
    seen = (await rig.request("GET", f"{PODS}/web")).json
    (condition,) = seen["status"]["conditions"]
    assert (condition["type"], condition["observedGeneration"]) == ("PodScheduled", 1)


def generations(world: World, name: str) -> Object:
    conditions = lookup(world.api.pod(name), "status", "conditions", default=[])
    return {one["type"]: one.get("observedGeneration") for one in conditions}


async def test_every_condition_of_the_node_says_it(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    assert generations(world, "db") == dict.fromkeys(OWN, 1)
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")
    assert generations(world, "db") == dict.fromkeys(OWN, 2)
    await world.api.edit("db", ("spec", "activeDeadlineSeconds"), 5000)
    await world.until(
        lambda: generations(world, "db") == dict.fromkeys(OWN, 3), "the node has seen it"
    )


@pytest.mark.parametrize(("cpu", "phase"), [("3", "Deferred"), ("5", "Infeasible")])
async def test_a_verdict_brings_them_along_in_its_own_commit(
    world: World, cpu: str, phase: str
) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="2"))
    await world.api.run_pod("db", container())
    await world.running("big")
    await world.running("db")
    await world.api.resize("db", "app", cpu=cpu)
    await world.phase("db", phase)
    assert generations(world, "db") == dict.fromkeys(OWN, 2)


async def test_a_pod_that_the_node_refuses_has_been_seen(world: World) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="1000000000000"))
    await world.until(
        lambda: world.api.pod("big")["status"].get("reason") == "OutOfcpu", "it is refused"
    )
    status = world.api.pod("big")["status"]
    assert (status["phase"], status["observedGeneration"]) == ("Failed", 1)
