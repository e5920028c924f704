"""A pod that found no node is placed when somebody changes what kept it away: nobody polls."""

from __future__ import annotations

from typing import Any

import pytest

from system.up import Up, container

pytestmark = pytest.mark.apiserver


def node(up: Up, patch: dict[str, Any]) -> None:
    code, answer = up.request(
        "PATCH", f"/api/v1/nodes/{up.node}", patch, "application/merge-patch+json"
    )
    assert code == 200, answer


def why_not(up: Up, name: str) -> str:
    conditions = up.pod(name).get("status", {}).get("conditions", [])
    told = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
    return str(told[0]["message"]) if told else ""


@pytest.mark.parametrize(
    ("spec", "before", "why", "after"),
    [
        pytest.param(
            {"nodeSelector": {"disk": "fast"}},
            {},
            "didn't match Pod's node affinity/selector",
            {"metadata": {"labels": {"disk": "fast"}}},
            id="a label",
        ),
        pytest.param(
            {},
            {"spec": {"taints": [{"key": "k", "value": "", "effect": "NoSchedule"}]}},
            "had untolerated taint",
            {"spec": {"taints": None}},
            id="a taint",
        ),
        pytest.param(
            {},
            {"spec": {"unschedulable": True}},
            "were unschedulable",
            {"spec": {"unschedulable": None}},
            id="uncordon",
        ),
    ],
)
def test_a_pod_wakes_with_its_node(
    fake_up: Up, spec: dict[str, Any], before: dict[str, Any], why: str, after: dict[str, Any]
) -> None:
    up, path = fake_up, "/api/v1/namespaces/default/pods"
    node(up, before)
    manifest = {
        "metadata": {"name": "waker"},
        "spec": {"containers": [container("app", "100m", "8Mi")], **spec},
    }
    try:
        assert up.request("POST", path, manifest)[0] == 201
        up.wait_until(lambda: why in why_not(up, "waker"), "it is said why there is no node")
        node(up, after)
        up.wait_running("waker")
    finally:
        node(up, {"spec": {"taints": None, "unschedulable": None}})
        node(up, {"metadata": {"labels": {"disk": None}}})
        up.delete_pod("waker")
