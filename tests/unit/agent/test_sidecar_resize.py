"""Sidecars are resized like containers: in the groups' order, with their policy, counted, told."""

from __future__ import annotations

import orjson
import pytest

from livesize.agent.allocation.ledger import Allocation, StartingSize, footprint_of
from livesize.agent.pods.config import wanted_pod_limits
from livesize.api.kernel_units import CgroupVersion
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.runtime.fake import Behaviour
from unit.agent.world import CrashAt, World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1024 * 1024
PREPARE = ("prepare",)
MEMORY_RESTARTS = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def sidecar(name: str = "side", **more: object) -> Object:
    return container(name, restartPolicy="Always", **more)


def init_status(world: World, name: str, served: bool = True) -> Object:
    pod = world.api.served("db") if served else world.api.pod("db")
    listed = lookup(pod, "status", "initContainerStatuses", default=[])
    return next(one for one in listed if one["name"] == name)


def sizes_of(cpu: str, memory: str) -> Object:
    size = {"cpu": cpu, "memory": memory}
    return {"requests": size, "limits": size}


def steps(world: World) -> list[str]:
    return [step["name"] for step in resize_state(world.api.pod("db"))["steps"]]


async def test_a_sidecar_is_resized_in_place_and_every_dialect_says_so(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    pids = [world.pid(uid, name) for name in ("side", "app")]
    assert init_status(world, "side")["resources"] == sizes_of("500m", "64Mi")
    assert init_status(world, "side")["allocatedResources"] == {"cpu": "500m", "memory": "64Mi"}
    await world.api.resize("db", "side", cpu="1", memory="128Mi")
    asked = world.api.served("db")["spec"]
    assert asked["resizeRequest"]["newResources"] == [{"name": "side", **sizes_of("1", "128Mi")}]
    assert asked["initContainers"][0]["resourcesAllocated"] == {"cpu": "500m", "memory": "64Mi"}
    await world.phase("db", "Done")
    assert (world.quota_us(uid, "side"), world.memory_bytes(uid, "side")) == (100_000, 128 * MIB)
    assert world.pod_quota_us(uid) == 150_000
    assert [world.pid(uid, name) for name in ("side", "app")] == pids
    done = world.api.served("db")
    assert done["spec"]["initContainers"][0]["resourcesAllocated"] == {
        "cpu": "1",
        "memory": "128Mi",
    }
    assert init_status(world, "side")["allocatedResources"] == {"cpu": "1", "memory": "128Mi"}
    assert init_status(world, "side")["resources"] == sizes_of("1", "128Mi")
    assert world.agent is not None
    used = world.agent._admission.ledger.used
    assert (used.cpu_milli, used.memory_bytes) == (1500, 192 * MIB)


@pytest.mark.parametrize(
    ("cpu", "order"),
    [
        ("1", ["pod:cpu", "container:side:cpu"]),
        ("250m", ["container:side:cpu", "pod:cpu"]),
    ],
    ids=["the pod's group first on growth", "and last on a shrink"],
)
async def test_its_group_and_the_pods_change_in_the_safe_order(
    world: World, cpu: str, order: list[str]
) -> None:
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    await world.running("db")
    await world.api.resize("db", "side", cpu=cpu)
    await world.phase("db", "Done")
    assert [step for step in steps(world) if step.endswith(":cpu")][:2] == order


async def test_cpu_moves_from_a_container_to_its_sidecar(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    with world.client.deaf():
        await world.api.resize("db", "app", cpu="250m")
        await world.api.resize("db", "side", cpu="750m")
    await world.phase("db", "Done")
    assert (world.quota_us(uid), world.quota_us(uid, "side")) == (25_000, 75_000)
    assert world.pod_quota_us(uid) == 100_000


async def test_its_policy_restarts_it_alone(world: World) -> None:
    await world.start()
    side = sidecar(resizePolicy=MEMORY_RESTARTS)
    await world.api.run_pod("db", container(), initContainers=[side])
    uid = await world.running("db")
    app = world.pid(uid)
    await world.api.resize("db", "side", cpu="1")
    await world.phase("db", "Done")
    assert world.attempt(uid, "side") == 0
    await world.api.resize("db", "side", memory="128Mi")
    await world.phase("db", "Done")
    assert (world.attempt(uid, "side"), world.pid(uid)) == (1, app)
    assert world.memory_bytes(uid, "side") == 128 * MIB
    assert init_status(world, "side", served=False)["restartCount"] == 1


async def test_where_all_restart_a_sidecar_stops_last_and_starts_first(world: World) -> None:
    await world.start()
    app = container()
    app["resources"] = {**app["resources"], "resizePolicy": {"memory": "RestartOnly"}}
    await world.api.run_pod("db", app, initContainers=[sidecar("b-side"), sidecar("a-side")])
    await world.running("db")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    restarts = [step for step in steps(world) if step.startswith(("stop:", "start:"))]
    assert restarts == [
        "stop:app",
        "stop:a-side",
        "stop:b-side",
        "start:b-side",
        "start:a-side",
        "start:app",
    ]


async def test_it_is_not_done_before_the_sidecar_has_it(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    world.machine.use_memory(uid, "side", 48 * MIB)
    await world.api.resize("db", "side", memory="32Mi")
    await world.phase("db", "Error")
    assert "below current usage" in resize_state(world.api.pod("db"))["message"]
    assert init_status(world, "side")["resources"]["limits"]["memory"] == "64Mi"
    world.machine.use_memory(uid, "side", 8 * MIB)
    await world.phase("db", "Done")
    assert init_status(world, "side")["resources"] == sizes_of("500m", "32Mi")


@pytest.mark.parametrize(("cpu", "phase"), [("3", "Deferred"), ("5", "Infeasible")])
async def test_a_sidecar_that_does_not_fit_is_refused(world: World, cpu: str, phase: str) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="1"))
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    await world.running("big")
    await world.api.resize("db", "side", cpu=cpu)
    await world.phase("db", phase)
    assert world.quota_us(uid, "side") == 50_000


async def test_a_resize_before_the_containers_run_reaches_the_sidecar(world: World) -> None:
    """An init container may take long; a sidecar before it runs and can be resized."""
    await world.start()
    first = container("first", cpu="1", memory="32Mi", command=list(PREPARE))
    await world.api.run_pod("db", container(), initContainers=[sidecar(), first])
    await world.until(lambda: "first" in _machine_names(world), "the init container runs")
    uid = world.api.pod("db")["metadata"]["uid"]
    assert world.pod_quota_us(uid) == 150_000
    await world.api.resize("db", "side", cpu="1")
    await world.phase("db", "Done")
    assert (world.quota_us(uid, "side"), world.pod_quota_us(uid)) == (100_000, 200_000)
    assert init_status(world, "first")["allocatedResources"] == {"cpu": "1", "memory": "32Mi"}
    assert init_status(world, "first")["resources"] == sizes_of("1", "32Mi")


async def test_after_a_crash_in_the_middle_a_sidecar_gets_the_rest(world: World) -> None:
    points = CrashAt("resize/container:side:cpu/after")
    await world.start(points)
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    await world.api.resize("db", "side", cpu="1", memory="128Mi")
    await world.crashed()
    await world.start()
    await world.phase("db", "Done")
    assert (world.quota_us(uid, "side"), world.memory_bytes(uid, "side")) == (100_000, 128 * MIB)
    assert world.attempt(uid, "side") == 0


async def test_a_sidecar_that_ended_starts_again_at_its_new_size(world: World) -> None:
    world.machine.behaviours[PREPARE] = Behaviour()
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[sidecar()])
    uid = await world.running("db")
    await world.api.resize("db", "side", cpu="1")
    await world.phase("db", "Done")
    world.machine.exit(uid, "side", 1)
    await world.until(lambda: world.attempt(uid, "side") == 1, "it runs again")
    assert world.quota_us(uid, "side") == 100_000


def _machine_names(world: World) -> set[str]:
    uid = lookup(world.api.objects.get(("pods", "default", "db"), {}), "metadata", "uid")
    pod = world.machine.pods.get(uid)
    return set() if pod is None else set(pod.containers)


# The books


def size(name: str, cpu: str) -> Object:
    return {"name": name, "requests": {"cpu": cpu, "memory": "1Mi"}}


def entry(*starting: StartingSize, app: str = "100m", side: str = "100m") -> Allocation:
    sizes = (size("app", app), size("side", side))
    return Allocation("u", "default", "db", 1, sizes, sizes, starting=starting)


SIDE = StartingSize({"name": "side"}, stays=True)
FIRST = StartingSize(size("first", "1"), stays=False)


@pytest.mark.parametrize(
    ("allocation", "cpu_milli"),
    [
        pytest.param(entry(SIDE), 200, id="beside the containers"),
        pytest.param(entry(SIDE, FIRST), 1100, id="beside an init container that comes later"),
        pytest.param(entry(FIRST, SIDE), 1000, id="not beside one that comes before"),
        pytest.param(
            entry(SIDE, FIRST).accepted([size("app", "100m"), size("side", "300m")], 2),
            1300,
            id="it grows",
        ),
        pytest.param(
            entry(SIDE, FIRST).accepted([size("app", "150m"), size("side", "50m")], 2),
            1100,
            id="it shrinks, and still has what it had before",
        ),
        pytest.param(
            entry(SIDE, FIRST)
            .accepted([size("app", "150m"), size("side", "50m")], 2)
            .applied((size("app", "150m"), size("side", "50m"))),
            1050,
            id="the shrink is applied",
        ),
    ],
)
def test_footprint_of_a_sidecar(allocation: Allocation, cpu_milli: int) -> None:
    assert footprint_of(allocation).cpu_milli == cpu_milli


def test_a_promise_taken_back_before_the_containers_start_is_not_settled() -> None:
    once = entry(SIDE, FIRST, app="200m").accepted([size("app", "100m"), size("side", "200m")], 2)
    back = once.accepted([size("app", "200m"), size("side", "100m")], 3)
    assert not back.settled, "the sidecar may have got the larger size"
    assert footprint_of(back).cpu_milli == 1200
    assert footprint_of(back.applied(back.allocated)).cpu_milli == 1100


def test_the_pods_group_counts_a_sidecar_once() -> None:
    limits = wanted_pod_limits(entry(SIDE), CgroupVersion.V1)
    both = Allocation("u", "default", "db", 1, entry().allocated, entry().allocated)
    assert limits == wanted_pod_limits(both, CgroupVersion.V1)


async def test_what_an_older_agent_wrote_has_its_sidecars(world: World) -> None:
    """It had their sizes beside those of other init containers, and not among the allocated."""
    old = Allocation(
        uid="u",
        namespace="default",
        name="db",
        generation=1,
        allocated=(size("app", "100m"),),
        actuated=(size("app", "100m"),),
        starting=(StartingSize(size("side", "300m"), stays=True),),
    )
    assert old.completed().size("side") == size("side", "300m")
    assert footprint_of(old.completed()).cpu_milli == 400
    assert orjson.dumps([one["name"] for one in old.completed().actuated]) == b'["app","side"]'
