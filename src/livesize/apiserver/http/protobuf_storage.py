"""Field numbers of claims, volumes and classes of storage, from Kubernetes' public API; as in
protobuf_tables.py."""

from __future__ import annotations

from collections.abc import Mapping

_METADATA = {1: "metadata: ObjectMeta"}

STORAGE_MESSAGES: Mapping[str, Mapping[int, str]] = {
    "PersistentVolumeClaim": {
        **_METADATA,
        2: "spec: PersistentVolumeClaimSpec",
        3: "status: PersistentVolumeClaimStatus",
    },
    "PersistentVolumeClaimSpec": {
        1: "accessModes: * string",
        2: "resources: VolumeResourceRequirements",
        3: "volumeName: string",
        4: "selector: LabelSelector?",
        5: "storageClassName: string?",
        6: "volumeMode: string?",
        7: "dataSource: TypedLocalObjectReference",
        8: "dataSourceRef: TypedObjectReference",
        9: "volumeAttributesClassName: string?",
    },
    "TypedLocalObjectReference": {1: "apiGroup: string?", 2: "kind: string", 3: "name: string"},
    "TypedObjectReference": {
        1: "apiGroup: string?",
        2: "kind: string",
        3: "name: string",
        4: "namespace: string?",
    },
    "VolumeResourceRequirements": {1: "limits: map quantity", 2: "requests: map quantity"},
    "PersistentVolumeClaimStatus": {
        1: "phase: string",
        2: "accessModes: * string",
        3: "capacity: map quantity",
        4: "conditions: * Condition",
    },
    "PersistentVolume": {
        **_METADATA,
        2: "spec: PersistentVolumeSpec",
        3: "status: PersistentVolumeStatus",
    },
    "PersistentVolumeSpec": {
        1: "capacity: map quantity",
        2: "...: PersistentVolumeSource",
        3: "accessModes: * string",
        4: "claimRef: ObjectReference",
        5: "persistentVolumeReclaimPolicy: string",
        6: "storageClassName: string",
        7: "mountOptions: * string",
        8: "volumeMode: string?",
        9: "nodeAffinity: VolumeNodeAffinity",
        10: "volumeAttributesClassName: string?",
    },
    "PersistentVolumeSource": {3: "hostPath: HostPathVolumeSource", 20: "local: LocalVolumeSource"},
    "LocalVolumeSource": {1: "path: string", 2: "fsType: string?"},
    "VolumeNodeAffinity": {1: "required: NodeSelector"},
    "PersistentVolumeStatus": {
        1: "phase: string",
        2: "message: string",
        3: "reason: string",
        4: "lastPhaseTransitionTime: time",
    },
    "StorageClass": {
        **_METADATA,
        2: "provisioner: string",
        3: "parameters: map string",
        4: "reclaimPolicy: string?",
        5: "mountOptions: * string",
        6: "allowVolumeExpansion: bool?",
        7: "volumeBindingMode: string?",
        8: "allowedTopologies: * TopologySelectorTerm",
    },
    "TopologySelectorTerm": {1: "matchLabelExpressions: * TopologySelectorRequirement"},
    "TopologySelectorRequirement": {1: "key: string", 2: "values: * string"},
}

STORAGE_KINDS: Mapping[str, str] = {
    "PersistentVolumeClaim": "v1",
    "PersistentVolume": "v1",
    "StorageClass": "storage.k8s.io/v1",
}
STORAGE_STRICT = frozenset({"PersistentVolumeSource"})
"""What is not in these tables is refused, and not left out: it would be another volume."""
