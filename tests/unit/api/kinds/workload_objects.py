"""Workloads as clients send them."""

from __future__ import annotations

from typing import Any

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object

LABELS = {"app": "web"}


def template(**spec: Any) -> Object:
    container = {"name": "app", "image": "busybox:1"}
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [container], **spec}}


def workload_spec(**fields: Any) -> Object:
    return {"selector": {"matchLabels": LABELS}, "template": template(), **fields}


def workload(resource: Resource, name: str = "web", **fields: Any) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": workload_spec(**fields),
    }


def claim_template(name: str = "data", **spec: Any) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    return {"metadata": {"name": name}, "spec": {**asked, **spec}}
