"""metrics.k8s.io: served from what each node says with its heartbeat."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.times import format_time
from livesize.api.usage import USAGE_ANNOTATION, NodeUsage, Usage, format_usage

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ROOT = "/apis/metrics.k8s.io/v1beta1"
PODS = f"{ROOT}/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APP = Usage(250_000_000, 64 * 2**20, 10.0)
SIDE = Usage(1_000_000, 2**20, 9.5)


async def heartbeat(rig: Any, node: str, pods: dict[str, dict[str, Usage]], age: float = 0) -> None:
    said = NodeUsage(format_time(rig.clock.now() - age), Usage(10**9, 2**30, 10.002), pods)
    metadata = {"name": node, "annotations": {USAGE_ANNOTATION: format_usage(said)}}
    lease = {"metadata": metadata, "spec": {"holderIdentity": node}}
    answer = await rig.request("POST", LEASES, lease, token=node)
    assert answer.status == 201, answer.json


@pytest.fixture
async def web(rig: Any) -> Any:
    pod = await rig.add_pod("web", node="n1")
    await heartbeat(rig, "n1", {pod["metadata"]["uid"]: {"app": APP, "side": SIDE}})
    return pod


async def test_a_pod_s_usage_is_told_for_each_container(rig: Any, web: Any) -> None:
    shown = (await rig.get(f"{PODS}/web")).json
    time = format_time(rig.clock.now())
    assert shown == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "creationTimestamp": time,
            "labels": {"app": "web"},
        },
        "timestamp": time,
        "window": "9.5s",
        "containers": [
            {"name": "app", "usage": {"cpu": "250000000n", "memory": "65536Ki"}},
            {"name": "side", "usage": {"cpu": "1000000n", "memory": "1024Ki"}},
        ],
    }
    listed = (await rig.get(PODS)).json
    assert (listed["kind"], listed["items"]) == ("PodMetricsList", [shown])
    assert (await rig.get(f"{ROOT}/pods")).json["items"] == [shown]


async def test_a_node_s_usage(rig: Any, web: Any) -> None:
    shown = (await rig.get(f"{ROOT}/nodes/n1")).json
    assert (shown["kind"], shown["window"]) == ("NodeMetrics", "10.002s")
    assert shown["usage"] == {"cpu": "1000000000n", "memory": "1048576Ki"}
    await rig.add_node("silent")
    assert (await rig.get(f"{ROOT}/nodes")).json["items"] == [shown]


async def test_what_is_not_measured_or_long_ago_is_not_there(rig: Any) -> None:
    fresh = await rig.add_pod("fresh", node="n1")
    stale = await rig.add_pod("stale", node="n2")
    await rig.add_pod("unbound")
    await heartbeat(rig, "n1", {})
    await heartbeat(rig, "n2", {stale["metadata"]["uid"]: {"app": APP}}, age=61)
    assert (await rig.get(PODS)).json["items"] == []
    for name in ("fresh", "stale", "unbound", "absent"):
        answer = await rig.get(f"{PODS}/{name}")
        assert (answer.status, answer.json["reason"]) == (404, "NotFound")
    assert fresh["metadata"]["uid"] != stale["metadata"]["uid"]
    assert (await rig.get(f"{ROOT}/nodes/n2")).status == 404


async def test_a_node_speaks_for_its_own_pods_only(rig: Any) -> None:
    pod = await rig.add_pod("web", node="n1")
    await rig.add_node("n2")
    await heartbeat(rig, "n1", {})
    await heartbeat(rig, "n2", {pod["metadata"]["uid"]: {"app": APP}})
    assert (await rig.get(PODS)).json["items"] == []


@pytest.mark.parametrize("text", ["", "no", "{}", '{"time":"x"}', '{"time":1}', "[]"])
async def test_an_annotation_that_cannot_be_read_is_no_usage(rig: Any, text: str) -> None:
    await rig.add_pod("web", node="n1")
    metadata = {"name": "n1", "annotations": {USAGE_ANNOTATION: text}}
    await rig.request("POST", LEASES, {"metadata": metadata, "spec": {}}, token="n1")
    assert (await rig.get(PODS)).json["items"] == []
    assert (await rig.get(f"{ROOT}/nodes")).json["items"] == []


async def test_selectors_and_pages_are_those_of_the_pods(rig: Any, web: Any) -> None:
    other = await rig.add_pod("other", node="n2")
    await heartbeat(rig, "n2", {other["metadata"]["uid"]: {"app": APP}})

    async def names(**query: str) -> list[str]:
        listed = (await rig.get(PODS, **query)).json
        return [item["metadata"]["name"] for item in listed["items"]]

    assert await names() == ["other", "web"]
    assert await names(labelSelector="app=web") == ["web"]
    assert await names(fieldSelector="metadata.name=other") == ["other"]
    first = (await rig.get(PODS, limit="1")).json
    token = first["metadata"]["continue"]
    assert await names(limit="1") == ["other"]
    assert await names(**{"limit": "1", "continue": token}) == ["web"]


async def test_tables(rig: Any, web: Any) -> None:
    shown = (await rig.get(PODS, accept=TABLE)).json
    assert [one["name"] for one in shown["columnDefinitions"]] == [
        "Name",
        "CPU",
        "Memory",
        "Window",
    ]
    assert [row["cells"] for row in shown["rows"]] == [["web", "251m", "65Mi", "9.5s"]]
    assert shown["rows"][0]["object"]["metadata"]["name"] == "web"
    nodes = (await rig.get(f"{ROOT}/nodes/n1", accept=TABLE)).json
    assert nodes["rows"][0]["cells"] == ["n1", "1000000000n", "1048576Ki", "10.002s"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_metrics_are_only_read(rig: Any, web: Any, method: str) -> None:
    for path in (f"{PODS}/web", PODS, f"{ROOT}/nodes/n1"):
        answer = await rig.request(method, path, {})
        assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")
    assert (await rig.get(PODS, watch="true")).status == 405


async def test_who_sees_a_pod_sees_what_it_uses(rig: Any, web: Any) -> None:
    for token in ("viewer", "editor", "team"):
        assert (await rig.get(PODS, token=token)).status == 200
    assert (await rig.get(PODS, token="n1")).status == 403
    own = {"fieldSelector": "spec.nodeName=n1"}
    assert (await rig.get(PODS, token="n1", **own)).status == 200
    refused = await rig.get(f"{ROOT}/pods", token="team")
    assert refused.status == 403
    assert 'cannot list resource "pods" in API group "metrics.k8s.io"' in refused.json["message"]
    assert (await rig.get(f"{ROOT}/nodes", token="team")).status == 403


async def test_reviews_know_them(rig: Any, web: Any) -> None:
    async def may(verb: str, token: str) -> bool:
        attributes = {"verb": verb, "group": "metrics.k8s.io", "resource": "pods"}
        review = {"spec": {"resourceAttributes": {**attributes, "namespace": "default"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await rig.request("POST", path, review, token=token)
        return bool(answer.json["status"]["allowed"])

    assert await may("list", "viewer")
    assert not await may("delete", "editor")


async def test_discovery_names_them_after_pods(rig: Any) -> None:
    found = (await rig.get(ROOT)).json["resources"]
    assert [(one["name"], one["kind"], one["verbs"]) for one in found] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
    groups = (await rig.get("/apis")).json["groups"]
    assert "metrics.k8s.io" in [group["name"] for group in groups]
