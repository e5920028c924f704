"""Checks that what we read has the JSON type we expect, before anybody reads it.

A shape is a type, ``[shape]`` for a list, ``{field: shape}`` for an object whose other fields are
free, or ``Map(shape)`` for an object with free names. Null is as good as absent.

Each shape is also compiled into a msgspec type, which says in microseconds that nothing is wrong;
only where something is, the shape itself is walked to say what.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object


class Map(msgspec.Struct, frozen=True):
    values: Shape


class Anything(msgspec.Struct, frozen=True):
    """A value that a later check reads with care, such as a quantity."""


Shape: TypeAlias = type | list[Any] | dict[str, Any] | Map | Anything

_QUANTITIES = Map(Anything())
_TEXTS = Map(str)
_METADATA: dict[str, Any] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": [str],
    "ownerReferences": [
        {
            "apiVersion": str,
            "kind": str,
            "name": str,
            "uid": str,
            "controller": bool,
            "blockOwnerDeletion": bool,
        }
    ],
}
_RESOURCES = {"requests": _QUANTITIES, "limits": _QUANTITIES, "resizePolicy": _TEXTS}
_SECURITY: dict[str, Any] = {
    "runAsUser": int,
    "runAsGroup": int,
    "runAsNonRoot": bool,
    "seccompProfile": {"type": str},
    "seLinuxOptions": {"type": str, "user": str, "role": str},
    "appArmorProfile": {"type": str},
    "windowsOptions": {"hostProcess": bool},
}
_FIELD_REFERENCES: dict[str, Any] = {
    "fieldRef": {"fieldPath": str},
    "resourceFieldRef": {"containerName": str, "resource": str, "divisor": Anything()},
}
_KEY_REFERENCE = {"name": str, "key": str, "optional": bool}
_OBJECT_REFERENCE = {"name": str, "optional": bool}
_HTTP_GET = {
    "path": str,
    "port": Anything(),
    "host": str,
    "scheme": str,
    "httpHeaders": [{"name": str, "value": str}],
}
_HANDLER: dict[str, Any] = {
    "exec": {"command": [str]},
    "httpGet": _HTTP_GET,
    "tcpSocket": {"port": Anything(), "host": str},
    "sleep": {"seconds": int},
}
_PROBE: dict[str, Any] = {
    **_HANDLER,
    "initialDelaySeconds": int,
    "timeoutSeconds": int,
    "periodSeconds": int,
    "successThreshold": int,
    "failureThreshold": int,
    "terminationGracePeriodSeconds": int,
}
_CONTAINER: dict[str, Any] = {
    "name": str,
    "image": str,
    "imagePullPolicy": str,
    "command": [str],
    "args": [str],
    "workingDir": str,
    "env": [
        {
            "name": str,
            "value": str,
            "valueFrom": {
                **_FIELD_REFERENCES,
                "configMapKeyRef": _KEY_REFERENCE,
                "secretKeyRef": _KEY_REFERENCE,
            },
        }
    ],
    "envFrom": [{"prefix": str, "configMapRef": _OBJECT_REFERENCE, "secretRef": _OBJECT_REFERENCE}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER},
    "ports": [{"name": str, "containerPort": int, "hostPort": int, "protocol": str}],
    "resources": _RESOURCES,
    "resourcesAllocated": _QUANTITIES,
    "resizePolicy": [_TEXTS],
    "restartPolicy": str,
    "restartPolicyRules": [
        {"action": str, "exitCodes": {"operator": str, "values": [int]}},
    ],
    "terminationMessagePath": str,
    "terminationMessagePolicy": str,
    "securityContext": {
        **_SECURITY,
        "readOnlyRootFilesystem": bool,
        "privileged": bool,
        "allowPrivilegeEscalation": bool,
        "procMount": str,
        "capabilities": {"add": [str], "drop": [str]},
    },
    "volumeMounts": [
        {"name": str, "mountPath": str, "subPath": str, "subPathExpr": str, "readOnly": bool}
    ],
}
_ITEMS = [{"key": str, "path": str, "mode": int}]
_FILE_SOURCES: dict[str, Any] = {
    "configMap": {"name": str, "items": _ITEMS, "defaultMode": int, "optional": bool},
    "secret": {
        "name": str,
        "secretName": str,
        "items": _ITEMS,
        "defaultMode": int,
        "optional": bool,
    },
    "downwardAPI": {"items": [{"path": str, "mode": int, **_FIELD_REFERENCES}], "defaultMode": int},
}
_VOLUME: dict[str, Any] = {
    "name": str,
    "emptyDir": {"medium": str, "sizeLimit": Anything()},
    "hostPath": {"path": str, "type": str},
    "persistentVolumeClaim": {"claimName": str, "readOnly": bool},
    "projected": {"sources": [_FILE_SOURCES], "defaultMode": int},
    **_FILE_SOURCES,
}
_CONDITIONS = [{"type": str, "status": str, "reason": str, "message": str}]
_CONTAINER_STATUS = {
    "name": str,
    "ready": bool,
    "restartCount": int,
    "state": Map({}),
    "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES},
    "allocatedResources": _QUANTITIES,
}
_VIRTUAL_MACHINE: dict[str, Any] = {
    "kernel": {"image": str, "initrd": str, "commandLine": str},
    "disk": {"image": str},
    "cpu": {"max": Anything()},
    "memory": {"max": Anything(), "boot": Anything()},
    "resources": _RESOURCES,
    "resourcesAllocated": _QUANTITIES,
    "resizePolicy": [_TEXTS],
}
_VIRTUAL_MACHINE_STATUS: dict[str, Any] = {
    "state": str,
    "reason": str,
    "message": str,
    "restartCount": int,
    "lastState": Map({}),
    "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES},
    "allocatedResources": _QUANTITIES,
    "guest": {"vcpusPlugged": int, "vcpusOnline": int, "agent": bool, "bootId": str},
    "devices": [{}],
}
_REQUIREMENTS = [{"key": str, "operator": str, "values": [str]}]
_NODE_TERMS = [{"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}]
_POD: dict[str, Any] = {
    "spec": {
        "containers": [_CONTAINER],
        "virtualMachine": _VIRTUAL_MACHINE,
        "initContainers": [_CONTAINER],
        "ephemeralContainers": [_CONTAINER],
        "nodeName": str,
        "nodeSelector": _TEXTS,
        "restartPolicy": str,
        "terminationGracePeriodSeconds": int,
        "activeDeadlineSeconds": int,
        "schedulerName": str,
        "dnsPolicy": str,
        "hostname": str,
        "hostNetwork": bool,
        "hostPID": bool,
        "hostIPC": bool,
        "securityContext": {
            **_SECURITY,
            "fsGroup": int,
            "supplementalGroups": [int],
            "sysctls": [{"name": str, "value": str}],
        },
        "os": {"name": str},
        "hostAliases": [{"ip": str, "hostnames": [str]}],
        "readinessGates": [{"conditionType": str}],
        "serviceAccount": str,
        "serviceAccountName": str,
        "overhead": _QUANTITIES,
        "priority": int,
        "priorityClassName": str,
        "preemptionPolicy": str,
        "resources": _RESOURCES,
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _NODE_TERMS}
            }
        },
        "volumes": [_VOLUME],
    },
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "qosClass": str,
        "observedGeneration": int,
        "startTime": str,
        "conditions": _CONDITIONS,
        "containerStatuses": [_CONTAINER_STATUS],
        "initContainerStatuses": [_CONTAINER_STATUS],
        "virtualMachineStatus": _VIRTUAL_MACHINE_STATUS,
    },
}
_NODE: dict[str, Any] = {
    "spec": {"unschedulable": bool, "taints": [{"key": str, "value": str, "effect": str}]},
    "status": {
        "capacity": _QUANTITIES,
        "allocatable": _QUANTITIES,
        "conditions": _CONDITIONS,
        "addresses": [{"type": str, "address": str}],
        "nodeInfo": _TEXTS,
    },
}
_LEASE: dict[str, Any] = {
    "spec": {
        "holderIdentity": str,
        "leaseDurationSeconds": int,
        "leaseTransitions": int,
        "acquireTime": str,
        "renewTime": str,
    }
}
_REFERENCE = {"kind": str, "namespace": str, "name": str, "uid": str, "fieldPath": str}
_EVENT: dict[str, Any] = {
    "involvedObject": _REFERENCE,
    "reason": str,
    "message": str,
    "type": str,
    "count": int,
    "firstTimestamp": str,
    "lastTimestamp": str,
    "eventTime": str,
    "source": {"component": str, "host": str},
}
_QUOTA: dict[str, Any] = {
    "spec": {
        "hard": _QUANTITIES,
        "scopes": [str],
        "scopeSelector": {
            "matchExpressions": [{"scopeName": str, "operator": str, "values": [str]}]
        },
    },
    "status": {"hard": _QUANTITIES, "used": _QUANTITIES},
}
_LIMIT_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_LIMIT_RANGE: dict[str, Any] = {
    "spec": {"limits": [{"type": str, **dict.fromkeys(_LIMIT_SIDES, _QUANTITIES)}]}
}
_SERVICE: dict[str, Any] = {
    "spec": {
        "type": str,
        "clusterIP": str,
        "externalName": str,
        "selector": _TEXTS,
        "ports": [{"name": str, "protocol": str, "port": int, "nodePort": int}],
    },
    "status": {},
}
_PRIORITY_CLASS: dict[str, Any] = {
    "value": int,
    "globalDefault": bool,
    "description": str,
    "preemptionPolicy": str,
}
_CLAIM: dict[str, Any] = {
    "spec": {
        "accessModes": [str],
        "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES},
        "selector": {"matchLabels": _TEXTS, "matchExpressions": _REQUIREMENTS},
        "storageClassName": str,
        "volumeMode": str,
        "volumeName": str,
    },
    "status": {"phase": str, "accessModes": [str], "capacity": _QUANTITIES},
}
_PERSISTENT_VOLUME: dict[str, Any] = {
    "spec": {
        "accessModes": [str],
        "capacity": _QUANTITIES,
        "claimRef": {"kind": str, "namespace": str, "name": str, "uid": str},
        "hostPath": {"path": str, "type": str},
        "local": {"path": str, "fsType": str},
        "nodeAffinity": {"required": {"nodeSelectorTerms": _NODE_TERMS}},
        "persistentVolumeReclaimPolicy": str,
        "storageClassName": str,
        "volumeMode": str,
    },
    "status": {"phase": str, "message": str, "reason": str},
}
_STORAGE_CLASS: dict[str, Any] = {
    "provisioner": str,
    "parameters": _TEXTS,
    "reclaimPolicy": str,
    "volumeBindingMode": str,
    "allowVolumeExpansion": bool,
}
_ANY_OBJECT: dict[str, Any] = {"spec": {}, "status": {}}
_SHAPES: dict[str, dict[str, Any]] = {
    "pods": _POD,
    "nodes": _NODE,
    "leases": _LEASE,
    "events": _EVENT,
    "resourcequotas": _QUOTA,
    "limitranges": _LIMIT_RANGE,
    "serviceaccounts": {"automountServiceAccountToken": bool, "secrets": [{}]},
    "configmaps": {"data": _TEXTS, "binaryData": _TEXTS, "immutable": bool},
    "secrets": {"data": _TEXTS, "stringData": _TEXTS, "type": str, "immutable": bool},
    "services": _SERVICE,
    "poddisruptionbudgets": {"spec": {"selector": {}}, "status": {}},
    "priorityclasses": _PRIORITY_CLASS,
    "persistentvolumeclaims": _CLAIM,
    "persistentvolumes": _PERSISTENT_VOLUME,
    "storageclasses": _STORAGE_CLASS,
}

_WORDS: dict[type, str] = {
    str: "must be a string",
    int: "must be an integer",
    bool: "must be true or false",
}


def check_shape(resource: Resource, obj: Object) -> list[FieldError]:
    """Every field we know that has the wrong JSON type."""
    try:
        msgspec.convert(obj, _compiled(resource.plural))
    except msgspec.ValidationError:
        return _check(obj, _shape(resource.plural), "")
    return []


def _shape(plural: str) -> dict[str, Any]:
    return {"metadata": _METADATA, **_SHAPES.get(plural, _ANY_OBJECT)}


@functools.cache
def _compiled(plural: str) -> Any:
    return _compile(_shape(plural))


def _compile(shape: Shape) -> Any:
    """A type that msgspec converts to exactly what ``_check`` has nothing to say about."""
    match shape:
        case dict() if not shape:
            return dict[Any, Any]
        case dict():
            fields = [(name, _compile(inner) | None, None) for name, inner in shape.items()]
            return msgspec.defstruct("Shape", fields)
        case [items]:
            return list[_compile(items)]  # type: ignore[misc]
        case Map(values):
            return dict[str, _compile(values) | None]  # type: ignore[misc]
        case type():
            return shape
        case _:
            return Any


def _check(value: Any, shape: Shape, field: str) -> list[FieldError]:
    match shape:
        case dict():
            return _check_object(value, shape, field)
        case [items]:
            return _check_list(value, items, field)
        case Map(values):
            return _check_map(value, values, field)
        case type():
            return [] if type(value) is shape else [_wrong(field, _WORDS[shape], value)]
        case _:
            return []


def _check_object(value: Any, shape: dict[str, Any], field: str) -> list[FieldError]:
    if not isinstance(value, dict):
        return [_wrong(field, "must be an object", value)]
    errors = []
    for name, inner in shape.items():
        if value.get(name) is not None:
            errors += _check(value[name], inner, f"{field}.{name}" if field else name)
    return errors


def _check_list(value: Any, items: Shape, field: str) -> list[FieldError]:
    if not isinstance(value, list):
        return [_wrong(field, "must be a list", value)]
    errors = []
    for index, item in enumerate(value):
        errors += _check(item, items, f"{field}[{index}]")
    return errors


def _check_map(value: Any, values: Shape, field: str) -> list[FieldError]:
    if not isinstance(value, dict):
        return [_wrong(field, "must be an object", value)]
    errors = []
    for name, item in value.items():
        if item is not None:
            errors += _check(item, values, f"{field}[{name}]")
    return errors


def _wrong(field: str, detail: str, value: Any) -> FieldError:
    shown = value if isinstance(value, str | int | float | bool) else None
    return FieldError(FieldErrorKind.TYPE_INVALID, field, detail, shown)
