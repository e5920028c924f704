"""Workloads and their pods, as a server answers them."""

from __future__ import annotations

from typing import Any

from livesize.api.objects import Object
from livesize.api.workload_resize import Hold, held

UID = "w1"


def hold_note(hold: Hold) -> Object:
    """The annotation of a workload that is held."""
    note: Object = held(stateful_set(), hold)["metadata"]["annotations"]
    return note


def size(cpu: str, memory: str = "64Mi") -> Object:
    return {"cpu": cpu, "memory": memory}


def resources(cpu: str, memory: str = "64Mi") -> Object:
    return {"requests": size(cpu, memory), "limits": size(cpu, memory)}


def stateful_set(
    cpu: str = "1", *, replicas: int = 2, annotations: Object | None = None, **spec: Any
) -> Object:
    container = {"name": "app", "resources": resources(cpu)}
    metadata = {
        "name": "db",
        "namespace": "default",
        "uid": UID,
        "generation": 2,
        "resourceVersion": "7",
        "annotations": annotations or {},
    }
    return {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [container]},
            },
            **spec,
        },
        "status": {"observedGeneration": 2, "readyReplicas": replicas},
    }


def pod(
    name: str,
    desired: str = "1",
    actual: str | None = None,
    *,
    conditions: list[Object] | None = None,
    uid: str = "",
    restarts: int = 0,
) -> Object:
    status = {
        "name": "app",
        "state": {"running": {}},
        "restartCount": restarts,
        "allocatedResources": size(actual or desired),
        "resources": resources(actual or desired),
    }
    owner = {"kind": "StatefulSet", "name": "db", "uid": UID, "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "generation": 2,
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "app", "resources": resources(desired)}],
        },
        "status": {
            "phase": "Running",
            "observedGeneration": 2,
            "containerStatuses": [status],
            "conditions": conditions or [],
        },
    }


def pending(reason: str, message: str) -> list[Object]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason, "message": message}]
