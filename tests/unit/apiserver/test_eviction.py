"""POST of pods/X/eviction: a deletion with grace, asked for in another way."""

from __future__ import annotations

from typing import Any

import pytest

PODS = "/api/v1/namespaces/default/pods"
EVICTION = f"{PODS}/web/eviction"


def eviction(**options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "default"},
        "deleteOptions": options,
    }


async def seen(rig: Any) -> Any:
    return (await rig.get(f"{PODS}/web")).json


async def test_a_running_pod_is_given_its_grace_and_says_why_it_goes(rig: Any) -> None:
    await rig.add_pod("web", node="n1", terminationGracePeriodSeconds=7)
    answer = await rig.request("POST", EVICTION, eviction(), token="editor")
    assert (answer.status, answer.json["kind"]) == (201, "Status")
    assert (answer.json["status"], answer.json["code"]) == ("Success", 201)
    pod = await seen(rig)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    (condition,) = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    again = await rig.request("POST", EVICTION, eviction(), token="editor")
    assert again.status == 201
    assert (await seen(rig))["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_a_pod_that_no_node_runs_is_gone_at_once(rig: Any) -> None:
    await rig.add_pod("web")
    assert (await rig.request("POST", EVICTION, eviction())).status == 201
    assert (await rig.get(f"{PODS}/web")).status == 404
    assert (await rig.request("POST", EVICTION, eviction())).status == 404


async def test_an_empty_body_asks_for_all_the_usual(rig: Any) -> None:
    await rig.add_pod("web", node="n1")
    assert (await rig.request("POST", EVICTION, {})).status == 201
    assert (await seen(rig))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_the_delete_options_count(rig: Any) -> None:
    pod = await rig.add_pod("web", node="n1")
    other = await rig.request("POST", EVICTION, eviction(preconditions={"uid": "another"}))
    assert (other.status, other.json["reason"]) == (409, "Conflict")
    uid = pod["metadata"]["uid"]
    asked = eviction(preconditions={"uid": uid}, gracePeriodSeconds=3)
    assert (await rig.request("POST", EVICTION, asked)).status == 201
    assert (await seen(rig))["metadata"]["deletionGracePeriodSeconds"] == 3


@pytest.mark.parametrize(("body", "query"), [
    (eviction(dryRun=["All"]), {}),
    (eviction(), {"dryRun": "All"}),
])  # fmt: skip
async def test_a_dry_run_changes_nothing(rig: Any, body: Any, query: dict[str, str]) -> None:
    pod = await rig.add_pod("web", node="n1")
    assert (await rig.request("POST", EVICTION, body, **query)).status == 201
    assert (await seen(rig))["metadata"] == pod["metadata"]


@pytest.mark.parametrize(("body", "why"), [
    ({**eviction(), "metadata": {"name": "db"}}, "name in URL does not match"),
    ({**eviction(), "metadata": {"namespace": "other"}}, "namespace in URL does not match"),
    ({**eviction(), "apiVersion": "v1"}, "does not match the expected API version (policy/v1)"),
    ({**eviction(), "kind": "Binding"}, 'is not the expected "Eviction"'),
    (eviction(gracePeriodSeconds=-1), "gracePeriodSeconds must be a whole number"),
    ({**eviction(), "deleteOptions": []}, "deleteOptions"),
    ([], "must be a Eviction"),
])  # fmt: skip
async def test_what_is_wrong_is_said_and_nothing_done(rig: Any, body: Any, why: str) -> None:
    pod = await rig.add_pod("web", node="n1")
    answer = await rig.request("POST", EVICTION, body)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert why in answer.json["message"]
    assert (await seen(rig))["metadata"] == pod["metadata"]


async def test_it_is_only_posted(rig: Any) -> None:
    await rig.add_pod("web")
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert (await rig.request(method, EVICTION, {})).status == 405


async def test_discovery_names_the_group_that_drain_looks_for(rig: Any) -> None:
    listed = (await rig.get("/api/v1")).json["resources"]
    (one,) = [entry for entry in listed if entry["name"] == "pods/eviction"]
    assert (one["group"], one["version"], one["kind"]) == ("policy", "v1", "Eviction")
    assert one["verbs"] == ["create"]
    (binding,) = [entry for entry in listed if entry["name"] == "pods/binding"]
    assert "group" not in binding
