"""Reviews over the wire: who am I, may I, what may I. The answers are the API server's own."""

from __future__ import annotations

from typing import Any

import pytest

ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def may(rig: Any, token: str, **attributes: str) -> bool:
    body = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await rig.request("POST", ACCESS, body, token=token)
    assert answer.status == 201
    assert answer.json["spec"] == body["spec"]
    return bool(answer.json["status"]["allowed"])


@pytest.mark.parametrize(
    ("token", "attributes", "allowed"),
    [
        ("admin", {"verb": "*", "resource": "*", "group": "*"}, True),
        ("editor", {"verb": "*", "resource": "*"}, False),
        ("editor", {"verb": "*", "resource": "pods", "namespace": "default"}, True),
        ("viewer", {"verb": "*", "resource": "pods", "namespace": "default"}, False),
        ("viewer", {"verb": "list", "resource": "pods"}, True),
        ("viewer", {"verb": "list", "resource": "leases"}, False),
        ("viewer", {"verb": "list", "resource": "leases", "group": "coordination.k8s.io"}, True),
        ("team", {"verb": "list", "resource": "pods"}, False),
        ("team", {"verb": "list", "resource": "pods", "namespace": "default"}, True),
        ("team", {"verb": "get", "resource": "nodes"}, False),
        ("n1", {"verb": "create", "resource": "pods", "subresource": "resizing"}, True),
        ("n1", {"verb": "patch", "resource": "pods", "subresource": "resize"}, False),
        ("editor", {"verb": "get", "resource": "bananas"}, False),
        (
            "viewer",
            {
                "verb": "create",
                "group": "authorization.k8s.io",
                "resource": "selfsubjectaccessreviews",
            },
            True,
        ),
        (
            "viewer",
            {"verb": "get", "group": "authorization.k8s.io", "resource": "selfsubjectrulesreviews"},
            False,
        ),
    ],
)
async def test_may_i(rig: Any, token: str, attributes: dict[str, str], allowed: bool) -> None:
    assert await may(rig, token, **attributes) is allowed


@pytest.mark.parametrize(
    ("token", "verb", "path", "allowed"),
    [
        ("viewer", "get", "/openapi/v3", True),
        ("viewer", "get", "/version", True),
        ("viewer", "post", "/version", False),
        ("viewer", "get", "/secret", False),
        ("admin", "post", "/anything", True),
    ],
)
async def test_may_i_read_a_path(rig: Any, token: str, verb: str, path: str, allowed: bool) -> None:
    body = {"spec": {"nonResourceAttributes": {"verb": verb, "path": path}}}
    answer = await rig.request("POST", ACCESS, body, token=token)
    assert (answer.status, answer.json["status"]["allowed"]) == (201, allowed)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}},
        {"resourceAttributes": {"verb": 3}},
        {"resourceAttributes": ["get"]},
    ],
)
async def test_a_review_that_asks_nothing_is_refused(rig: Any, spec: Any) -> None:
    answer = await rig.request("POST", ACCESS, {"spec": spec}, token="viewer")
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"]["causes"][0]["field"].startswith("spec.resourceAttributes")


async def test_what_may_i(rig: Any) -> None:
    body = {"spec": {"namespace": "default"}}
    admin = (await rig.request("POST", RULES, body)).json["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in admin["resourceRules"]
    team = (await rig.request("POST", RULES, body, token="team")).json["status"]
    assert team["incomplete"] is False
    pods, metrics = (rule for rule in team["resourceRules"] if "pods" in rule["resources"])
    assert (metrics["apiGroups"], metrics["verbs"]) == (["metrics.k8s.io"], ["get", "list"])
    assert "create" in pods["verbs"]
    assert not any("nodes" in rule["resources"] for rule in team["resourceRules"])
    named = {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]}
    assert {**named, "resourceNames": ["default"]} in team["resourceRules"]
    elsewhere = {"spec": {"namespace": "kube-system"}}
    there = (await rig.request("POST", RULES, elsewhere, token="team")).json["status"]
    assert not any("pods" in rule["resources"] for rule in there["resourceRules"])
    assert (await rig.request("POST", RULES, body, token="n1")).json["status"]["incomplete"]
    assert (await rig.request("POST", RULES, {"spec": {}})).status == 400


async def test_every_rule_told_is_one_the_door_keeps(rig: Any) -> None:
    body = {"spec": {"namespace": "default"}}
    for token in ("editor", "viewer", "team", "scheduler", "controller"):
        rules = (await rig.request("POST", RULES, body, token=token)).json["status"]
        for rule in rules["resourceRules"]:
            for target in rule["resources"]:
                plural, _, subresource = target.partition("/")
                for verb in rule["verbs"]:
                    assert await may(
                        rig,
                        token,
                        verb=verb,
                        group=rule["apiGroups"][0],
                        resource=plural,
                        subresource=subresource,
                        namespace="default",
                        name=rule.get("resourceNames", [""])[0],
                    ), (token, verb, target)


async def test_who_am_i(rig: Any) -> None:
    answer = await rig.request("POST", SELF, {}, token="team")
    assert answer.status == 201
    assert answer.json["status"]["userInfo"] == {
        "username": "tim",
        "groups": ["livesize:editor", "livesize:namespace:default", "system:authenticated"],
    }
    node = (await rig.request("POST", SELF, {}, token="n1")).json["status"]["userInfo"]
    assert node == {
        "username": "system:node:n1",
        "groups": ["system:nodes", "system:authenticated"],
    }


@pytest.mark.parametrize("path", [ACCESS, RULES, SELF])
async def test_reviews_are_posted_only_and_only_by_known_people(rig: Any, path: str) -> None:
    assert (await rig.get(path)).status == 405
    assert (await rig.request("POST", path, {}, token="")).status == 401
    wrong = await rig.request("POST", path, {"kind": "Pod", "apiVersion": "v1"})
    assert (wrong.status, wrong.json["reason"]) == (400, "BadRequest")
    assert (await rig.request("POST", path, [])).status == 400


async def test_reviews_are_discovered(rig: Any) -> None:
    (entry,) = (await rig.get("/apis/authentication.k8s.io/v1")).json["resources"]
    assert (entry["name"], entry["verbs"]) == ("selfsubjectreviews", ["create"])


async def test_one_who_is_limited_to_a_namespace_sees_no_other(rig: Any) -> None:
    assert (await rig.get("/api/v1/namespaces/default/pods", token="team")).status == 200
    for path in (
        "/api/v1/pods",
        "/api/v1/namespaces/kube-system/pods",
        "/api/v1/namespaces",
        "/api/v1/namespaces/kube-system",
        "/api/v1/nodes",
    ):
        for watch in ("false", "true"):
            answer = await rig.get(path, token="team", watch=watch)
            assert (answer.status, answer.json["reason"]) == (403, "Forbidden"), path
            assert 'is forbidden: User "tim" cannot ' in answer.json["message"]
    assert (await rig.get("/api/v1/namespaces/default", token="team")).status == 200
