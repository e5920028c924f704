"""Deployments at work: rolled out, undone, paused, scaled, recreated; killed at each write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.api.errors import StatusError
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.controllers.deployment.replica_sets import DESIRED, HISTORY, MOST, REVISION
from livesize.controllers.kit.watches import controller_of
from unit.api.kinds.workload_objects import workload
from unit.controllers.workload_world import World, workload_world
from virtual_time import CLOCK, virtual_time

FIRST, SECOND, THIRD = "busybox:1", "busybox:2", "busybox:3"
"""Images; workloads are made with the first."""


def rolling(surge: Any, missing: Any) -> Object:
    return {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}


def annotated(world: World, image: str, name: str) -> str | None:
    for one in world.all(REPLICA_SETS):
        if lookup(one, "spec", "template", "spec", "containers", 0, "image") == image:
            return str(one["metadata"]["annotations"].get(name))
    return None


@pytest.mark.parametrize(("surge", "missing", "least", "most"), [
    (1, 0, 4, 5),
    (0, 1, 3, 4),
    (2, 2, 2, 6),
    ("100%", 0, 4, 8),
    ("25%", "25%", 3, 5),
])  # fmt: skip
@virtual_time
async def test_a_rollout_keeps_to_surge_and_missing(
    surge: Any, missing: Any, least: int, most: int
) -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=4, strategy=rolling(surge, missing))
        await world.rolled_out(FIRST, 4)
        world.watch_closely()
        await world.roll(SECOND)
        await world.rolled_out(SECOND, 4)
        await world.settled()
        assert (world.least_ready, world.most_active) == (least, most)
        assert world.sizes() == {SECOND: 4}
        assert world.reason("Progressing") == "NewReplicaSetAvailable"
        assert world.reason("Available") == "MinimumReplicasAvailable"
        await world.settled()
        assert lookup(world.get(DEPLOYMENTS), "status", "terminatingReplicas") == 0


@virtual_time
async def test_revisions_are_numbered_and_going_back_takes_the_next_number() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=2)
        await world.rolled_out(FIRST, 2)
        hashed = {one["metadata"]["labels"]["pod-template-hash"] for one in world.pods()}
        assert len(hashed) == 1
        await world.roll(SECOND)
        await world.rolled_out(SECOND, 2)
        await world.roll(FIRST)
        await world.rolled_out(FIRST, 2)
        await world.settled()
        assert len(world.all(REPLICA_SETS)) == 2
        assert annotated(world, FIRST, REVISION) == "3"
        assert annotated(world, FIRST, HISTORY) == "1"
        assert annotated(world, SECOND, REVISION) == "2"
        assert (annotated(world, FIRST, DESIRED), annotated(world, FIRST, MOST)) == ("2", "3")
        assert world.get(DEPLOYMENTS)["metadata"]["annotations"][REVISION] == "3"
        first = next(one for one in world.told("ScalingReplicaSet") if one.endswith("from 0 to 2"))
        assert first.startswith("Scaled up replica set web-")
        assert any("Scaled down" in one for one in world.told("ScalingReplicaSet"))


@virtual_time
async def test_old_replica_sets_go_beyond_the_limit() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=1, revisionHistoryLimit=1)
        for image in (FIRST, SECOND, THIRD, "busybox:4"):
            await world.roll(image)
            await world.rolled_out(image, 1)
        await world.settled()
        assert len(world.all(REPLICA_SETS)) == 2
        assert annotated(world, THIRD, REVISION) == "3"


@virtual_time
async def test_annotations_reach_the_replica_set() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=1)
        await world.rolled_out(FIRST, 1)
        applied = "kubectl.kubernetes.io/last-applied-configuration"
        said = {"kubernetes.io/change-cause": "because", applied: "{}"}
        patch = {"metadata": {"annotations": said}}
        await world.user.patch(DEPLOYMENTS, "web", patch, namespace="default")
        await world.until(
            lambda: annotated(world, FIRST, "kubernetes.io/change-cause") == "because"
        )
        assert annotated(world, FIRST, applied) == "None"


@virtual_time
async def test_a_paused_deployment_scales_but_does_not_roll_out() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=2)
        await world.rolled_out(FIRST, 2)
        await world.change(DEPLOYMENTS, paused=True)
        await world.until(lambda: world.reason("Progressing") == "DeploymentPaused")
        await world.roll(SECOND, replicas=3)
        await world.until(lambda: world.images() == [FIRST] * 3)
        await world.settled()
        assert world.sizes() == {FIRST: 3}
        await world.change(DEPLOYMENTS, paused=None)
        await world.rolled_out(SECOND, 3)
        await world.until(lambda: world.reason("Progressing") == "NewReplicaSetAvailable")


@virtual_time
async def test_a_rollout_that_stands_is_scaled_in_proportion() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=10, strategy=rolling(3, 2))
        await world.rolled_out(FIRST, 10)
        world.broken.add(SECOND)
        await world.roll(SECOND)
        await world.until(lambda: world.sizes() == {FIRST: 8, SECOND: 5})
        await world.change(DEPLOYMENTS, replicas=15)
        await world.until(lambda: world.sizes() == {FIRST: 11, SECOND: 7})
        await world.settled()
        assert world.sizes() == {FIRST: 11, SECOND: 7}
        world.broken.clear()
        await world.rolled_out(SECOND, 15)


@virtual_time
async def test_recreate_has_no_two_versions_at_once() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=3, strategy={"type": "Recreate"})
        await world.rolled_out(FIRST, 3)
        world.lingers.add(name_of(world.pods()[0]))
        await world.roll(SECOND)
        await world.until(lambda: len(world.all(PODS)) == 1)
        await world.settled()
        assert world.images() == []
        world.lingers.clear()
        await world.rolled_out(SECOND, 3)


@virtual_time
async def test_no_progress_for_too_long_is_said_and_late_progress_too() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=2, progressDeadlineSeconds=60)
        await world.rolled_out(FIRST, 2)
        world.broken.add(SECOND)
        await world.roll(SECOND)
        began = CLOCK.now()
        await world.until(lambda: world.reason("Progressing") == "ProgressDeadlineExceeded")
        assert 60 <= CLOCK.now() - began < 65
        assert world.sizes() == {FIRST: 2, SECOND: 1}
        writes = len(world.writes)
        await CLOCK.sleep(600)
        assert len(world.writes) == writes
        world.broken.clear()
        await world.rolled_out(SECOND, 2)
        await world.until(lambda: world.reason("Progressing") == "NewReplicaSetAvailable")


@virtual_time
async def test_a_name_that_is_taken_makes_another_hash() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=1)
        await world.rolled_out(FIRST, 1)
        await world.user.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await world.until(lambda: not world.all(REPLICA_SETS) and not world.all(PODS))
        taken = next(
            message.split()[4] for message in world.told("ScalingReplicaSet") if "up" in message
        )
        other = workload(REPLICA_SETS, taken, replicas=0)
        other["spec"]["selector"] = {"matchLabels": {"app": "other"}}
        other["spec"]["template"]["metadata"] = {"labels": {"app": "other"}}
        await world.user.create(REPLICA_SETS, other, "default")
        await world.make(DEPLOYMENTS, replicas=1)
        await world.rolled_out(FIRST, 1)
        assert lookup(world.get(DEPLOYMENTS), "status", "collisionCount") == 1
        assert controller_of(world.get(REPLICA_SETS, taken)) is None


@virtual_time
async def test_a_replica_set_that_is_refused_is_said() -> None:
    async with workload_world() as world:
        world.refused[REPLICA_SETS] = StatusError(403, "Forbidden", "not today")
        await world.make(DEPLOYMENTS, replicas=1)
        await world.until(lambda: world.reason("Progressing") == "ReplicaSetCreateError")
        (message,) = set(world.told("ReplicaSetCreateError"))
        assert message.startswith('Failed to create new replica set "web-')
        assert message.endswith("not today")
        world.refused.clear()
        await world.rolled_out(FIRST, 1)


@virtual_time
async def test_replica_sets_are_orphaned_and_adopted_with_their_pods() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=2)
        await world.rolled_out(FIRST, 2)
        pods = {uid_of(one) for one in world.pods()}
        await world.user.delete(DEPLOYMENTS, "web", "default", propagation="Orphan")
        await world.until(lambda: not world.get(DEPLOYMENTS))
        await world.settled()
        (orphan,) = world.all(REPLICA_SETS)
        assert controller_of(orphan) is None
        made = await world.make(DEPLOYMENTS, replicas=2)
        await world.rolled_out(FIRST, 2)
        (adopted,) = world.all(REPLICA_SETS)
        assert (controller_of(adopted) or {}).get("uid") == uid_of(made)
        assert {uid_of(one) for one in world.pods()} == pods


@virtual_time
async def test_a_deleted_deployment_takes_all_with_it() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=2)
        await world.rolled_out(FIRST, 2)
        await world.user.delete(DEPLOYMENTS, "web", "default", propagation="Foreground")
        await world.until(lambda: not world.get(DEPLOYMENTS))
        assert (world.all(REPLICA_SETS), world.pods()) == ([], [])


@virtual_time
async def test_idle_deployments_cost_nothing() -> None:
    async with workload_world() as world:
        for number in range(10):
            labels = {"app": f"web-{number}"}
            containers = [{"name": "app", "image": FIRST}]
            template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
            said = {"template": template, "selector": {"matchLabels": labels}}
            await world.make(DEPLOYMENTS, f"web-{number}", replicas=1, **said)
        await world.until(lambda: len(world.pods()) == 10)
        await CLOCK.sleep(700)  # each looks once more when its rollout would have failed
        turns = len(world.reconciled)
        await CLOCK.sleep(700)
        assert len(world.reconciled) == turns
        await world.change(DEPLOYMENTS, "web-7", replicas=2)
        await world.until(lambda: len(world.pods()) == 11)
        await world.settled()
        keys = [key for name, key in world.reconciled[turns:] if name != "garbage"]
        assert keys
        assert all(name.startswith("web-7") for _, name in keys)


@pytest.mark.parametrize("dies_at", range(1, 40, 2))
@virtual_time
async def test_controllers_that_die_at_any_write_finish_what_was_begun(dies_at: int) -> None:
    async with workload_world(dies_at) as world:
        await world.make(DEPLOYMENTS, replicas=3, strategy=rolling(1, 1))
        await world.rolled_out(FIRST, 3)
        world.watch_closely()
        await world.roll(SECOND)
        await world.rolled_out(SECOND, 3)
        await world.settled()
        assert world.most_active <= 4
        assert world.least_ready is not None
        assert world.least_ready >= 2
        assert len(world.all(REPLICA_SETS)) == 2
        assert len(world.all(PODS)) == 3
        assert len(world.writes) >= dies_at


@virtual_time
async def test_a_change_in_the_middle_of_a_rollout_goes_to_the_newest() -> None:
    async with workload_world() as world:
        await world.make(DEPLOYMENTS, replicas=4)
        await world.rolled_out(FIRST, 4)
        world.ready_seconds = 3
        world.watch_closely()
        await world.roll(SECOND)
        await world.until(lambda: SECOND in world.sizes())
        async with asyncio.timeout(1000):
            await world.roll(THIRD)
            await world.rolled_out(THIRD, 4)
        assert world.most_active <= 5
        assert world.least_ready is not None
        assert world.least_ready >= 3
