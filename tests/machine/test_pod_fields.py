"""Fields of a pod that were ignored in silence, on each runtime: the machine is the witness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from system.groups import group_of
from system.up import Up, container

pytestmark = pytest.mark.containers

SLEEP = "trap exit TERM; while :; do sleep 1; done"


def make(up: Up, name: str, containers: list[dict[str, Any]], **spec: Any) -> None:
    """Some of them end before anybody could see them run."""
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, **spec}
    manifest = {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    code, answer = up.request("POST", "/api/v1/namespaces/default/pods", manifest)
    assert code == 201, answer


def status_of(up: Up, name: str) -> dict[str, Any]:
    found: dict[str, Any] = up.pod(name).get("status", {})
    return found


def test_last_words_and_hosts(up: Up) -> None:
    said = container("app", "100m", "32Mi", command="echo why > /dev/termination-log; exit 3")
    fails = {
        **container("logs", "100m", "32Mi", command="echo in the log; exit 4"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"runAsUser": 1000},
    }
    hosts = container("hosts", "100m", "32Mi", command="cat /etc/hosts > /dev/termination-log")
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db.example"]}]
    make(up, "words", [said, fails, hosts], restartPolicy="Never", hostAliases=aliases)
    up.wait_until(lambda: status_of(up, "words").get("phase") == "Failed", "it has ended")
    statuses = status_of(up, "words")["containerStatuses"]
    told = {one["name"]: one["state"]["terminated"].get("message") for one in statuses}
    assert told["app"] == "why\n"
    assert told["logs"] == "in the log\n"
    assert "192.0.2.7\tdb.example\n" in told["hosts"]


def test_a_deadline(up: Up) -> None:
    one = container("app", "100m", "32Mi", command=SLEEP)
    up.create_pod("short", [one], hostNetwork=True, activeDeadlineSeconds=5)
    process = Path(f"/proc/{group_of(up, 'short', 'app').main_pid()}")
    assert process.exists()
    up.wait_until(lambda: status_of(up, "short").get("phase") == "Failed", "its time is over")
    status = status_of(up, "short")
    assert status["reason"] == "DeadlineExceeded"
    assert "terminated" in status["containerStatuses"][0]["state"]
    assert not process.exists()


def test_a_gate_that_another_opens(up: Up) -> None:
    gates = [{"conditionType": "example.com/open"}]
    make(up, "gated", [container("app", "100m", "32Mi", command=SLEEP)], readinessGates=gates)
    up.wait_until(lambda: condition(up, "ContainersReady") == "True", "its containers are ready")
    assert condition(up, "Ready") == "False"
    opened = {"status": {"conditions": [{"type": "example.com/open", "status": "True"}]}}
    path = "/api/v1/namespaces/default/pods/gated/status"
    code, answer = up.request(
        "PATCH", path, opened, content_type="application/strategic-merge-patch+json"
    )
    assert code == 200, answer
    up.wait_until(lambda: condition(up, "Ready") == "True", "it is ready")
    assert condition(up, "example.com/open") == "True"


def condition(up: Up, name: str) -> str:
    found = up.pod("gated").get("status", {}).get("conditions", [])
    return next((one["status"] for one in found if one["type"] == name), "")
