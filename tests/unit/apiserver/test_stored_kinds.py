"""The kinds beside pods: defaults, refusals with their fields, tables, unknown fields."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from livesize.api.objects import Object

BASE = "/api/v1/namespaces/default"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATHS = {
    "ResourceQuota": f"{BASE}/resourcequotas",
    "LimitRange": f"{BASE}/limitranges",
    "ServiceAccount": f"{BASE}/serviceaccounts",
    "ConfigMap": f"{BASE}/configmaps",
    "Secret": f"{BASE}/secrets",
    "Service": f"{BASE}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
GOOD: dict[str, Object] = {
    "ResourceQuota": {"spec": {"hard": {"requests.cpu": "1", "limits.cpu": "2"}}},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "ServiceAccount": {"automountServiceAccountToken": False},
    "ConfigMap": {"data": {"a": "1"}, "binaryData": {"b": "AAE="}},
    "Secret": {"stringData": {"password": "secret"}},
    "Service": {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
    "PodDisruptionBudget": {
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    },
    "PriorityClass": {"value": 100, "description": "more"},
}


@pytest.mark.parametrize("kind", sorted(GOOD))
async def test_each_kind_is_kept_whole(rig: Any, kind: str) -> None:
    sent = {"metadata": {"name": "x", "labels": {"a": "b"}}, **GOOD[kind], "fromTomorrow": {"y": 1}}
    made = await rig.request("POST", PATHS[kind], sent)
    assert made.status == 201, made.json
    assert made.json["fromTomorrow"] == {"y": 1}
    path = f"{PATHS[kind]}/x"
    assert (await rig.get(path)).json == made.json
    labels = {"metadata": {"labels": {"c": "d"}}}
    changed = await rig.patch(path, labels, kind="strategic")
    assert changed.json["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert changed.json["fromTomorrow"] == {"y": 1}
    assert (await rig.request("PUT", path, changed.json)).json == changed.json
    strict = await rig.request("POST", PATHS[kind], sent, fieldValidation="Strict")
    assert (strict.status, "fromTomorrow" in strict.json["message"]) == (400, True)
    assert (await rig.request("DELETE", path)).status == 200
    assert (await rig.get(path)).status == 404


BAD = [
    ("ResourceQuota", {"spec": {"hard": {"pods": "-1"}}}, "spec.hard[pods]"),
    ("ResourceQuota", {"spec": {"hard": {"pods": "1500m"}}}, "spec.hard[pods]"),
    ("ResourceQuota", {"spec": {"hard": {"speed": "1"}}}, "spec.hard[speed]"),
    ("ResourceQuota", {"spec": {"scopes": ["Slow"]}}, "spec.scopes[0]"),
    (
        "ResourceQuota",
        {"spec": {"scopes": ["BestEffort"], "hard": {"cpu": "1"}}},
        "spec.scopes",
    ),
    ("ResourceQuota", {"spec": {"scopes": ["BestEffort", "NotBestEffort"]}}, "spec.scopes"),
    ("LimitRange", {"spec": {"limits": [{}]}}, "spec.limits[0].type"),
    (
        "LimitRange",
        {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}},
        "spec.limits[0].default",
    ),
    (
        "LimitRange",
        {"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}},
        "spec.limits[0].min[cpu]",
    ),
    (
        "LimitRange",
        {"spec": {"limits": [{"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}]}},
        "spec.limits[0].maxLimitRequestRatio[cpu]",
    ),
    ("ConfigMap", {"data": {"a b": "1"}}, "data[a b]"),
    ("ConfigMap", {"binaryData": {"a": "%%"}}, "binaryData[a]"),
    ("Secret", {"data": {"a": "not base64"}}, "data[a]"),
    ("Service", {"spec": {"ports": [{"port": 70000}]}}, "spec.ports[0].port"),
    ("Service", {"spec": {}}, "spec.ports"),
    ("Service", {"spec": {"type": "Other", "ports": [{"port": 1}]}}, "spec.type"),
    (
        "PodDisruptionBudget",
        {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
        "spec",
    ),
    ("PodDisruptionBudget", {"spec": {"minAvailable": "half"}}, "spec.minAvailable"),
    ("PriorityClass", {"value": 1_000_000_001}, "value"),
]


@pytest.mark.parametrize(("kind", "body", "field"), BAD)
async def test_what_is_wrong_is_named(rig: Any, kind: str, body: Object, field: str) -> None:
    answer = await rig.request("POST", PATHS[kind], {"metadata": {"name": "x"}, **body})
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"]["causes"][0]["field"] == field


NONSENSE = [
    ("ResourceQuota", {"spec": {"hard": ["cpu"]}}),
    ("ResourceQuota", {"spec": {"hard": {"cpu": {}}}}),
    ("LimitRange", {"spec": {"limits": {"type": "Pod"}}}),
    ("LimitRange", {"spec": {"limits": [{"type": "Container", "max": "1"}]}}),
    ("Secret", {"stringData": {"a": 1}}),
    ("Secret", {"data": "text"}),
    ("Service", {"spec": {"ports": ["80"]}}),
    ("PodDisruptionBudget", {"spec": {"selector": "app"}}),
    ("PodDisruptionBudget", {"spec": {"minAvailable": {"a": 1}}}),
    ("PriorityClass", {"value": "high"}),
]


@pytest.mark.parametrize(("kind", "body"), NONSENSE)
async def test_nonsense_is_refused(rig: Any, kind: str, body: Object) -> None:
    answer = await rig.request("POST", PATHS[kind], {"metadata": {"name": "x"}, **body})
    assert answer.status in (400, 422)


FIXED = [
    ("ResourceQuota", {"spec": {"scopes": ["Terminating"]}}, "spec.scopes"),
    ("Secret", {"type": "other"}, "type"),
    ("PriorityClass", {"value": 7}, "value"),
]


@pytest.mark.parametrize(("kind", "change", "field"), FIXED)
async def test_what_may_not_change(rig: Any, kind: str, change: Object, field: str) -> None:
    await rig.request("POST", PATHS[kind], {"metadata": {"name": "x"}, **GOOD[kind]})
    answer = await rig.patch(f"{PATHS[kind]}/x", change)
    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_immutable_means_immutable(rig: Any, kind: str) -> None:
    sent = {"metadata": {"name": "x"}, **GOOD[kind], "immutable": True}
    await rig.request("POST", PATHS[kind], sent)
    path = f"{PATHS[kind]}/x"
    assert (await rig.patch(path, {"data": {"a": "AA=="}})).status == 422
    assert (await rig.patch(path, {"immutable": False})).status == 422
    assert (await rig.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_a_secrets_words_are_written_into_its_bytes(rig: Any) -> None:
    made = await rig.request("POST", PATHS["Secret"], {"metadata": {"name": "x"}, **GOOD["Secret"]})
    assert made.json["type"] == "Opaque"
    assert base64.b64decode(made.json["data"]["password"]) == b"secret"
    assert "stringData" not in made.json


ROWS = [
    ("ResourceQuota", ["x", "requests.cpu: 0/1", "limits.cpu: 0/2", "0s"]),
    ("LimitRange", ["x", "2027-01-15T08:00:00Z"]),
    ("ServiceAccount", ["x", 0, "0s"]),
    ("ConfigMap", ["x", 2, "0s"]),
    ("Secret", ["x", "Opaque", 1, "0s"]),
    ("Service", ["x", "ClusterIP", "<none>", "<none>", "80/TCP", "0s", "app=web"]),
    ("PodDisruptionBudget", ["x", "50%", "N/A", 0, "0s"]),
    ("PriorityClass", ["x", 100, False, "0s", "PreemptLowerPriority"]),
]


@pytest.mark.parametrize(("kind", "cells"), ROWS)
async def test_rows(rig: Any, kind: str, cells: list[Any]) -> None:
    await rig.request("POST", PATHS[kind], {"metadata": {"name": "x"}, **GOOD[kind]})
    table = (await rig.get(f"{PATHS[kind]}/x", accept=TABLE)).json
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"] == cells


async def test_who_may(rig: Any) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    assert (await rig.request("POST", PATHS["Secret"], secret, token="editor")).status == 201
    for token, status in (("viewer", 403), ("n1", 403), ("scheduler", 403), ("editor", 200)):
        assert (await rig.get(f"{PATHS['Secret']}/s", token=token)).status == status
    quota = {"metadata": {"name": "q"}, **GOOD["ResourceQuota"]}
    assert (await rig.request("POST", PATHS["ResourceQuota"], quota, token="editor")).status == 403
    assert (await rig.get(PATHS["ResourceQuota"], token="viewer")).status == 200
    config = {"metadata": {"name": "c"}}
    assert (await rig.request("POST", PATHS["ConfigMap"], config, token="viewer")).status == 403
    assert (await rig.request("POST", PATHS["ConfigMap"], config, token="n1")).status == 403
