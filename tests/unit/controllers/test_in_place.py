"""in_place on the real API service, with real agents, on virtual time; killed at each write."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.errors import StatusError
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.sim.control_plane import CONTROLLERS
from unit.controllers.workload_cluster import NAMESPACE, WorkloadCluster, workload, workload_cluster
from virtual_time import virtual_time

KINDS = pytest.mark.parametrize("resource", [STATEFUL_SETS, DEPLOYMENTS], ids=lambda one: one.kind)


async def running(cluster: WorkloadCluster, resource: Resource, **more: Any) -> dict[str, str]:
    """The workload, with its pods ready: their uids."""
    made = workload(resource, **more)
    await cluster.user.create(resource, made, NAMESPACE)
    await cluster.until_ready(made["spec"]["replicas"])
    return await uids(cluster)


async def uids(cluster: WorkloadCluster) -> dict[str, str]:
    return {name_of(pod): uid_of(pod) for pod in await cluster.pods()}


@KINDS
@virtual_time
async def test_pods_are_resized_and_none_is_recreated(resource: Resource) -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        client = cluster.begin()
        held = await cluster.resize(resource, "2")
        assert "livesize.dev/held" in held["metadata"]["annotations"]
        after = await cluster.until_released(resource)
        assert await cluster.sizes() == ["2", "2", "2"]
        assert await uids(cluster) == before
        status = await cluster.status(resource)
        assert (status["pods"], status["updated"], status["unfinished"]) == (3, 3, [])
        assert status["generation"] == held["metadata"]["generation"]
        order = [one for one in client.written if one.startswith("resize")]
        if resource is STATEFUL_SETS:
            assert order == ["resize db-2", "resize db-1", "resize db-0"]
            revision = after["status"]["updateRevision"]
            labels = [pod["metadata"]["labels"] for pod in await cluster.pods()]
            assert {one["controller-revision-hash"] for one in labels} == {revision}
            assert lookup(after, "spec", "updateStrategy", "rollingUpdate", "partition") == 0
        else:
            assert len(order) == 3
            assert "paused" not in after["spec"]
            assert len((await cluster.user.list(REPLICA_SETS)).items) == 1
        await cluster.clock.sleep(5)  # and nothing happens afterwards
        assert await uids(cluster) == before


RESTART = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
IN_PLACE = {"resizeAction": "InPlaceResize"}
SOON = {"livesize.dev/resize-deadline": "1s"}
PARTITION = ("spec", "updateStrategy", "rollingUpdate", "partition")


@KINDS
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtual_time
async def test_it_may_die_at_each_write(resource: Resource, after: bool) -> None:
    """Killed at its first write, its second, and so on: the next one does the rest."""
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        cpu, died = 1, 0
        while True:
            cpu += 1
            client = cluster.begin(died, after=after)
            await cluster.resize(resource, str(cpu))
            await cluster.clock.sleep(2)
            await cluster.end()
            if not client.dead.is_set():
                break
            died += 1
            cluster.begin()
            await cluster.until_released(resource)
            assert await cluster.sizes() == [str(cpu)] * 3
            await cluster.end()
        assert died >= {STATEFUL_SETS: 7, DEPLOYMENTS: 5}[resource]
        assert await uids(cluster) == before
        assert {name: len(known) for name, known in cluster.uids.items()} == dict.fromkeys(
            before, 1
        )
        found = await cluster.get(resource)
        assert (lookup(found, *PARTITION, default=0), "paused" in found["spec"]) == (0, False)


@KINDS
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtual_time
async def test_the_built_in_controllers_may_die_at_each_write(
    resource: Resource, after: bool
) -> None:
    """Killed at their first write since the resize, their second, and so on, and started again."""
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        cluster.begin()
        cpu, died = 1, 0
        while True:
            cpu += 1
            killed = cluster.built_in
            killed.die(died, after=after)
            await cluster.resize(resource, str(cpu))
            await cluster.until_released(resource)
            await cluster.clock.sleep(1)
            killed.live()
            assert await cluster.sizes() == [str(cpu)] * 3
            if not killed.dead.is_set():
                break
            died += 1
        assert died >= {STATEFUL_SETS: 5, DEPLOYMENTS: 3}[resource]
        assert {name: len(known) for name, known in cluster.uids.items()} == dict.fromkeys(
            before, 1
        )
        found = await cluster.get(resource)
        assert (lookup(found, *PARTITION, default=0), "paused" in found["spec"]) == (0, False)


async def fill(cluster: WorkloadCluster, node: str, cpu: str) -> None:
    """So that so much less is left of it."""
    sizes = {"requests": {"cpu": cpu, "memory": "1Mi"}}
    app = {
        **workload(STATEFUL_SETS)["spec"]["template"]["spec"]["containers"][0],
        "resources": sizes,
    }
    spec = {"containers": [app], "nodeName": node, "terminationGracePeriodSeconds": 0}
    body = {"metadata": {"name": "filler", "namespace": NAMESPACE}, "spec": spec}
    await cluster.user.create(PODS, body, NAMESPACE)


async def spread(cluster: WorkloadCluster, resource: Resource, **more: Any) -> dict[str, str]:
    """Each pod is on a node of its own; that of one, db-1 of a StatefulSet, has no room for it to
    grow."""
    for replicas in (1, 2, 3):
        if replicas == 1:
            await running(cluster, resource, replicas=1, **more)
        else:
            await cluster.write(resource, {"spec": {"replicas": replicas}})
        await cluster.until_ready(replicas)
        await cluster.clock.sleep(1)
    nodes = [pod["spec"]["nodeName"] for pod in await cluster.pods()]
    assert len(set(nodes)) == len(nodes)
    await fill(cluster, nodes[1], "2500m")
    await cluster.clock.sleep(1)
    return await uids(cluster)


@KINDS
@virtual_time
async def test_in_place_alone_waits_for_room_and_the_way_back_is_open(resource: Resource) -> None:
    async with workload_cluster(nodes=3, cpu_milli=4000) as cluster:
        before = await spread(cluster, resource, annotations=IN_PLACE)
        cluster.begin()
        await cluster.resize(resource, "2")
        await cluster.clock.sleep(60)
        assert sorted(await cluster.sizes()) == ["1", "2", "2"]
        status = await cluster.status(resource)
        assert (status["updated"], len(status["unfinished"])) == (2, 1)
        assert status["unfinished"][0]["reason"] == "Deferred"
        assert "a size feasible on all the nodes" in status["message"]
        assert "livesize.dev/held" in (await cluster.get(resource))["metadata"]["annotations"]
        await cluster.resize(resource, "1")
        await cluster.until_released(resource)
        assert sorted(await cluster.sizes()) == ["1", "1", "1"]
        assert await uids(cluster) == before


@KINDS
@virtual_time
async def test_what_may_be_recreated_is_recreated_alone_where_there_is_room(
    resource: Resource,
) -> None:
    async with workload_cluster(nodes=3, cpu_milli=4000) as cluster:
        annotations = {"livesize.dev/resize-deadline": "5s"}
        before = await spread(cluster, resource, annotations=annotations)
        cluster.begin()
        await cluster.resize(resource, "2")
        await cluster.clock.sleep(4)
        assert await uids(cluster) == before
        await cluster.until_released(resource)
        await cluster.until_ready(3)
        assert sorted(await cluster.sizes()) == ["2", "2", "2"]
        after = await uids(cluster)
        assert len(set(before.values()) & set(after.values())) == 2
        if resource is STATEFUL_SETS:
            assert before["db-1"] not in after.values()
            assert lookup(await cluster.get(resource), *PARTITION) == 0


@virtual_time
async def test_what_is_recreated_waits_for_the_budget() -> None:
    async with workload_cluster(nodes=3, cpu_milli=4000) as cluster:
        spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "db"}}}
        budget = {"metadata": {"name": "b"}, "spec": spec}
        await cluster.user.create(DISRUPTION_BUDGETS, budget, NAMESPACE)
        before = await spread(cluster, STATEFUL_SETS, annotations=SOON)
        cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.clock.sleep(20)
        assert await uids(cluster) == before
        status = await cluster.status(STATEFUL_SETS)
        assert status["unfinished"][0]["reason"] == "DisruptionBudget"
        less = {"spec": {"minAvailable": 2}}
        await cluster.write(DISRUPTION_BUDGETS, less, "b")
        await cluster.until_released(STATEFUL_SETS)
        assert before["db-1"] not in (await uids(cluster)).values()


@virtual_time
async def test_containers_restart_where_their_policy_says_so_one_after_the_other() -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, STATEFUL_SETS, container={"resizePolicy": RESTART})
        cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.until_released(STATEFUL_SETS)
        pods = await cluster.pods()
        assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1, 1]
        assert await uids(cluster) == before


def policies(pods: list[Object]) -> list[Any]:
    return [pod["spec"]["containers"][0].get("resizePolicy") for pod in pods]


@KINDS
@virtual_time
async def test_a_change_of_policies_alone_can_be_read_back(
    resource: Resource,
) -> None:
    """IBM: 'submit a change in policy, confirm its acceptance (by re-reading the changed pod
    spec)'."""
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        cluster.begin()
        app = {"name": "app", "resizePolicy": RESTART}
        await cluster.write(resource, {"spec": {"template": {"spec": {"containers": [app]}}}})
        await cluster.until_released(resource)
        pods = await cluster.pods()
        assert policies(pods) == [RESTART] * 3
        assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0, 0, 0]
        assert await uids(cluster) == before


@virtual_time
async def test_where_policies_of_pods_are_fixed_their_change_is_a_rollout() -> None:
    def fixed(_name: str, patch: Any, subresource: str) -> None:
        if not subresource and "spec" in patch:
            raise StatusError(422, "Invalid", "pod updates may not change fields other than ...")

    async with workload_cluster() as cluster:
        before = await running(cluster, STATEFUL_SETS)
        client = cluster.begin(refuse=fixed)
        app = {"name": "app", "resizePolicy": RESTART}
        await cluster.write(STATEFUL_SETS, {"spec": {"template": {"spec": {"containers": [app]}}}})
        await cluster.until_released(STATEFUL_SETS)
        assert policies(await cluster.pods()) == [RESTART] * 3
        assert not set(before.values()) & set((await uids(cluster)).values())
        assert not [one for one in client.written if one.startswith("resize")]


@virtual_time
async def test_more_than_its_node_has_is_infeasible_also_where_the_server_says_so() -> None:
    def capacity(_name: str, _patch: Any, subresource: str) -> None:
        if subresource == "resize":
            raise StatusError(403, "Forbidden", "pods is forbidden: node capacity exceeded")

    async with workload_cluster() as cluster:
        before = await running(cluster, STATEFUL_SETS, annotations=IN_PLACE)
        cluster.begin(refuse=capacity)
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.clock.sleep(5)
        reasons = {one["reason"] for one in (await cluster.status(STATEFUL_SETS))["unfinished"]}
        assert reasons == {"Infeasible"}
        assert await uids(cluster) == before


@virtual_time
async def test_a_quota_keeps_pods_waiting_and_recreates_none() -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, STATEFUL_SETS, annotations=SOON)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "4"}}}
        await cluster.user.create(RESOURCE_QUOTAS, quota, NAMESPACE)
        await cluster.clock.sleep(1)
        cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.clock.sleep(20)
        assert await cluster.sizes() == ["1", "1", "2"]
        status = await cluster.status(STATEFUL_SETS)
        assert {one["reason"] for one in status["unfinished"]} == {"Forbidden"}
        assert "exceeded quota" in status["unfinished"][0]["message"]
        await cluster.write(RESOURCE_QUOTAS, {"spec": {"hard": {"requests.cpu": "6"}}}, "q")
        await cluster.until_released(STATEFUL_SETS)
        assert await cluster.sizes() == ["2", "2", "2"]
        assert await uids(cluster) == before


@virtual_time
async def test_a_pod_that_dies_under_the_hold_comes_back_and_is_resized() -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, STATEFUL_SETS)
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.user.delete(PODS, "db-1", NAMESPACE)
        await cluster.clock.sleep(1)
        await cluster.until_ready(3)
        assert await cluster.sizes() == ["1", "1", "1"]  # with the old template
        between = await uids(cluster)
        cluster.begin()
        await cluster.until_released(STATEFUL_SETS)
        assert await cluster.sizes() == ["2", "2", "2"]
        after = await uids(cluster)
        assert after == between
        assert after["db-1"] != before["db-1"]


@virtual_time
async def test_a_hold_that_another_took_off_is_put_on_again() -> None:
    """On another cluster nothing keeps a partition from being written: the one that was meant is
    put back at the end."""
    async with workload_cluster(nodes=3, cpu_milli=4000) as cluster:
        await spread(cluster, STATEFUL_SETS, annotations=IN_PLACE)
        cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.clock.sleep(5)
        foreign = cluster.network.connect("foreign", CONTROLLERS)
        patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}
        before = await uids(cluster)
        await foreign.patch(STATEFUL_SETS, "db", patch, namespace=NAMESPACE)
        await cluster.until_released(STATEFUL_SETS)  # db-2 is all it is about now
        assert lookup(await cluster.get(STATEFUL_SETS), *PARTITION) == 2
        assert await uids(cluster) == before


@KINDS
@virtual_time
async def test_a_rollout_afterwards_is_one(resource: Resource) -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        cluster.begin()
        await cluster.resize(resource, "2")
        template = {"metadata": {"annotations": {"restartedAt": "now"}}}
        await cluster.write(resource, {"spec": {"template": template}})  # ends the hold
        await cluster.clock.sleep(20)
        await cluster.until_ready(3)
        assert not set(before.values()) & set((await uids(cluster)).values())
        assert await cluster.sizes() == ["2", "2", "2"]
        between = await uids(cluster)
        await cluster.resize(resource, "1")
        await cluster.until_released(resource)
        assert (await cluster.sizes(), await uids(cluster)) == (["1", "1", "1"], between)


@KINDS
@virtual_time
async def test_whoever_asks_no_more_gets_a_rollout(resource: Resource) -> None:
    async with workload_cluster() as cluster:
        before = await running(cluster, resource)
        await cluster.resize(resource, "2")
        await cluster.clock.sleep(5)
        assert await uids(cluster) == before  # held, with no controller that resizes
        await cluster.write(resource, {"metadata": {"annotations": {"resizeAction": None}}})
        cluster.begin()
        await cluster.until_released(resource)
        await cluster.clock.sleep(20)
        await cluster.until_ready(3)
        assert not set(before.values()) & set((await uids(cluster)).values())
        assert await cluster.sizes() == ["2", "2", "2"]


@virtual_time
async def test_under_on_delete_nothing_is_held_and_nothing_deleted() -> None:
    async with workload_cluster(nodes=3, cpu_milli=4000) as cluster:
        strategy = {"type": "OnDelete"}
        before = await spread(cluster, STATEFUL_SETS, updateStrategy=strategy)
        cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.clock.sleep(60)
        assert await uids(cluster) == before
        assert (await cluster.get(STATEFUL_SETS))["spec"]["updateStrategy"] == strategy
        status = await cluster.status(STATEFUL_SETS)
        (waits,) = status["unfinished"]
        assert (waits["pod"], waits["reason"], status["updated"]) == ("db-1", "AwaitsDeletion", 2)
        await cluster.user.delete(PODS, "db-1", NAMESPACE)

        async def done() -> bool:
            return bool((await cluster.status(STATEFUL_SETS))["updated"] == 3)

        await cluster.until(done)


@virtual_time
async def test_virtual_machines_of_a_stateful_set_grow_in_place() -> None:
    """No other Kubernetes has them, so that its client is our own."""

    def machine(cpu: str) -> Object:
        sizes = {"cpu": cpu, "memory": "1Gi"}
        return {"resources": {"requests": sizes, "limits": sizes}}

    async with workload_cluster() as cluster:
        made = workload(STATEFUL_SETS, replicas=2)
        spec = made["spec"]["template"]["spec"]
        del spec["containers"]
        spec["virtualMachine"] = {"kernel": {"image": "guest"}, **machine("1")}
        cluster.nodes[0].machine.vm_image_names = ("guest",)
        await cluster.user.create(STATEFUL_SETS, made, NAMESPACE)
        await cluster.until_ready(2)
        before = await uids(cluster)
        cluster.work(cluster.network.connect("in-place", CONTROLLERS))
        larger = {"spec": {"template": {"spec": {"virtualMachine": machine("2")}}}}
        held = await cluster.write(STATEFUL_SETS, larger)
        assert "livesize.dev/held" in held["metadata"]["annotations"]
        await cluster.until_released(STATEFUL_SETS)
        assert await cluster.sizes() == ["2", "2"]
        assert await uids(cluster) == before


@virtual_time
async def test_many_pods_are_under_way_where_the_workload_says_so() -> None:
    async with workload_cluster() as cluster:
        annotations = {"livesize.dev/resize-parallelism": "8"}
        policy = {"podManagementPolicy": "Parallel"}
        before = await running(
            cluster, STATEFUL_SETS, replicas=20, annotations=annotations, **policy
        )
        client = cluster.begin()
        await cluster.resize(STATEFUL_SETS, "2")
        await cluster.until_released(STATEFUL_SETS)
        assert set(await cluster.sizes()) == {"2"}
        assert await uids(cluster) == before
        assert sum(one.startswith("resize") for one in client.written) == 20
