"""The wire itself: paths, bodies, tokens, documents, and never a stack trace."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import jsonschema_rs
import orjson
import pytest

from livesize.apiserver.http.bodies import MAX_BODY_BYTES
from livesize.apiserver.http.openapi_v2_protobuf import V2_ANSWERED, V2_PROTOBUF
from livesize.apiserver.http.protobuf import _fields
from unit.apiserver.conftest import pod

PODS = "/api/v1/namespaces/default/pods"
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
MANIFEST = b"""
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {since: 2024-01-01}}
spec: {containers: [{name: app, image: "busybox:1", resources: {requests: {cpu: 1}}}]}
"""


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version", "/version/"])
async def test_open_to_all(rig: Any, path: str) -> None:
    assert (await rig.get(path, token="")).status == 200


async def test_readyz_waits_for_the_server(rig: Any) -> None:
    rig.ready = False
    assert (await rig.get("/readyz", token="")).status == 503
    assert (await rig.get("/livez", token="")).status == 200


@pytest.mark.parametrize("token", ["", "wrong"])
@pytest.mark.parametrize("path", [PODS, "/api", "/openapi/v3", "/metrics", "/nothing"])
async def test_all_else_needs_a_token(rig: Any, path: str, token: str) -> None:
    answer = await rig.get(path, token=token)
    assert (answer.status, answer.json["message"]) == (401, "Unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/nothing", "/api/v2/pods", "/api/v1/things", "/apis/apps/v1/daemonsets",
        "/api/v1/pods/web", f"{PODS}/web/color", f"{PODS}/a/status/b", "/api/v1/nodes/n1/resize",
        "/api/v1/namespaces/default/nodes", "/openapi/v3/apis/none/v1", "/api/v1//pods",
    ],
)  # fmt: skip
async def test_unknown_paths(rig: Any, path: str) -> None:
    answer = await rig.get(path)
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")
    words = "the server could not find the requested resource"
    if path.startswith("/apis/"):
        words += "; `kubectl api-resources` lists the kinds that it serves, and there are no others"
    assert answer.json["message"] == words


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PODS), ("PATCH", PODS), ("POST", f"{PODS}/web"), ("OPTIONS", PODS),
        ("POST", "/api/v1/pods"), ("DELETE", "/api/v1/pods"), ("GET", f"{PODS}/web/binding"),
    ],
)  # fmt: skip
async def test_wrong_methods(rig: Any, method: str, path: str) -> None:
    answer = await rig.request(method, path, {})
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "body",
    [
        b"{", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\xff"}', b'{"kind": "Pod", "kind": "Pod"}',
        b"[" * 101 + b"]" * 101, b"[" * 100_000, b'{"a": "\\ud800"}', b"null", b"7",
        b'{"a": 9223372036854775808}', b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=[
        "cut", "nan", "infinity", "utf8", "twins", "deep", "abyss", "surrogate", "null", "number",
        "65-bits", "thousands-of-digits",
    ],
)  # fmt: skip
async def test_bad_json_is_400(rig: Any, body: bytes) -> None:
    answer = await rig.request("POST", PODS, body)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        b"a: [", b"a: 1\na: 2", b"a: &x [1]\nb: *x", b"a: .nan", b"1: 2", b"\xff",
        b"a: !!binary aGk=", b"a: !!python/object:os.system []",
        b"a: 9223372036854775808", b"a: " + b"9" * 5000, b"a: " + b"x" * (256 * 1024),
        b"[" * 101 + b"]" * 101, b"[" * 100_000,
    ],
    ids=[
        "cut", "twins", "alias", "nan", "key", "utf8", "binary", "python", "65-bits",
        "thousands-of-digits", "large", "deep", "abyss",
    ],
)  # fmt: skip
async def test_bad_yaml_is_400(rig: Any, body: bytes) -> None:
    answer = await rig.request("POST", PODS, body, content_type="application/yaml")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_yaml_is_read_as_json_would_be(rig: Any) -> None:
    answer = await rig.request("POST", PODS, MANIFEST, content_type="application/yaml")
    assert answer.status == 201
    assert answer.json["metadata"]["annotations"] == {"since": "2024-01-01"}
    assert answer.json["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


async def test_too_large(rig: Any) -> None:
    answer = await rig.request("POST", PODS, b"x" * (MAX_BODY_BYTES + 1))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    announced = await rig.request("POST", PODS, {}, headers={"content-length": "4000000"})
    assert announced.status == 413
    stored = await rig.request("POST", PODS, pod(unknown="x" * 2_000_000))
    assert stored.status == 413, "no store keeps an object of that size"


async def test_media_types(rig: Any) -> None:
    body = await rig.request("POST", PODS, b"x", content_type="application/vnd.other")
    assert (body.status, body.json["reason"]) == (415, "UnsupportedMediaType")
    await rig.add_pod()
    plain = await rig.request("PATCH", f"{PODS}/web", {})
    assert plain.status == 415


ANNOTATE = {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}
DOUBLED = [
    {"op": "copy", "from": "/metadata", "path": f"/metadata/annotations/n{number}"}
    for number in range(20)
]


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        ("json", {"op": "add"}, 400),
        ("json", [{"op": "test", "path": "/kind", "value": "Node"}], 422),
        ("merge", [1], 400),
        ("strategic", [1], 400),
        ("merge", {"metadata": 7}, 422),
        ("merge", {"spec": {"containers": 7}}, 422),
        ("json", [{"op": "test", "path": "/kind", "value": "Pod"}] * 1001, 413),
        ("json", [ANNOTATE, *DOUBLED], 413),
        ("merge", {"metadata": {"annotations": {"big": "x" * 2_000_000}}}, 422),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_bad_patches(rig: Any, kind: str, patch: Any, code: int) -> None:
    made = await rig.add_pod()
    answer = await rig.patch(f"{PODS}/web", patch, kind)
    assert answer.status == code
    assert (await rig.get(f"{PODS}/web")).json == made


async def test_a_bug_is_500_and_goes_to_the_log(rig: Any, monkeypatch: Any, caplog: Any) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(rig.service, "list", broken)
    answer = await rig.get(PODS)
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert b"secret detail" not in answer.body
    assert "secret detail" in caplog.text


async def test_a_closed_store_is_503(rig: Any) -> None:
    await rig.store.close()
    answer = await rig.request("POST", "/api/v1/namespaces", {"metadata": {"name": "late"}})
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")


async def test_aggregated_discovery_with_etag(rig: Any) -> None:
    answer = await rig.get("/api", accept=AGGREGATED)
    assert answer.json["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in answer.headers["content-type"]
    (version,) = answer.json["items"][0]["versions"]
    pods = next(one for one in version["resources"] if one["resource"] == "pods")
    assert pods["scope"] == "Namespaced"
    assert [one["subresource"] for one in pods["subresources"]] == [
        "attach", "binding", "eviction", "exec", "log", "portforward", "resize", "resizing",
        "status",
    ]  # fmt: skip
    same = await rig.get(
        "/api", accept=AGGREGATED, headers={"if-none-match": answer.headers["etag"]}
    )
    assert (same.status, same.body) == (304, b"")
    groups = (await rig.get("/apis", accept=AGGREGATED)).json["items"]
    names = [group["metadata"]["name"] for group in groups]
    assert names == sorted(names)
    assert {"authorization.k8s.io", "coordination.k8s.io"} <= set(names)


async def test_plain_discovery(rig: Any) -> None:
    assert (await rig.get("/api")).json["versions"] == ["v1"]
    groups = (await rig.get("/apis")).json["groups"]
    (group,) = (one for one in groups if one["name"] == "coordination.k8s.io")
    assert group["preferredVersion"]["groupVersion"] == "coordination.k8s.io/v1"
    assert (await rig.get("/apis/coordination.k8s.io")).json["kind"] == "APIGroup"
    resources = (await rig.get("/api/v1")).json["resources"]
    assert {"nodes", "nodes/status", "pods", "pods/resize"} <= {one["name"] for one in resources}
    leases = (await rig.get("/apis/coordination.k8s.io/v1")).json["resources"]
    assert leases[0]["kind"] == "Lease"


async def test_openapi_has_what_kubectl_looks_for(rig: Any) -> None:
    paths = (await rig.get("/openapi/v3")).json["paths"]
    assert sorted(paths) == [
        "api/v1", "apis/apps/v1", "apis/coordination.k8s.io/v1", "apis/policy/v1",
        "apis/scheduling.k8s.io/v1", "apis/storage.k8s.io/v1",
    ]  # fmt: skip
    document = (await rig.get("/openapi/v3/api/v1")).json
    patch = document["paths"][f"{PODS.replace('default', '{namespace}')}/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"
    assert {"dryRun", "fieldValidation", "fieldManager"} <= {
        parameter["name"] for parameter in patch["parameters"]
    }
    spec = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"


async def test_metrics_count(rig: Any) -> None:
    await rig.get(PODS)
    text = (await rig.get("/metrics")).body.decode()
    assert 'apiserver_request_total{code="200",resource="pods",subresource="",verb="list"}' in text
    assert "apiserver_watchers 1.0" in text


async def test_the_loops_lag_is_a_metric(rig: Any) -> None:
    task = asyncio.create_task(rig.app.run_loop_lag())
    await asyncio.sleep(0)
    asyncio.get_running_loop().jump(0.25 + 0.04)  # type: ignore[attr-defined]
    await asyncio.sleep(0.001)
    task.cancel()
    text = (await rig.get("/metrics")).body.decode()
    assert "apiserver_loop_lag_seconds_count 1.0" in text
    assert 'apiserver_loop_lag_seconds_bucket{le="0.025"} 0.0' in text
    assert 'apiserver_loop_lag_seconds_bucket{le="0.05"} 1.0' in text


async def test_health_says_which_check_failed(rig: Any) -> None:
    ready = await rig.get("/readyz", token="", verbose="")
    assert ready.body == (b"[+]ping ok\n[+]store ok\n[+]serving ok\nreadyz check passed\n")
    assert (await rig.get("/livez/ping", token="")).body == b"ok"
    assert (await rig.get("/livez/nothing", token="")).status == 404
    rig.ready = False
    failed = await rig.get("/readyz", token="")
    assert (failed.status, b"[-]serving failed" in failed.body) == (503, True)
    assert (await rig.get("/readyz/store", token="")).status == 200
    assert (await rig.get("/healthz", token="")).status == 200


async def test_openapi_v2_is_the_same_in_the_older_form(rig: Any) -> None:
    document = (await rig.get("/openapi/v2")).json
    shape = document["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]
    assert shape["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert "components" not in str(document)
    assert "oneOf" not in str(document)
    path = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert "application/apply-patch+yaml" in path["patch"]["consumes"]
    assert (await rig.get("/openapi/v2", accept="application/xml")).status == 406


def parts(data: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by number."""
    found: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


async def test_openapi_v2_in_protobuf_says_what_the_document_says(rig: Any) -> None:
    document = (await rig.get("/openapi/v2")).json
    answer = await rig.get("/openapi/v2", accept=V2_PROTOBUF)
    assert (answer.status, answer.headers["content-type"]) == (200, V2_ANSWERED.decode())
    top = parts(answer.body)
    assert top[1] == [b"2.0"]
    (definitions,) = top[9]
    schemas = {parts(one)[1][0].decode(): parts(one)[2][0] for one in parts(definitions)[1]}
    assert set(schemas) == set(document["definitions"])
    name = "io.k8s.api.core.v1.Pod"
    pod_schema, expected = parts(schemas[name]), document["definitions"][name]
    properties = [parts(one)[1][0].decode() for one in parts(pod_schema[25][0])[1]]
    assert properties == list(expected["properties"])
    (gvk,) = (parts(one)[2][0] for one in pod_schema[31] if b"group-version-kind" in one)
    assert orjson.loads(parts(gvk)[2][0]) == [{"group": "", "version": "v1", "kind": "Pod"}]
    paths = {parts(one)[1][0].decode(): parts(one)[2][0] for one in parts(top[8][0])[2]}
    assert set(paths) == set(document["paths"])
    patch = parts(parts(paths["/api/v1/nodes/{name}"])[8][0])
    queries = [parts(parts(parts(parts(one)[1][0])[2][0])[3][0])[4] for one in patch[8][:-1]]
    assert [b"dryRun"] in queries


async def test_the_document_we_serve_checks_what_we_serve(rig: Any) -> None:
    document = (await rig.get("/openapi/v3/api/v1")).json
    schema = {"$ref": "#/components/schemas/io.k8s.api.core.v1.Pod", **document}
    served = (await rig.request("POST", PODS, pod())).json
    jsonschema_rs.validate(schema, served)
    wrong = {**served, "spec": {**served["spec"], "containers": "none"}}
    assert not jsonschema_rs.is_valid(schema, wrong)
    policies = document["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"]
    assert "without a restart" in policies["resizePolicy"]["description"]
    assert policies["resizePolicy"]["x-kubernetes-list-type"] == "atomic"
    assert policies["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ("api/v1", "io.k8s.api.core.v1.Pod"),
        ("apis/policy/v1", "io.k8s.api.policy.v1.PodDisruptionBudget"),
        ("apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.StorageClass"),
        ("apis/scheduling.k8s.io/v1", "io.k8s.api.scheduling.v1.PriorityClass"),
        ("apis/coordination.k8s.io/v1", "io.k8s.api.coordination.v1.Lease"),
    ],
)
async def test_a_definition_has_the_group_of_its_kind(rig: Any, document: str, name: str) -> None:
    schemas = (await rig.get(f"/openapi/v3/{document}")).json["components"]["schemas"]
    (gvk,) = schemas[name]["x-kubernetes-group-version-kind"]
    assert gvk["kind"] == name.rpartition(".")[2]
    assert name in (await rig.get("/openapi/v2")).json["definitions"]
    references = set(re.findall(r"#/components/schemas/([\w.]+)", str(schemas)))
    assert references <= set(schemas)


async def test_kubectl_edit_is_shown_what_its_types_know(rig: Any) -> None:
    await rig.add_pod(node="n1")
    headers = {"kubectl-command": "kubectl edit"}
    shown = (await rig.get(f"{PODS}/web", headers=headers)).json
    assert "resizeRequest" not in shown["spec"]
    assert "resourcesAllocated" not in shown["spec"]["containers"][0]
    assert "resizeState" not in shown["status"]
    (listed,) = (await rig.get(PODS, headers=headers)).json["items"]
    assert listed == shown
    assert "resizeRequest" in (await rig.get(f"{PODS}/web")).json["spec"]
