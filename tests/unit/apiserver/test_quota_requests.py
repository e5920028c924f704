"""ResourceQuota at the API server: charged in the commit of the change, both ways, never over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, lookup
from livesize.api.patch import PatchType
from livesize.api.quota import recount
from livesize.apiserver.keys import key_of
from livesize.apiserver.request_types import Target
from livesize.store.interface import ChangeKind
from unit.apiserver.conftest import ADMIN, IDENTITIES, pod

BASE = "/api/v1/namespaces/default"
QUOTAS = f"{BASE}/resourcequotas"


def quota(hard: Object, name: str = "q", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


def sized(cpu: str, name: str = "app") -> Object:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return {"spec": {"containers": [{"name": name, "resources": resources}]}}


async def used(rig: Any, name: str = "q") -> Object:
    answer = await rig.get(f"{QUOTAS}/{name}")
    got: Object = answer.json["status"]["used"]
    return got


def even(cpu: str, memory: str = "64Mi") -> Any:
    size = {"cpu": cpu, "memory": memory}
    return {"requests": size, "limits": size}


async def resize(rig: Any, name: str, cpu: str, **more: Any) -> Any:
    return await rig.patch(f"{BASE}/pods/{name}/resize", sized(cpu), kind="strategic", **more)


async def test_a_quota_says_at_once_what_is_used(rig: Any) -> None:
    await rig.add_pod("web")
    made = await rig.request(
        "POST", QUOTAS, quota({"requests.cpu": "2", "pods": 5, "cpu": "2000m"})
    )
    assert made.status == 201
    assert made.json["status"] == {
        "hard": {"requests.cpu": "2", "pods": "5", "cpu": "2"},
        "used": {"requests.cpu": "500m", "pods": "1", "cpu": "500m"},
    }


async def test_a_resize_over_quota_is_refused_in_kubernetes_words(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"requests.cpu": "300m"}))
    await rig.add_pod("u", **even("200m"), node="n1")
    answer = await resize(rig, "u", "350m")
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == (
        'pods "u" is forbidden: exceeded quota: q, requested: requests.cpu=150m,'
        " used: requests.cpu=200m, limited: requests.cpu=300m"
    )
    assert await used(rig) == {"requests.cpu": "200m"}
    assert (await resize(rig, "u", "300m")).status == 200
    assert await used(rig) == {"requests.cpu": "300m"}


async def test_what_does_not_say_its_size_cannot_be_counted(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"limits.cpu": "1", "requests.memory": "1Gi"}))
    bare = {**pod("bare"), "spec": {"containers": [{"name": "app", "image": "busybox:1"}]}}
    answer = await rig.request("POST", f"{BASE}/pods", bare)
    assert answer.status == 403
    assert answer.json["message"].endswith(
        "failed quota: q: must specify limits.cpu for: app; requests.memory for: app"
    )


async def test_quota_and_pod_are_one_commit(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"pods": "9"}))
    before = rig.cache.revision
    await rig.request("POST", f"{BASE}/pods", pod("web"))
    changes = []
    async for batch in rig.store.watch("/registry/", after_revision=before):
        changes += batch
        break
    assert {change.entry.key for change in changes} == {
        key_of(PODS, "default", "web"),
        key_of(RESOURCE_QUOTAS, "default", "q"),
    }
    assert {change.kind for change in changes} == {ChangeKind.PUT}
    assert {change.revision for change in changes} == {before + 1}


async def test_used_goes_down_when_pods_end_or_go(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"pods": "9", "count/pods": "9", "limits.cpu": "9"}))
    await rig.add_pod("one")
    await rig.add_pod("two")
    assert await used(rig) == {"pods": "2", "count/pods": "2", "limits.cpu": "2"}
    ended = {"status": {"phase": "Succeeded"}}
    await rig.patch(f"{BASE}/pods/one/status", ended, token="scheduler")
    assert await used(rig) == {"pods": "1", "count/pods": "2", "limits.cpu": "1"}
    await rig.request("DELETE", f"{BASE}/pods/one")
    await rig.request("DELETE", f"{BASE}/pods/two")
    assert await used(rig) == {"pods": "0", "count/pods": "0", "limits.cpu": "0"}


async def test_a_shrink_gives_back_when_it_is_done_and_a_refused_growth_at_once(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"requests.cpu": "1"}))
    await rig.add_pod("u", **even("600m"), node="n1")
    target = Target(PODS, "default", "u", "resizing")

    async def answer(phase: str, cpu: str, status: str) -> None:
        allocated = [{"name": "app", "requests": {"cpu": cpu}, "limits": {"cpu": cpu}}]
        body = {"request": {"requestStatus": status}, "phase": phase, "allocated": allocated}
        if status == "Rejected":
            body.pop("allocated")
        await rig.service.post(IDENTITIES["n1"], target, body)

    await resize(rig, "u", "200m")
    assert await used(rig) == {"requests.cpu": "600m"}  # still allocated
    await answer("InProgress", "200m", "Accepted")
    await answer("Done", "200m", "Done")
    assert await used(rig) == {"requests.cpu": "200m"}
    await resize(rig, "u", "900m")
    assert await used(rig) == {"requests.cpu": "900m"}
    await answer("Deferred", "", "Rejected")
    assert await used(rig) == {"requests.cpu": "900m"}  # may be granted later, so it is kept
    await answer("Infeasible", "", "Rejected")
    assert await used(rig) == {"requests.cpu": "200m"}


async def test_two_hundred_resizes_at_once_never_exceed_the_quota(rig: Any) -> None:
    """Half are granted at once, half are deferred first and granted later (decisions 7)."""
    await rig.request("POST", QUOTAS, quota({"requests.cpu": "11"}))
    await rig.add_node("n1")
    names = [f"p{number}" for number in range(200)]
    for name in names:
        await rig.add_pod(name, **even("50m"), node="n1")
    answers = await asyncio.gather(*(resize(rig, name, "70m") for name in names))
    granted = [name for name, answer in zip(names, answers, strict=True) if answer.status == 200]
    assert {answer.status for answer in answers} == {200, 403}
    assert len(granted) == 50  # 200 times 50m, and 50 times 20m more, is 11
    assert await used(rig) == {"requests.cpu": "11"}
    for index, name in enumerate(granted):
        target = Target(PODS, "default", name, "resizing")
        if index % 2:
            deferred = {"request": {"requestStatus": "Rejected"}, "phase": "Deferred"}
            await rig.service.post(IDENTITIES["n1"], target, deferred)
        size = {"name": "app", "requests": {"cpu": "70m"}, "limits": {"cpu": "70m"}}
        given = {"request": {"requestStatus": "Accepted"}, "allocated": [size]}
        await rig.service.post(IDENTITIES["n1"], target, given)
        assert await used(rig) == {"requests.cpu": "11"}
    stored = rig.cache.get(RESOURCE_QUOTAS, key_of(RESOURCE_QUOTAS, "default", "q")).stored
    for form in ("stored", "served"):  # the API server and the controllers count alike
        pods = [(PODS, getattr(record, form)) for record in rig.cache.records(PODS)]
        assert recount(stored, pods)["status"] == stored["status"]


async def test_two_hundred_creates_at_once_never_exceed_the_quota(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"pods": "30"}))
    creates = (rig.request("POST", f"{BASE}/pods", pod(f"p{number}")) for number in range(200))
    answers = await asyncio.gather(*creates)
    assert sum(answer.status == 201 for answer in answers) == 30
    assert len(rig.cache.records(PODS)) == 30
    assert await used(rig) == {"pods": "30"}


async def test_a_dry_run_is_judged_and_costs_nothing(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"pods": "1"}))
    pods = f"{BASE}/pods"
    assert (await rig.request("POST", pods, pod("a"), dryRun="All")).status == 201
    assert await used(rig) == {"pods": "0"}
    await rig.request("POST", pods, pod("a"))
    assert (await rig.request("POST", pods, pod("b"), dryRun="All")).status == 403
    assert (await rig.request("POST", pods, pod("a"), dryRun="All")).status == 409


@pytest.mark.parametrize(
    ("scopes", "spec", "counts"),
    [
        (["NotBestEffort"], {}, True),
        (["BestEffort"], {}, False),
        (["Terminating"], {}, False),
        (["Terminating"], {"activeDeadlineSeconds": 60}, True),
        (["NotTerminating", "NotBestEffort"], {}, True),
    ],
)
async def test_scopes(rig: Any, scopes: list[str], spec: Object, counts: bool) -> None:
    made = await rig.request("POST", QUOTAS, quota({"pods": "0"}, scopes=scopes))
    assert made.status == 201
    answer = await rig.request("POST", f"{BASE}/pods", pod("web", **spec))
    assert answer.status == (403 if counts else 201)


async def test_a_quota_of_one_priority_class(rig: Any) -> None:
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    selector = {"matchExpressions": [rule]}
    await rig.request("POST", QUOTAS, quota({"pods": "0"}, scopeSelector=selector))
    assert (await rig.request("POST", f"{BASE}/pods", pod("plain"))).status == 201
    dear = pod("dear", priorityClassName="system-node-critical")
    assert (await rig.request("POST", f"{BASE}/pods", dear)).status == 403


async def test_other_objects_are_counted(rig: Any) -> None:
    hard = {"configmaps": "2", "count/secrets": "1", "resourcequotas": "1"}
    made = await rig.request("POST", QUOTAS, quota(hard))
    assert made.json["status"]["used"] == {
        "configmaps": "1",  # the cluster's CA
        "count/secrets": "0",
        "resourcequotas": "1",
    }
    assert (await rig.request("POST", QUOTAS, quota({"pods": "1"}, "other"))).status == 403
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "x"}}
    assert (await rig.request("POST", f"{BASE}/secrets", secret)).status == 201
    again = {**secret, "metadata": {"name": "t"}}
    answer = await rig.request("POST", f"{BASE}/secrets", again)
    assert answer.json["message"] == (
        'secrets "t" is forbidden: exceeded quota: q, requested: count/secrets=1,'
        " used: count/secrets=1, limited: count/secrets=1"
    )
    await rig.request("DELETE", f"{BASE}/secrets/s")
    assert (await used(rig))["count/secrets"] == "0"


async def test_a_new_limit_of_a_quota_is_counted_at_once(rig: Any) -> None:
    await rig.add_pod("web")
    await rig.request("POST", QUOTAS, quota({"pods": "3"}))
    answer = await rig.patch(f"{QUOTAS}/q", {"spec": {"hard": {"limits.memory": "1Gi"}}})
    assert answer.json["status"] == {
        "hard": {"pods": "3", "limits.memory": "1Gi"},
        "used": {"pods": "1", "limits.memory": "64Mi"},
    }


async def test_what_a_node_reports_is_charged_and_never_refused(rig: Any) -> None:
    await rig.request("POST", QUOTAS, quota({"limits.memory": "64Mi"}))
    await rig.add_pod("u", **even("100m"), node="n1")
    actual = {"limits": {"cpu": "100m", "memory": "96Mi"}, "requests": {"cpu": "100m"}}
    status = {"status": {"containerStatuses": [{"name": "app", "resources": actual}]}}
    answer = await rig.patch(f"{BASE}/pods/u/status", status, token="n1")
    assert answer.status == 200
    assert await used(rig) == {"limits.memory": "96Mi"}


async def test_no_quota_no_second_write(rig: Any) -> None:
    before = rig.cache.revision
    await rig.service.create(ADMIN, PODS, "default", pod("web"))
    target = Target(PODS, "default", "web")
    labels = {"metadata": {"labels": {"a": "b"}}}
    await rig.service.patch(ADMIN, target, labels, PatchType.MERGE)
    assert rig.cache.revision == before + 2
    record = rig.cache.get(PODS, key_of(PODS, "default", "web"))
    assert lookup(record.stored, "metadata", "labels", "a") == "b"
