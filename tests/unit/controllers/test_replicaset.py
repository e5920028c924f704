"""ReplicaSets: the plan of their pods and status, and the controller at work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.errors import Cause, StatusError
from livesize.api.kinds.limit_range import LIMIT_RANGES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.controllers.kit.watches import controller_of
from livesize.controllers.replicaset.plan import (
    PodFailure,
    plan_pods,
    plan_status,
    plan_wait,
)
from unit.apiserver.conftest import pod as plain_pod
from unit.controllers.test_owned_pods import NOW, pod
from unit.controllers.workload_world import World, workload_world
from virtual_time import CLOCK, virtual_time


def replica_set(replicas: int, **spec: object) -> Object:
    metadata = {"name": "web", "namespace": "default", "uid": "u", "generation": 3}
    labels = {"metadata": {"labels": {"app": "web"}}}
    return {"metadata": metadata, "spec": {"replicas": replicas, "template": labels, **spec}}


READY, STARTING = {}, {"ready": None}
LEAVING, FAILED = {"leaving": True}, {"phase": "Failed"}


@pytest.mark.parametrize(("replicas", "facts", "create", "deleted"), [
    (2, [], 2, []),
    (2, [READY, READY], 0, []),
    (2, [READY, LEAVING, FAILED], 1, []),
    (1, [READY, STARTING, READY], 0, ["1", "0"]),
    (0, [READY, LEAVING], 0, ["0"]),
    (700, [], 500, []),
])  # fmt: skip
def test_which_pods_are_made_and_deleted(
    replicas: int, facts: list[Object], create: int, deleted: list[str]
) -> None:
    pods = [pod(str(index), **one) for index, one in enumerate(facts)]
    changes = plan_pods(replica_set(replicas), pods, pods, NOW)
    assert (changes.create, [name_of(one) for one in changes.delete]) == (create, deleted)


def test_a_replica_set_that_goes_makes_and_deletes_nothing() -> None:
    leaving = replica_set(3)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan_pods(leaving, [], [], NOW).create == 0


def test_a_node_with_many_pods_of_the_deployment_spares_one_first() -> None:
    pods = [pod("alone", node="n1"), pod("crowded", node="n2")]
    sibling = pod("sibling", node="n2")
    (gone,) = plan_pods(replica_set(1), pods, [*pods, sibling], NOW).delete
    assert name_of(gone) == "crowded"


@settings(max_examples=60)
@given(
    replicas=st.integers(0, 6),
    facts=st.lists(st.sampled_from([READY, STARTING, LEAVING, FAILED]), max_size=8),
)
def test_one_plan_is_enough_and_spares_those_that_serve(replicas: int, facts: list[Object]) -> None:
    pods = [pod(str(index), **one) for index, one in enumerate(facts)]
    changes = plan_pods(replica_set(replicas), pods, pods, NOW)
    gone = {name_of(one) for one in changes.delete}
    kept = [one for one in pods if name_of(one) not in gone]
    kept += [pod(f"made-{index}", **STARTING) for index in range(changes.create)]
    after = plan_pods(replica_set(replicas), kept, kept, NOW)
    assert (after.create, after.delete) == (0, ())
    ready = facts.count(READY)
    assert sum(facts[int(name)] is READY for name in gone) == max(0, ready - replicas)


def test_a_status_counts_its_pods() -> None:
    labelled = {"metadata": {"labels": {"app": "web"}}}
    pods = [pod("a", ready=9), pod("b", ready=3), pod("c", **STARTING), pod("d", **LEAVING)]
    pods[0]["metadata"] |= labelled["metadata"]
    made = replica_set(3, minReadySeconds=5)
    status = plan_status(made, pods, None, NOW)
    assert status == {
        "replicas": 3,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "terminatingReplicas": 1,
        "observedGeneration": 3,
    }
    assert plan_wait(made, pods, NOW) == 2.0
    assert plan_status({**made, "status": status}, pods, None, NOW) is None


def test_a_failure_is_a_condition_until_it_is_over() -> None:
    made = replica_set(1)
    failed = plan_status(made, [], PodFailure("FailedCreate", "no room"), NOW)
    assert failed is not None
    (condition,) = failed["conditions"]
    assert (condition["type"], condition["status"]) == ("ReplicaFailure", "True")
    assert (condition["reason"], condition["message"]) == ("FailedCreate", "no room")
    made = {**made, "status": failed}
    assert plan_status(made, [], PodFailure("FailedCreate", "less room"), NOW + 9) is None
    healed = plan_status(made, [], None, NOW)
    assert healed is not None
    assert "conditions" not in healed


# The controller at work


@virtual_time
async def test_pods_are_made_and_replaced_and_their_number_follows() -> None:
    async with workload_world() as world:
        made = await world.make(REPLICA_SETS, replicas=3)
        await world.until(lambda: counted(world, "availableReplicas") == 3)
        pods = world.pods()
        assert all(name_of(one).startswith("web-") for one in pods)
        owners = [controller_of(one) or {} for one in pods]
        assert [one["uid"] for one in owners] == [uid_of(made)] * 3
        created = sorted(f"Created pod: {name_of(one)}" for one in pods)
        assert sorted(world.told("SuccessfulCreate")) == created
        await world.user.delete(PODS, name_of(pods[0]), "default")
        await world.until(lambda: len(world.told("SuccessfulCreate")) == 4)
        await world.change(REPLICA_SETS, replicas=1)
        await world.until(lambda: len(world.told("SuccessfulDelete")) == 2)
        await world.until(lambda: counted(world, "replicas") == 1)
        status = world.get(REPLICA_SETS)["status"]
        assert status["observedGeneration"] == world.get(REPLICA_SETS)["metadata"]["generation"]
        await world.until(lambda: counted(world, "terminatingReplicas") == 0)
        await world.settled()
        assert len(world.told("SuccessfulCreate")) == 4


def counted(world: World, field: str) -> int:
    return int(lookup(world.get(REPLICA_SETS), "status", field, default=-1))


@virtual_time
async def test_a_template_that_changes_changes_no_pod() -> None:
    async with workload_world() as world:
        await world.make(REPLICA_SETS, replicas=2)
        await world.until(lambda: counted(world, "availableReplicas") == 2)
        template = {"spec": {"containers": [{"name": "app", "image": "busybox:2"}]}}
        await world.change(REPLICA_SETS, template=template)
        await world.settled()
        assert world.images() == ["busybox:1"] * 2
        await world.change(REPLICA_SETS, replicas=3)
        await world.until(lambda: world.images() == ["busybox:1", "busybox:1", "busybox:2"])


@virtual_time
async def test_a_pod_with_other_labels_is_released_and_one_that_matches_adopted() -> None:
    async with workload_world() as world:
        made = await world.make(REPLICA_SETS, replicas=2)
        await world.until(lambda: counted(world, "availableReplicas") == 2)
        released = name_of(world.pods()[0])
        await world.label(PODS, released, app="other")
        await world.until(lambda: counted(world, "availableReplicas") == 2 and world.pods())
        await world.until(lambda: len(world.pods()) == 3)
        assert controller_of(world.get(PODS, released)) is None
        orphan = plain_pod("orphan")
        orphan["metadata"]["labels"] = {"app": "web"}
        await world.user.create(PODS, orphan, "default")
        await world.until(lambda: world.told("SuccessfulDelete"))
        await world.settled()
        owned = [
            one for one in world.pods() if (controller_of(one) or {}).get("uid") == uid_of(made)
        ]
        assert len(owned) == 2
        assert world.told("SuccessfulDelete") == ["Deleted pod: orphan"]  # it had no node yet


@virtual_time
async def test_time_alone_makes_a_pod_available() -> None:
    async with workload_world() as world:
        await world.make(REPLICA_SETS, replicas=2, minReadySeconds=20)
        await world.until(lambda: counted(world, "readyReplicas") == 2)
        assert counted(world, "availableReplicas") == -1
        since = CLOCK.now()
        await world.until(lambda: counted(world, "availableReplicas") == 2)
        assert 18 < CLOCK.now() - since < 22


QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
LIMITS = {"type": "Container", "max": {"cpu": "1"}}
RANGE = {"metadata": {"name": "r"}, "spec": {"limits": [LIMITS]}}


@virtual_time
async def test_a_refusal_is_told_with_its_reason_and_is_tried_again() -> None:
    async with workload_world() as world:
        await world.user.create(RESOURCE_QUOTAS, QUOTA, "default")
        await world.make(REPLICA_SETS, replicas=4)
        await world.until(lambda: world.reason("ReplicaFailure", REPLICA_SETS) == "FailedCreate")
        await world.until(lambda: counted(world, "availableReplicas") == 2)
        assert "Error creating: " in world.told("FailedCreate")[0]
        assert "exceeded quota: q" in world.told("FailedCreate")[0]
        await world.user.delete(RESOURCE_QUOTAS, "q", "default")
        await world.until(lambda: counted(world, "availableReplicas") == 4)
        assert world.reason("ReplicaFailure", REPLICA_SETS) == "None"


@virtual_time
async def test_a_refusal_of_admission_is_told() -> None:
    async with workload_world() as world:
        await world.user.create(LIMIT_RANGES, RANGE, "default")
        size = {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
        container = {"name": "app", "image": "busybox:1", "resources": size}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        await world.make(REPLICA_SETS, replicas=100, template=template)
        await world.until(lambda: world.told("FailedCreate"))
        assert "maximum cpu usage per Container is 1" in world.told("FailedCreate")[0]


@virtual_time
async def test_a_refusal_that_meets_all_pods_is_met_once_at_a_time() -> None:
    async with workload_world() as world:
        world.refused[PODS] = StatusError(403, "Forbidden", "not today")
        await world.make(REPLICA_SETS, replicas=100)
        await CLOCK.sleep(600)
        assert 5 < world.attempts < 50
        assert set(world.told("FailedCreate")) == {"Error creating: not today"}


@virtual_time
async def test_in_a_namespace_that_ends_nothing_is_made_and_nothing_told() -> None:
    async with workload_world() as world:
        causes = [Cause("NamespaceTerminating", "default is being terminated")]
        world.refused[PODS] = StatusError(403, "Forbidden", "it ends", causes=causes)
        await world.make(REPLICA_SETS, replicas=100)
        await CLOCK.sleep(600)
        assert (world.told("FailedCreate"), world.attempts) == ([], 2)  # the second: its status
        assert world.reason("ReplicaFailure", REPLICA_SETS) == "None"


@pytest.mark.parametrize("dies_at", range(1, 12))
@virtual_time
async def test_a_controller_that_dies_makes_no_pod_twice(dies_at: int) -> None:
    async with workload_world(dies_at) as world:
        await world.make(REPLICA_SETS, replicas=5)
        await world.until(lambda: counted(world, "availableReplicas") == 5)
        await world.settled()
        assert (world.most_active, len(world.all(PODS))) == (5, 5)
        await world.change(REPLICA_SETS, replicas=2)
        await world.until(lambda: counted(world, "replicas") == 2)
        await world.settled()
        assert len(world.all(PODS)) == 2
        assert len(world.writes) >= dies_at
