"""kubectl 1.32 rolls Deployments out, back, and scales them, on a whole `livesize up`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from system.up import IMAGE, Up

pytestmark = [pytest.mark.workloads, pytest.mark.usefixtures("kubectl_1_32")]

WEB = "deploy/web"
MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "app",
                        "image": IMAGE,
                        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
                    }
                ],
            },
        },
    },
}


def say(up: Up, *words: str) -> str:
    return up.kubectl(*words).stdout


def rolled_out(up: Up) -> str:
    return say(up, "rollout", "status", WEB, "--timeout=60s")


def pods(up: Up) -> set[str]:
    """The uids of those that stay."""
    found = json.loads(say(up, "get", "pods", "-l", "app=web", "-o", "json"))["items"]
    return {one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]}


def variable(up: Up) -> str:
    path = "jsonpath={.spec.template.spec.containers[0].env[0].value}"
    return say(up, "get", WEB, "-o", path)


def test_kubectl_rolls_out_and_back(fake_up: Up) -> None:
    up = fake_up
    up.kubectl("apply", "-f", "-", stdin=json.dumps(MANIFEST))
    try:
        assert 'deployment "web" successfully rolled out' in rolled_out(up)
        first = pods(up)
        assert len(first) == 3
        shown = say(up, "get", WEB).splitlines()[1].split()
        assert shown[:4] == ["web", "3/3", "3", "3"]

        say(up, "set", "env", WEB, "COLOUR=blue")
        assert "successfully rolled out" in rolled_out(up)
        second = pods(up)
        assert not first & second
        history = say(up, "rollout", "history", WEB).split()
        assert [one for one in history if one.isdigit()] == ["1", "2"]
        assert "COLOUR" in say(up, "rollout", "history", WEB, "--revision=2")

        assert "rolled back" in say(up, "rollout", "undo", WEB)
        rolled_out(up)
        assert variable(up) == ""
        third = pods(up)
        assert not second & third
        history = say(up, "rollout", "history", WEB).split()
        assert [one for one in history if one.isdigit()] == ["2", "3"]

        say(up, "rollout", "pause", WEB)
        say(up, "set", "env", WEB, "COLOUR=red")
        say(up, "scale", WEB, "--replicas=4")
        up.wait_until(lambda: len(pods(up)) == 4, "a paused Deployment scales")
        assert third < pods(up)
        say(up, "rollout", "resume", WEB)
        assert "successfully rolled out" in rolled_out(up)
        fourth = pods(up)
        assert not third & fourth
        assert len(fourth) == 4

        say(up, "rollout", "restart", WEB)
        assert "successfully rolled out" in rolled_out(up)
        fifth = pods(up)
        assert not fourth & fifth

        say(up, "set", "image", WEB, "app=nowhere.invalid/none:1")
        up.wait_until(lambda: len(pods(up)) == 5, "a new pod is there, and none goes for it")
        unfinished = up.kubectl("rollout", "status", WEB, "--timeout=1s", check=False)
        assert "1 out of 4 new replicas have been updated" in unfinished.stdout
        say(up, "rollout", "undo", WEB)
        assert "successfully rolled out" in rolled_out(up)
        up.wait_until(lambda: pods(up) == fifth, "no pod has gone for what was undone")

        say(up, "scale", WEB, "--replicas=1")
        assert "successfully rolled out" in rolled_out(up)
        up.wait_until(lambda: len(pods(up)) == 1, "one pod is left")
        described = say(up, "describe", WEB)
        assert "Progressing    True    NewReplicaSetAvailable" in described
        assert "Scaled down replica set web-" in described
    finally:
        say(up, "delete", WEB)
    up.wait_until(lambda: not pods(up), "its pods go with it")
    assert "web-" not in say(up, "get", "rs", "-o", "name")


def test_a_budget_of_a_share_lets_one_pod_go(fake_up: Up) -> None:
    up = fake_up
    up.kubectl("apply", "-f", "-", stdin=json.dumps(MANIFEST))
    try:
        rolled_out(up)
        say(up, "create", "pdb", "web", "--selector=app=web", "--max-unavailable=34%")
        counted = "jsonpath={.status.expectedPods}/{.status.desiredHealthy}"
        up.wait_until(
            lambda: say(up, "get", "pdb", "web", "-o", counted) == "3/1", "two of three may go"
        )
    finally:
        say(up, "delete", WEB)
        say(up, "delete", "pdb/web", "--ignore-not-found")
