"""The pods that are measured: as a node would have them, with all of their status."""

from __future__ import annotations

from livesize.api.objects import Object

NAMESPACE = "default"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES_PATH = "/api/v1/nodes"
STRATEGIC = "application/strategic-merge-patch+json"
SMALL: Object = {"cpu": "200m", "memory": "64Mi"}
TINY: Object = {"cpu": "20m", "memory": "16Mi"}
LARGE: Object = {"cpu": "400m", "memory": "128Mi"}


def manifest(name: str, *, image: str, node: str = "", size: Object = SMALL) -> Object:
    """One container that sleeps. ``node``: bound to it from the beginning."""
    container = {
        "name": "app",
        "image": image,
        "command": ["/bin/sleep", "1000000"],
        "env": [{"name": "MODE", "value": "bench"}, {"name": "LEVEL", "value": "3"}],
        "resources": {"requests": size, "limits": size},
    }
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": spec,
    }


def node_manifest(name: str) -> Object:
    amounts = {"cpu": "64", "memory": "256Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def resize_patch(amounts: Object) -> Object:
    resources = {"requests": amounts, "limits": amounts}
    return {"spec": {"containers": [{"name": "app", "resources": resources}]}}


def running_status() -> Object:
    """What a node writes about a pod that runs."""
    began = "2026-01-01T00:00:00Z"
    names = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    container = {
        "name": "app",
        "image": "localhost/bench:1",
        "imageID": f"sha256:{'1' * 64}",
        "containerID": f"process://{'2' * 64}",
        "restartCount": 0,
        "ready": True,
        "started": True,
        "state": {"running": {"startedAt": began}},
        "lastState": {},
        "resources": {"requests": SMALL, "limits": SMALL},
    }
    return {
        "phase": "Running",
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": began} for name in names
        ],
        "containerStatuses": [container],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": began,
        "observedGeneration": 1,
    }
