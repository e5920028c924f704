"""Init containers and sidecars: their order, what they count for, and what status says."""

from __future__ import annotations

import msgspec
import pytest

from livesize.api.conditions import find_condition, is_true
from livesize.api.objects import Object, lookup
from livesize.api.pod_summary import pod_status_text
from livesize.runtime.fake import Behaviour
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1024 * 1024
PREPARE = ("prepare",)


def init(name: str = "init", **more: object) -> Object:
    return container(name, cpu="100m", memory="32Mi", command=list(PREPARE), **more)


def statuses(world: World, name: str) -> dict[str, Object]:
    listed = lookup(world.api.pod(name), "status", "initContainerStatuses", default=[])
    return {one["name"]: one for one in listed}


async def test_each_runs_to_its_end_before_the_next(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[init("one"), init("two")])
    await world.until(lambda: "state" in statuses(world, "db").get("one", {}), "status is told")
    await world.until(lambda: "running" in statuses(world, "db")["one"]["state"], "the first runs")
    pod = world.api.pod("db")
    assert pod_status_text(pod) == "Init:0/2"
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    condition = find_condition(pod, "Initialized")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "ContainersNotInitialized")
    uid = pod["metadata"]["uid"]
    assert set(world.machine.pods[uid].containers) == {"one"}
    world.machine.exit(uid, "one", 0)
    await world.until(lambda: "two" in world.machine.pods[uid].containers, "the second runs")
    world.machine.exit(uid, "two", 0)
    await world.running("db")
    assert is_true(world.api.pod("db"), "Initialized")
    assert is_true(world.api.pod("db"), "Ready")
    assert statuses(world, "db")["one"]["ready"]


async def test_one_that_fails_is_tried_again_and_the_word_says_so(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, crash_backoff_seconds=0.3)
    world.machine.behaviours[PREPARE] = Behaviour(exit_code=3)
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[init()])
    await world.until(
        lambda: statuses(world, "db").get("init", {}).get("restartCount") == 1, "tried again"
    )
    await world.until(
        lambda: pod_status_text(world.api.pod("db")) == "Init:CrashLoopBackOff", "it is told"
    )
    world.machine.behaviours[PREPARE] = Behaviour(exit_code=0)
    await world.running("db")
    assert statuses(world, "db")["init"]["restartCount"] >= 2


async def test_a_pod_that_never_restarts_fails_with_its_init_container(world: World) -> None:
    world.machine.behaviours[PREPARE] = Behaviour(exit_code=3)
    await world.start()
    await world.api.run_pod("db", container(), initContainers=[init()], restartPolicy="Never")
    await world.until(lambda: world.api.pod("db")["status"]["phase"] == "Failed", "it failed")


@pytest.mark.parametrize("policy", ["Always", "Never"])
async def test_its_own_policy_counts_and_not_the_pods(world: World, policy: str) -> None:
    """Kubernetes 1.35: init containers may have restartPolicy Never and OnFailure."""
    world.machine.behaviours[PREPARE] = Behaviour(exit_code=3)
    await world.start()
    once = init("once", restartPolicy="Never")
    await world.api.run_pod("once", container(), initContainers=[once], restartPolicy=policy)
    await world.until(lambda: world.api.pod("once")["status"]["phase"] == "Failed", "it failed")
    assert statuses(world, "once")["once"]["restartCount"] == 0
    again = init("again", restartPolicy="OnFailure")
    await world.api.run_pod("again", container(), initContainers=[again], restartPolicy=policy)
    await world.until(
        lambda: statuses(world, "again").get("again", {}).get("restartCount", 0) > 1, "tried again"
    )
    world.machine.behaviours[PREPARE] = Behaviour(exit_code=0)
    await world.running("again")


async def test_a_rule_restarts_a_container_that_never_does(world: World) -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    await world.start()
    app = container(restartPolicy="Never", restartPolicyRules=[rule])
    await world.api.run_pod("job", app, restartPolicy="Never")
    uid = await world.running("job")
    world.machine.exit(uid, "app", 42)
    await world.until(lambda: world.attempt(uid) == 1, "it runs again")
    world.machine.exit(uid, "app", 1)
    await world.until(lambda: world.api.pod("job")["status"]["phase"] == "Failed", "it failed")
    assert world.api.pod("job")["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_sidecar_starts_first_stays_and_stops_last(world: World) -> None:
    ended: list[str] = []
    leave = world.machine.exit

    def exit_(pod_uid: str, name: str, code: int, **more: bool) -> None:
        ended.append(name)
        leave(pod_uid, name, code, **more)

    world.machine.exit = exit_  # type: ignore[method-assign]
    await world.start()
    side = init("side", restartPolicy="Always")
    await world.api.run_pod("db", container(), initContainers=[side])
    uid = await world.running("db")
    pids = {name: world.pid(uid, name) for name in ("side", "app")}
    assert pids["side"] < pids["app"]
    assert statuses(world, "db")["side"]["ready"]
    world.machine.exit(uid, "side", 0)
    await world.until(lambda: world.attempt(uid, "side") == 1, "the sidecar restarts")
    assert world.pid(uid, "app") == pids["app"]
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "gone")
    assert ended == ["side", "app", "side"]


async def test_a_finished_pod_stops_its_sidecars(world: World) -> None:
    await world.start()
    side = init("side", restartPolicy="Always")
    await world.api.run_pod("job", container(), initContainers=[side], restartPolicy="Never")
    uid = await world.running("job")
    world.machine.exit(uid, "app", 0)
    await world.until(lambda: world.api.pod("job")["status"]["phase"] == "Succeeded", "done")


@pytest.mark.parametrize(
    ("stays", "quota_us", "memory_mib"),
    [(False, 150_000, 128), (True, 200_000, 192)],
    ids=["the larger of both", "sidecars are added"],
)
async def test_the_pods_group_is_large_enough_for_every_moment(
    world: World, stays: bool, quota_us: int, memory_mib: int
) -> None:
    await world.start()
    kind = {"restartPolicy": "Always"} if stays else {}
    first = container("first", cpu="1500m", memory="128Mi", command=list(PREPARE), **kind)
    if not stays:
        world.machine.behaviours[PREPARE] = Behaviour(exit_code=0)
    await world.api.run_pod("db", container(), initContainers=[first])
    uid = await world.running("db")
    assert world.pod_quota_us(uid) == quota_us
    assert world.memory_bytes(uid) == 64 * MIB
    assert world.agent is not None
    used = world.agent._admission.ledger.used
    assert (used.cpu_milli, used.memory_bytes) == (quota_us // 100, memory_mib * MIB)
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")
    grown = 150_000 if not stays else 250_000
    assert world.pod_quota_us(uid) == grown
