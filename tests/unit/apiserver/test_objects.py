"""Creating, changing and deleting objects: what the server writes itself, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from livesize.api.kinds.node import NODES
from livesize.apiserver.http.responses import Response, with_warnings
from livesize.apiserver.service import ApiService
from livesize.machinery.steps import CrashPoints
from unit.apiserver.conftest import ADMIN

PODS = "/api/v1/namespaces/default/pods"
WEB = f"{PODS}/web"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "image": "busybox:1"}]},
}


def named(**metadata: Any) -> dict[str, Any]:
    return {**POD, "metadata": metadata}


async def test_create_fills_in_what_is_the_doors(rig: Any) -> None:
    sent = {
        **named(name="web", uid="mine", generation=7, managedFields=[{}], creationTimestamp=None),
        "status": {"phase": "Running"},
    }
    answer = await rig.request("POST", PODS, sent)
    assert answer.status == 201
    metadata = answer.json["metadata"]
    assert metadata["uid"].startswith("uid-")
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert metadata["resourceVersion"] == str(rig.cache.revision)
    assert [entry["manager"] for entry in metadata["managedFields"]] == ["unknown"]
    assert answer.json["status"]["phase"] == "Pending"
    assert answer.json["status"]["qosClass"] == "BestEffort"
    assert (await rig.get(WEB)).json == answer.json


async def test_a_generated_name(rig: Any) -> None:
    answer = await rig.request("POST", PODS, named(generateName="web-"))
    assert answer.json["metadata"]["name"].startswith("web-x")


REFUSED = [
    ("no name", {}, named(), 422, "Invalid"),
    ("bad name", {}, named(name="Web!"), 422, "Invalid"),
    ("another namespace", {}, named(name="web", namespace="other"), 400, "BadRequest"),
    ("a version", {}, named(name="web", resourceVersion="3"), 400, "BadRequest"),
    ("another kind", {}, {**POD, "kind": "Node"}, 400, "BadRequest"),
    ("another version", {}, {**POD, "apiVersion": "v2"}, 400, "BadRequest"),
    ("wrong type", {}, {**POD, "spec": {"containers": "none"}}, 400, "BadRequest"),
    ("not an object", {}, [POD], 400, "BadRequest"),
    ("dryRun Some", {"dryRun": "Some"}, POD, 422, "Invalid"),
    ("fieldValidation Odd", {"fieldValidation": "Odd"}, POD, 422, "Invalid"),
]


@pytest.mark.parametrize(
    ("query", "body", "code", "reason"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
async def test_create_refuses(rig: Any, query: Any, body: Any, code: int, reason: str) -> None:
    answer = await rig.request("POST", PODS, body, **query)
    assert (answer.status, answer.json["reason"]) == (code, reason)
    assert (await rig.get(PODS)).json["items"] == []


async def test_an_unknown_field_is_kept_unless_strict(rig: Any) -> None:
    odd = {**POD, "spec": {**POD["spec"], "foo": {"bar": 1}}}
    strict = await rig.request("POST", PODS, odd, fieldValidation="Strict")
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.foo"' in strict.json["message"]
    kept = await rig.request("POST", PODS, odd)
    assert kept.json["spec"]["foo"] == {"bar": 1}


@pytest.mark.parametrize(
    ("query", "warned"),
    [({}, True), ({"fieldValidation": "Warn"}, True), ({"fieldValidation": "Ignore"}, False)],
    ids=["nothing said", "Warn", "Ignore"],
)
async def test_an_unknown_field_is_warned_of(rig: Any, query: Any, warned: bool) -> None:
    """As Kubernetes does, which says so where nothing is said, too."""
    odd = {**POD, "spec": {**POD["spec"], "foo": {"bar": 1}}}
    made = await rig.request("POST", PODS, odd, **query)
    put = await rig.request("PUT", f"{PODS}/web", made.json, **query)
    patch = {"metadata": {"fu": 1}}
    patched = await rig.patch(f"{PODS}/web", patch, "merge", **query)
    said = [answer.headers.get("warning") for answer in (made, put, patched)]
    foo, fu = (f'299 - "unknown field \\"{path}\\""' for path in ("spec.foo", "metadata.fu"))
    assert said == ([foo, foo, fu] if warned else [None] * 3)
    assert [answer.status for answer in (made, put, patched)] == [201, 200, 200]


def test_a_warning_is_one_header_whatever_the_field_is_called() -> None:
    names = ['"\\', "a\r\nSet-Cookie: x", "\u00fc" * 500, *map(str, range(30))]
    warned = with_warnings(Response(200, b""), [*names, *names])
    texts = [value for key, value in warned.headers if key == b"warning"]
    assert texts[:2] == [b'299 - "\\"\\\\"', b'299 - "a??Set-Cookie: x"']
    assert (len(texts), max(map(len, texts))) == (16, 256 + len('299 - ""'))


async def test_types_and_unknown_fields_are_looked_at_all_the_way_down(rig: Any) -> None:
    (container,) = POD["spec"]["containers"]
    where = "spec.containers[0].livenessProbe"
    for probe, query, says in (
        ({"periodSeconds": "often"}, {}, f"{where}.periodSeconds: must be an integer"),
        ({"period": 1}, {"fieldValidation": "Strict"}, f'unknown field "{where}.period"'),
    ):
        odd = {**POD, "spec": {"containers": [{**container, "livenessProbe": probe}]}}
        answer = await rig.request("POST", PODS, odd, **query)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert says in answer.json["message"]


async def test_names_are_taken_once(rig: Any) -> None:
    assert (await rig.request("POST", PODS, POD, dryRun="All")).status == 201
    assert (await rig.request("POST", PODS, POD)).status == 201
    for query in ({}, {"dryRun": "All"}):
        again = await rig.request("POST", PODS, POD, **query)
        assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
        assert again.json["message"] == 'pods "web" already exists'


async def test_a_namespace_must_be_there(rig: Any) -> None:
    answer = await rig.request("POST", "/api/v1/namespaces/none/pods", POD)
    assert (answer.status, answer.json["message"]) == (404, 'namespaces "none" not found')


async def test_patches_of_many_at_once_all_arrive(rig: Any) -> None:
    await rig.request("POST", PODS, POD)
    answers = await asyncio.gather(
        *(rig.patch(WEB, {"metadata": {"labels": {f"l{i}": "x"}}}) for i in range(10))
    )
    assert {answer.status for answer in answers} == {200}
    assert len((await rig.get(WEB)).json["metadata"]["labels"]) == 10


async def test_a_version_in_a_patch_is_insisted_on(rig: Any) -> None:
    made = (await rig.request("POST", PODS, POD)).json
    version = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"a": "1"}}}
    assert (await rig.patch(WEB, patch)).status == 200
    assert (await rig.patch(WEB, patch)).status == 409


async def test_identity_does_not_change(rig: Any) -> None:
    made = (await rig.request("POST", PODS, POD)).json
    for field, value, code in (("uid", "other", 409), ("name", "other", 400)):
        changed = {**made, "metadata": {**made["metadata"], field: value}}
        assert (await rig.request("PUT", WEB, changed)).status == code


async def test_a_bound_pod_is_marked_and_goes_when_its_node_says_so(rig: Any) -> None:
    await rig.add_pod(node="n1")
    marked = await rig.request("DELETE", WEB, {"gracePeriodSeconds": 7})
    assert marked.status == 200
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 7
    assert marked.json["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:07Z"
    longer = await rig.request("DELETE", WEB, {"gracePeriodSeconds": 60})
    assert longer.json == marked.json
    shorter = await rig.request("DELETE", WEB, {"gracePeriodSeconds": 1})
    assert shorter.json["metadata"]["deletionGracePeriodSeconds"] == 1
    assert (await rig.request("DELETE", WEB, {"gracePeriodSeconds": 0}, token="n2")).status == 403
    gone = await rig.request("DELETE", WEB, {"gracePeriodSeconds": 0}, token="n1")
    assert gone.status == 200
    assert (await rig.get(WEB)).status == 404


@pytest.mark.parametrize("preconditions", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_preconditions_of_a_delete(rig: Any, preconditions: Any) -> None:
    await rig.add_pod()
    answer = await rig.request("DELETE", WEB, {"preconditions": preconditions})
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert (await rig.get(WEB)).status == 200


async def test_finalizers_hold_an_object(rig: Any) -> None:
    await rig.request("POST", PODS, named(name="web", finalizers=["example.com/hold"]))
    held = await rig.request("DELETE", WEB)
    assert held.json["metadata"]["deletionTimestamp"]
    assert (await rig.get(WEB)).status == 200
    assert (await rig.patch(WEB, {"metadata": {"finalizers": None}})).status == 200
    assert (await rig.get(WEB)).status == 404


async def test_delete_of_other_kinds_answers_a_status(rig: Any) -> None:
    await rig.add_node()
    dry = await rig.request("DELETE", "/api/v1/nodes/n1", dryRun="All")
    assert dry.json["status"] == "Success"
    gone = await rig.request("DELETE", "/api/v1/nodes/n1")
    assert gone.json["details"]["name"] == "n1"
    assert (await rig.request("DELETE", "/api/v1/nodes/n1")).status == 404


async def test_deletecollection_takes_what_is_selected(rig: Any) -> None:
    for name in ("a", "b"):
        await rig.add_pod(name)
    answer = await rig.request("DELETE", PODS, labelSelector="app=a")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a"]
    left = (await rig.get(PODS)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]


async def test_a_namespace_empties_and_goes(rig: Any) -> None:
    body = {"metadata": {"name": "team"}}
    assert (await rig.request("POST", "/api/v1/namespaces", body)).status == 201
    pods = "/api/v1/namespaces/team/pods"
    await rig.request("POST", pods, named(name="free"))
    await rig.request("POST", pods, named(name="bound"))
    await rig.request("POST", f"{pods}/bound/binding", {"target": {"name": "n1"}})
    watch = await rig.watch("/api/v1/namespaces", fieldSelector="metadata.name=team")
    assert (await watch.next())["type"] == "ADDED"
    marked = await rig.request("DELETE", "/api/v1/namespaces/team")
    assert marked.json["status"]["phase"] == "Terminating"
    refused = await rig.request("POST", pods, named(name="late"))
    assert refused.status == 403
    assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await watch.next())["type"] == "MODIFIED"
    gone = {"gracePeriodSeconds": 0}
    await rig.request("DELETE", f"{pods}/bound", gone, token="n1")
    assert (await watch.next())["type"] == "DELETED"
    assert (await rig.get("/api/v1/namespaces/team")).status == 404
    await watch.hang_up()


async def test_the_default_namespace_stays(rig: Any) -> None:
    answer = await rig.request("DELETE", "/api/v1/namespaces/default")
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")


async def test_an_object_does_not_grow_beyond_what_is_stored(rig: Any) -> None:
    await rig.add_pod()
    patch = {"metadata": {"annotations": {"big": "x" * 1_600_000}}}
    answer = await rig.patch(WEB, patch)
    assert answer.status in (413, 422)
    assert "annotations" not in (await rig.get(WEB)).json["metadata"]


async def test_the_commit_has_its_crash_points(rig: Any, tmp_path: Any) -> None:
    log = tmp_path / "points"
    points = CrashPoints(log=str(log))
    service = ApiService(rig.store, rig.cache, rig.context, points)
    await service.create(ADMIN, NODES, "", {"metadata": {"name": "n9"}})
    assert log.read_text().split() == ["apiserver/commit/before", "apiserver/commit/after"]
