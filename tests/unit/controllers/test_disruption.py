"""Disruption budgets: counted, and heeded by evictions at the real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.disruption.plan import plan_status, protected_pods
from livesize.controllers.disruption.reconcile import disruption_controller
from livesize.controllers.kit.owned_pods import owner_reference
from livesize.controllers.resize_deadline import reconcile as deadlines
from unit.api.kinds.workload_objects import workload
from unit.apiserver.conftest import ADMIN, IDENTITIES, Rig
from unit.controllers.at_work import at_work

NOW = "2026-01-01T00:00:00Z"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"


def budget(least: Any, **status: Any) -> Any:
    spec = {"selector": {}, **({} if least is None else {"minAvailable": least})}
    return {"metadata": {"name": "b", "generation": 2}, "spec": spec, "status": status}


def pod(name: str, state: str = "ready") -> Any:
    metadata = {"name": name, **({"deletionTimestamp": NOW} if state == "leaving" else {})}
    ready = "False" if state == "starting" else "True"
    phase = "Succeeded" if state == "ended" else "Running"
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


@pytest.mark.parametrize(("least", "states", "counted"), [
    (1, ["ready", "ready", "ready"], (2, 3, 1, 3)),
    (2, ["ready", "ready"], (0, 2, 2, 2)),
    (3, ["ready"], (0, 1, 3, 1)),
    (0, [], (0, 0, 0, 0)),
    (1, ["ready", "ready", "leaving", "starting", "ended"], (1, 2, 1, 4)),
])  # fmt: skip
def test_what_is_counted(least: int, states: list[str], counted: tuple[int, ...]) -> None:
    pods = [pod(str(index), state) for index, state in enumerate(states)]
    own = protected_pods(budget(least), pods)
    status = plan_status(budget(least), own, None, set(), NOW)
    assert status is not None
    fields = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert tuple(status[field] for field in fields) == counted
    assert status["observedGeneration"] == 2
    assert plan_status({**budget(least), "status": status}, own, None, set(), "later") is None


@pytest.mark.parametrize("least", [None, "50%"])
def test_a_share_of_what_nobody_wants_is_nothing(least: Any) -> None:
    status = plan_status(budget(least), [pod("a"), pod("b")], None, set(), NOW)
    assert status is not None
    assert status["disruptionsAllowed"] == 0
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert "set spec.minAvailable to a number" in condition["message"]


@pytest.mark.parametrize(("spec", "scale", "ready", "counted"), [
    ({"maxUnavailable": 1}, 3, 3, (1, 3, 2, 3)),
    ({"maxUnavailable": 1}, 5, 3, (0, 3, 4, 5)),
    ({"maxUnavailable": "30%"}, 5, 5, (2, 5, 3, 5)),  # rounded up: two may go
    ({"maxUnavailable": 9}, 3, 3, (3, 3, 0, 3)),
    ({"minAvailable": "50%"}, 5, 5, (2, 5, 3, 5)),  # rounded up: three stay
    ({"minAvailable": "100%"}, 3, 3, (0, 3, 3, 3)),
    ({"maxUnavailable": 1}, 0, 0, (0, 0, 0, 0)),
])  # fmt: skip
def test_a_share_is_one_of_what_the_controllers_want(
    spec: Any, scale: int, ready: int, counted: tuple[int, ...]
) -> None:
    shared = {**budget(None), "spec": {"selector": {}, **spec}}
    status = plan_status(shared, [pod(str(index)) for index in range(ready)], scale, set(), NOW)
    assert status is not None
    fields = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert tuple(status[field] for field in fields) == counted


def test_who_was_evicted_counts_no_more_until_it_is_clear_that_it_stayed() -> None:
    pods = [pod("a"), pod("b"), pod("c", "leaving")]
    evicted = budget(1, disruptedPods=dict.fromkeys("acd", NOW))
    status = plan_status(evicted, pods, None, set(), NOW)
    assert status is not None
    assert (status["disruptedPods"], status["disruptionsAllowed"]) == ({"a": NOW}, 0)
    status = plan_status(evicted, pods, None, {"a"}, NOW)
    assert status is not None
    assert ("disruptedPods" in status, status["disruptionsAllowed"]) == (False, 1)


@settings(max_examples=30)
@given(
    states=st.lists(st.sampled_from(["ready", "leaving", "starting", "ended"]), max_size=8),
    least=st.integers(0, 6),
    evicted=st.sets(st.sampled_from("01234567")),
)
def test_no_more_may_leave_than_are_left_over(
    states: list[str], least: int, evicted: set[str]
) -> None:
    pods = [pod(str(index), state) for index, state in enumerate(states)]
    known = budget(least, disruptedPods=dict.fromkeys(sorted(evicted), NOW))
    status = plan_status(known, protected_pods(known, pods), None, set(), NOW)
    assert status is not None
    staying = sum(
        state == "ready" and str(index) not in evicted for index, state in enumerate(states)
    )
    assert status["currentHealthy"] == staying
    assert staying - status["disruptionsAllowed"] >= min(least, staying)


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, disruption_controller))
    yield rig
    task.cancel()
    await asyncio.wait([task])


async def running(rig: Rig, name: str) -> None:
    await rig.add_pod(name, node="n1")
    conditions = [{"type": "Ready", "status": "True"}]
    containers = [{"name": "app", "ready": True}]
    said = {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
    status = {"status": said}
    answer = await rig.patch(f"{PODS}/{name}/status", status, token="n1")
    assert answer.status == 200, answer.json


async def allowed(rig: Rig, count: int) -> Any:
    """The budget, as soon as that many may leave."""
    async with asyncio.timeout(5):
        while True:
            found = (await rig.get(f"{BUDGETS}/b")).json
            status = found.get("status", {})
            known = status.get("observedGeneration") == found["metadata"]["generation"]
            if known and status.get("disruptionsAllowed") == count:
                return found
            await asyncio.sleep(0.01)


async def evict(rig: Rig, name: str, **query: str) -> Any:
    return await rig.request("POST", f"{PODS}/{name}/eviction", {}, token="editor", **query)


async def test_evictions_take_what_there_is_and_no_more(rig: Rig) -> None:
    for name in "abc":
        await running(rig, name)
    spec = {"minAvailable": 2, "selector": {}}
    made = await rig.request("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    assert made.status == 201
    await allowed(rig, 1)
    assert (await evict(rig, "a", dryRun="All")).status == 201
    answers = await asyncio.gather(*(evict(rig, name) for name in "abc"))
    answers.sort(key=lambda answer: answer.status)
    assert [answer.status for answer in answers] == [201, 429, 429]
    refused = answers[1].json
    assert refused["reason"] == "TooManyRequests"
    (cause,) = refused["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "The disruption budget b needs 2 healthy pods and has" in cause["message"]
    leaving = [
        pod["metadata"]["name"]
        for pod in (await rig.get(PODS)).json["items"]
        if "deletionTimestamp" in pod["metadata"]
    ]
    assert len(leaving) == 1
    await rig.request("DELETE", f"{PODS}/{leaving[0]}", {"gracePeriodSeconds": 0})
    await allowed(rig, 0)
    await running(rig, "d")
    await allowed(rig, 1)
    assert (await evict(rig, "d")).status == 201


async def test_a_budget_that_is_changed_counts_when_it_was_counted(rig: Rig) -> None:
    for name in "ab":
        await running(rig, name)
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}}
    await rig.request("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    budget = await allowed(rig, 0)
    assert (budget["metadata"]["generation"], budget["status"]["expectedPods"]) == (1, 1)
    assert (await evict(rig, "a")).status == 429
    changed = await rig.patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 0}}, token="editor")
    assert changed.json["metadata"]["generation"] == 2
    await allowed(rig, 1)
    assert (await evict(rig, "b")).status == 201  # not protected
    assert (await evict(rig, "a")).status == 201


async def test_nobody_but_the_controller_says_what_may_leave(rig: Rig) -> None:
    status = {"disruptionsAllowed": 9, "observedGeneration": 1}
    body = {"metadata": {"name": "b"}, "spec": {"selector": {}}, "status": status}
    made = await rig.request("POST", BUDGETS, body, token="editor")
    assert "disruptionsAllowed" not in (made.json.get("status") or {})
    patched = await rig.patch(f"{BUDGETS}/b/status", {"status": status}, token="editor")
    assert patched.status == 403


async def test_a_pod_with_two_budgets_stays(rig: Rig) -> None:
    await running(rig, "a")
    for name in ("b", "c"):
        spec = {"minAvailable": 0, "selector": {}}
        await rig.request("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    answer = await evict(rig, "a")
    assert answer.status == 409
    assert "more than one PodDisruptionBudget (b, c)" in answer.json["message"]


async def test_the_deadline_of_a_resize_heeds_the_budget(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evict is an eviction: the pod goes when its budget lets it go."""
    monkeypatch.setattr(deadlines, "BUDGET_SECONDS", 0.05)
    await running(rig, "a")
    spec = {"minAvailable": 1, "selector": {}}
    await rig.request("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    await allowed(rig, 0)
    wish = {"livesize.dev/resize-deadline": "1s", "livesize.dev/on-deadline": "Evict"}
    await rig.patch(f"{PODS}/a", {"metadata": {"annotations": wish}})
    size = {"requests": {"cpu": "600m"}}
    bigger = {"spec": {"containers": [{"name": "app", "resources": size}]}}
    assert (await rig.patch(f"{PODS}/a/resize", bigger, "strategic")).status == 200

    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, deadlines.resize_deadline_controller))
    await asyncio.sleep(0.2)
    assert "deletionTimestamp" not in (await rig.get(f"{PODS}/a")).json["metadata"]
    await running(rig, "c")
    async with asyncio.timeout(5):
        while "deletionTimestamp" not in (await rig.get(f"{PODS}/a")).json["metadata"]:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(("resource", "wanted"), [
    (DEPLOYMENTS, 4),
    (REPLICA_SETS, 4),
])  # fmt: skip
async def test_a_share_follows_the_scale_of_the_workload(
    rig: Rig, resource: Resource, wanted: int
) -> None:
    """Its pods' own controller, or the Deployment above it, says how many there should be."""
    client = DirectClient(rig.service, ADMIN)
    made = await client.create(resource, workload(resource, "web", replicas=wanted), "default")
    owner = made
    if resource == DEPLOYMENTS:
        below = workload(REPLICA_SETS, "web-1", replicas=3)
        below["metadata"]["ownerReferences"] = [owner_reference(resource, made)]
        owner = await client.create(REPLICA_SETS, below, "default")
    for name in "abc":
        await running(rig, name)
        reference = {"metadata": {"ownerReferences": [owner_reference(REPLICA_SETS, owner)]}}
        await rig.patch(f"{PODS}/{name}", reference)
    spec = {"maxUnavailable": 2, "selector": {}}
    await rig.request("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    budget = await allowed(rig, 1)
    assert budget["status"]["expectedPods"] == wanted
    await client.patch(resource, "web", {"spec": {"replicas": 3}}, namespace="default")
    await allowed(rig, 2)
    await running(rig, "alone")  # without a controller: it is healthy, but not expected
    await allowed(rig, 3)


async def test_a_controller_that_nobody_knows_keeps_its_pods(rig: Rig) -> None:
    await running(rig, "a")
    unknown = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f", "uid": "u"}
    patch = {"metadata": {"ownerReferences": [{**unknown, "controller": True}]}}
    assert (await rig.patch(f"{PODS}/a", patch)).status == 200
    spec = {"maxUnavailable": 1, "selector": {}}
    await rig.request("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    budget = await allowed(rig, 0)
    assert budget["status"]["conditions"][0]["reason"] == "SyncFailed"
