"""Claims, volumes and classes as the API server stores them, for tests."""

from __future__ import annotations

from typing import Any

from livesize.api.defaults import default_object
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object
from livesize.api.storage import CLAIM_PROTECTION, LOCAL_PROVISIONER, VOLUME_PROTECTION


def claim(name: str = "data", size: str = "1Gi", class_name: str = "local", **spec: Any) -> Object:
    return default_object(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "finalizers": [CLAIM_PROTECTION],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                "storageClassName": class_name,
                **spec,
            },
        },
    )


def volume(name: str = "disk", size: str = "1Gi", class_name: str = "local", **spec: Any) -> Object:
    return default_object(
        PERSISTENT_VOLUMES,
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "finalizers": [VOLUME_PROTECTION]},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": size},
                "storageClassName": class_name,
                "hostPath": {"path": f"/srv/{name}"},
                **spec,
            },
        },
    )


def storage_class(name: str = "local", **fields: Any) -> Object:
    return default_object(
        STORAGE_CLASSES,
        {
            "metadata": {"name": name},
            "provisioner": LOCAL_PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
            **fields,
        },
    )


def on_node(*names: str) -> Object:
    """The nodeAffinity of a volume that is there only."""
    needed = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}}
