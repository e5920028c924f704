"""kubectl 1.32 empties a node and takes it into service again: cordon, drain, uncordon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from system.up import IMAGE, Up

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

# Others share the machine, and their pods stay.
LABELS = {"leaves": "with-the-node"}
DRAIN = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=20s")
SELECTOR = "leaves=with-the-node"
OURS = f"--pod-selector={SELECTOR}"


def manifest(name: str) -> dict[str, Any]:
    container = {
        "name": "app",
        "image": IMAGE,
        "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def say(up: Up, *words: str) -> str:
    return up.kubectl(*words).stdout


def is_unschedulable(up: Up) -> bool:
    _, node = up.request("GET", f"/api/v1/nodes/{up.node}")
    return bool(node["spec"].get("unschedulable"))


def test_a_node_is_drained_and_comes_back(fake_up: Up) -> None:
    for name in ("leaving-a", "leaving-b"):
        fake_up.kubectl("apply", "-f", "-", stdin=json.dumps(manifest(name)))
    say(fake_up, "wait", "--for=condition=Ready", "pod", "-l", SELECTOR)

    tried = say(fake_up, "drain", fake_up.node, *DRAIN, OURS, "--dry-run=server")
    assert "evicting pod default/leaving-a (server dry run)" in tried
    assert not is_unschedulable(fake_up)
    assert len(say(fake_up, "get", "pods", "-l", SELECTOR, "-o", "name").split()) == 2

    try:
        drained = say(fake_up, "drain", fake_up.node, *DRAIN, OURS)
        assert "pod/leaving-a evicted" in drained
        assert "pod/leaving-b evicted" in drained
        assert f"node/{fake_up.node} drained" in drained
        assert is_unschedulable(fake_up)
        assert say(fake_up, "get", "pods", "-l", SELECTOR, "-o", "name") == ""
    finally:
        say(fake_up, "uncordon", fake_up.node)
    assert not is_unschedulable(fake_up)
    assert "already uncordoned" in say(fake_up, "uncordon", fake_up.node)
    assert f"node/{fake_up.node} cordoned" in say(fake_up, "cordon", fake_up.node)
    say(fake_up, "uncordon", fake_up.node)


def test_a_disruption_budget_holds_a_drain_up(fake_up: Up) -> None:
    fake_up.kubectl("apply", "-f", "-", stdin=json.dumps(manifest("kept")))
    say(fake_up, "wait", "--for=condition=Ready", "pod/kept")
    say(fake_up, "create", "pdb", "keep", f"--selector={SELECTOR}", "--min-available=1")
    counted = "jsonpath={.status.currentHealthy}/{.status.disruptionsAllowed}"
    fake_up.wait_until(
        lambda: say(fake_up, "get", "pdb", "keep", "-o", counted) == "1/0", "it is counted"
    )
    drain = ("drain", fake_up.node, *DRAIN, OURS)
    try:
        held_up = fake_up.kubectl(*drain, "--timeout=1s", check=False)
        assert held_up.returncode == 1
        assert "Cannot evict pod as it would violate the pod's disruption budget" in held_up.stderr
        assert fake_up.pod("kept")["status"]["phase"] == "Running"
        say(fake_up, "delete", "pdb", "keep")
        assert "pod/kept evicted" in say(fake_up, *drain)
    finally:
        say(fake_up, "uncordon", fake_up.node)
