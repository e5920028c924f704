"""Field numbers of the kinds that kubectl sends as protobuf, from Kubernetes' public API.

Each message is a table from field number to ``name: type``. A type is string, int, bool, bytes,
time, micro_time, quantity, int_or_string, fields (a JSON tree) or a message. ``*`` before it is a
list of them, ``map`` a map from text to them. ``?`` behind it says that a zero or an empty text
that was sent is meant as such; elsewhere it means that nothing was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from livesize.apiserver.http.protobuf_pods import POD_KINDS, POD_MESSAGES
from livesize.apiserver.http.protobuf_storage import STORAGE_KINDS, STORAGE_MESSAGES

Table: TypeAlias = Mapping[int, str]

_METADATA = {1: "metadata: ObjectMeta"}

MESSAGES: Mapping[str, Table] = {
    **POD_MESSAGES,
    **STORAGE_MESSAGES,
    "ObjectMeta": {
        1: "name: string",
        2: "generateName: string",
        3: "namespace: string",
        5: "uid: string",
        6: "resourceVersion: string",
        7: "generation: int",
        8: "creationTimestamp: time",
        9: "deletionTimestamp: time",
        10: "deletionGracePeriodSeconds: int?",
        11: "labels: map string",
        12: "annotations: map string",
        13: "ownerReferences: * OwnerReference",
        14: "finalizers: * string",
        17: "managedFields: * ManagedFieldsEntry",
    },
    "OwnerReference": {
        1: "kind: string",
        3: "name: string",
        4: "uid: string",
        5: "apiVersion: string",
        6: "controller: bool?",
        7: "blockOwnerDeletion: bool?",
    },
    "ManagedFieldsEntry": {
        1: "manager: string",
        2: "operation: string",
        3: "apiVersion: string",
        4: "time: time",
        6: "fieldsType: string",
        7: "fieldsV1: fields",
        8: "subresource: string",
    },
    "ObjectReference": {
        1: "kind: string",
        2: "namespace: string",
        3: "name: string",
        4: "uid: string",
        5: "apiVersion: string",
        6: "resourceVersion: string",
        7: "fieldPath: string",
    },
    "LocalObjectReference": {1: "name: string"},
    "Condition": {
        1: "type: string",
        2: "status: string",
        4: "lastTransitionTime: time",
        5: "reason: string",
        6: "message: string",
    },
    "DeleteOptions": {
        1: "gracePeriodSeconds: int?",
        2: "preconditions: Preconditions",
        3: "orphanDependents: bool?",
        4: "propagationPolicy: string?",
        5: "dryRun: * string",
    },
    "Preconditions": {1: "uid: string?", 2: "resourceVersion: string?"},
    "Namespace": {**_METADATA, 2: "spec: NamespaceSpec", 3: "status: NamespaceStatus"},
    "NamespaceSpec": {1: "finalizers: * string"},
    "NamespaceStatus": {1: "phase: string", 2: "conditions: * Condition"},
    "ConfigMap": {
        **_METADATA,
        2: "data: map string",
        3: "binaryData: map bytes",
        4: "immutable: bool?",
    },
    "Secret": {
        **_METADATA,
        2: "data: map bytes",
        3: "type: string",
        4: "stringData: map string",
        5: "immutable: bool?",
    },
    "ServiceAccount": {
        **_METADATA,
        2: "secrets: * ObjectReference",
        3: "imagePullSecrets: * LocalObjectReference",
        4: "automountServiceAccountToken: bool?",
    },
    "ResourceQuota": {**_METADATA, 2: "spec: ResourceQuotaSpec", 3: "status: ResourceQuotaStatus"},
    "ResourceQuotaSpec": {
        1: "hard: map quantity",
        2: "scopes: * string",
        3: "scopeSelector: ScopeSelector",
    },
    "ResourceQuotaStatus": {1: "hard: map quantity", 2: "used: map quantity"},
    "ScopeSelector": {1: "matchExpressions: * ScopedResourceSelectorRequirement"},
    "ScopedResourceSelectorRequirement": {
        1: "scopeName: string",
        2: "operator: string",
        3: "values: * string",
    },
    "LimitRange": {**_METADATA, 2: "spec: LimitRangeSpec"},
    "LimitRangeSpec": {1: "limits: * LimitRangeItem"},
    "LimitRangeItem": {
        1: "type: string",
        2: "max: map quantity",
        3: "min: map quantity",
        4: "default: map quantity",
        5: "defaultRequest: map quantity",
        6: "maxLimitRequestRatio: map quantity",
    },
    "PriorityClass": {
        **_METADATA,
        2: "value: int?",
        3: "globalDefault: bool",
        4: "description: string",
        5: "preemptionPolicy: string?",
    },
    "Service": {**_METADATA, 2: "spec: ServiceSpec"},
    "ServiceSpec": {
        1: "ports: * ServicePort",
        2: "selector: map string",
        3: "clusterIP: string",
        4: "type: string",
        5: "externalIPs: * string",
        7: "sessionAffinity: string",
        8: "loadBalancerIP: string",
        9: "loadBalancerSourceRanges: * string",
        10: "externalName: string",
        11: "externalTrafficPolicy: string",
        12: "healthCheckNodePort: int",
        13: "publishNotReadyAddresses: bool",
        17: "ipFamilyPolicy: string?",
        18: "clusterIPs: * string",
        19: "ipFamilies: * string",
        20: "allocateLoadBalancerNodePorts: bool?",
        21: "loadBalancerClass: string?",
        22: "internalTrafficPolicy: string?",
        23: "trafficDistribution: string?",
    },
    "ServicePort": {
        1: "name: string",
        2: "protocol: string",
        3: "port: int?",
        4: "targetPort: int_or_string",
        5: "nodePort: int",
        6: "appProtocol: string?",
    },
    "Event": {
        **_METADATA,
        2: "involvedObject: ObjectReference",
        3: "reason: string",
        4: "message: string",
        5: "source: EventSource",
        6: "firstTimestamp: time",
        7: "lastTimestamp: time",
        8: "count: int",
        9: "type: string",
        10: "eventTime: micro_time",
        11: "series: EventSeries",
        12: "action: string",
        13: "related: ObjectReference",
        14: "reportingComponent: string",
        15: "reportingInstance: string",
    },
    "EventSource": {1: "component: string", 2: "host: string"},
    "EventSeries": {1: "count: int", 2: "lastObservedTime: micro_time"},
    "Lease": {**_METADATA, 2: "spec: LeaseSpec"},
    "LeaseSpec": {
        1: "holderIdentity: string?",
        2: "leaseDurationSeconds: int?",
        3: "acquireTime: micro_time",
        4: "renewTime: micro_time",
        5: "leaseTransitions: int?",
    },
    "SelfSubjectAccessReview": {**_METADATA, 2: "spec: SelfSubjectAccessReviewSpec"},
    "SelfSubjectAccessReviewSpec": {
        1: "resourceAttributes: ResourceAttributes",
        2: "nonResourceAttributes: NonResourceAttributes",
    },
    "ResourceAttributes": {
        1: "namespace: string",
        2: "verb: string",
        3: "group: string",
        4: "version: string",
        5: "resource: string",
        6: "subresource: string",
        7: "name: string",
    },
    "NonResourceAttributes": {1: "path: string", 2: "verb: string"},
    "SelfSubjectRulesReview": {**_METADATA, 2: "spec: SelfSubjectRulesReviewSpec"},
    "SelfSubjectRulesReviewSpec": {1: "namespace: string"},
    "SelfSubjectReview": _METADATA,
}

# Kinds with their API versions: another version may have other numbers.
KINDS: Mapping[str, str] = {
    **POD_KINDS,
    **STORAGE_KINDS,
    "Namespace": "v1",
    "ConfigMap": "v1",
    "Secret": "v1",
    "ServiceAccount": "v1",
    "ResourceQuota": "v1",
    "LimitRange": "v1",
    "Service": "v1",
    "Event": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "SelfSubjectAccessReview": "authorization.k8s.io/v1",
    "SelfSubjectRulesReview": "authorization.k8s.io/v1",
    "SelfSubjectReview": "authentication.k8s.io/v1",
    "DeleteOptions": "",  # the same everywhere
}
