"""The volume that is made for a claim of the class ``local``: a folder on one node. Pure."""

from __future__ import annotations

import msgspec

from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.storage import (
    FOLDER_FINALIZER,
    FOLDERS_AT,
    HOSTNAME,
    LOCAL_PROVISIONER,
    NODE_LABEL,
    PROVISIONED_BY,
    VolumeMode,
    mode_of,
)
from livesize.api.volume_choice import NodeFacts


class ConsumerNode(msgspec.Struct, frozen=True):
    """The node a claim's first pod is on, and where it keeps folders; empty: it does not say."""

    node: NodeFacts
    folders: str = ""


def cannot_provision(claim: Object, consumer_node: ConsumerNode) -> str:
    """Why no folder can be made for the claim there; empty where it can."""
    if mode_of(claim) != VolumeMode.FILES:
        return f"{LOCAL_PROVISIONER} makes folders: ask for volumeMode {VolumeMode.FILES.value}"
    if lookup(claim, "spec", "selector"):
        return (
            f"{LOCAL_PROVISIONER} makes volumes without labels: leave spec.selector out, or make a"
            " volume that it selects"
        )
    if not consumer_node.folders:
        return (
            f"node {consumer_node.node.name} keeps no local volumes: it has no annotation"
            f" {FOLDERS_AT}; update its agent"
        )
    return ""


def build_volume(claim: Object, storage_class: Object, consumer_node: ConsumerNode) -> Object:
    """Kept for the claim from the start; its name is its folder's."""
    name, node = f"pvc-{uid_of(claim)}", consumer_node.node
    hostname = node.labels.get(HOSTNAME, node.name)
    on_node = {"key": HOSTNAME, "operator": "In", "values": [hostname]}
    return {
        "kind": PERSISTENT_VOLUMES.kind,
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "metadata": {
            "name": name,
            "labels": {NODE_LABEL: node.name},
            "annotations": {PROVISIONED_BY: LOCAL_PROVISIONER},
            "finalizers": [FOLDER_FINALIZER],
        },
        "spec": {
            "capacity": {"storage": lookup(claim, "spec", "resources", "requests", "storage")},
            "accessModes": lookup(claim, "spec", "accessModes"),
            "claimRef": claim_reference(claim),
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy"),
            "storageClassName": name_of(storage_class),
            "volumeMode": mode_of(claim),
            "local": {"path": f"{consumer_node.folders.rstrip('/')}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    }


def claim_reference(claim: Object) -> Object:
    """How a volume says whose it is."""
    return {
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "namespace": namespace_of(claim),
        "name": name_of(claim),
        "uid": uid_of(claim),
    }
