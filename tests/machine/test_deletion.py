"""Pods on their way out, on the real machine: what ends, when, and what the API says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from system.groups import group_of
from system.up import Up, container, running_up

pytestmark = pytest.mark.containers

PODS = "/api/v1/namespaces/default/pods"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("deletion")) as one:
        yield one


def test_a_pod_deleted_by_force_does_not_run_on_for_its_grace(up: Up) -> None:
    app = container("app", "100m", "32Mi", command=STUBBORN)
    up.create_pod("db", [app], terminationGracePeriodSeconds=300)
    pid = group_of(up, "db", "app").main_pid()
    up.kubectl("delete", "pod", "db", "--force", "--grace-period=0", "--wait=false")
    up.wait_until(lambda: not Path(f"/proc/{pid}").exists(), "its process is gone", 10)


def test_a_deleted_pod_that_a_finalizer_keeps_has_ended(up: Up) -> None:
    up.create_pod("kept", [container("app", "100m", "32Mi")])
    patch = {"metadata": {"finalizers": ["example.com/keep"]}}
    merge = "application/merge-patch+json"
    assert up.request("PATCH", f"{PODS}/kept", patch, merge)[0] == 200
    assert up.request("DELETE", f"{PODS}/kept")[0] in (200, 202)

    def ended() -> bool:
        (status,) = up.pod("kept")["status"]["containerStatuses"]
        return "terminated" in status["state"]

    up.wait_until(ended, "its container is told as terminated")
    status = up.pod("kept")["status"]
    assert status["phase"] in ("Failed", "Succeeded")
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert up.request("PATCH", f"{PODS}/kept", {"metadata": {"finalizers": None}}, merge)[0] == 200
    up.wait_until(lambda: up.request("GET", f"{PODS}/kept")[0] == 404, "it is gone")
