"""Namespaces: what the objects of users live in."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    at,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.roles import ALL, COLLECT, READ, Role
from livesize.api.schema.fields import Message, Type, list_of, object_of, scalar, string, strings
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.names import DnsRule

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, "namespace", ("ns",))


class NamespaceSpec(Message):
    finalizers = strings(1)


class NamespaceCondition(Message):
    type = string(1)
    status = string(2)
    lastTransitionTime = scalar(Type.TIME, 4)
    reason = string(5)
    message = string(6)


class NamespaceStatus(Message):
    phase = string(1)
    conditions = list_of(NamespaceCondition, 2, key="type")


class Namespace(TypedObject):
    spec = object_of(NamespaceSpec, 2)
    status = object_of(NamespaceStatus, 3)


SECURITY_LEVELS = ("privileged", "baseline", "restricted")


SECURITY_LABELS = tuple(
    f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")
)


def default_namespace(namespace: Object) -> Object:
    metadata, status = namespace.get("metadata", {}), namespace.get("status", {})
    if not isinstance(metadata, dict) or not isinstance(status, dict):
        return namespace
    labels, name = metadata.get("labels", {}), metadata.get("name")
    if isinstance(labels, dict) and isinstance(name, str) and name:
        metadata = {**metadata, "labels": {**labels, "kubernetes.io/metadata.name": name}}
    return {**namespace, "metadata": metadata, "status": {"phase": "Active", **status}}


def validate_namespace(namespace: Object) -> list[FieldError]:
    errors = []
    for label in SECURITY_LABELS:
        level = lookup(namespace, "metadata", "labels", label)
        if level is not None and level not in SECURITY_LEVELS:
            detail = f"must be one of {', '.join(SECURITY_LEVELS)}"
            field = f"metadata.labels[{label}]"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, level))
    return errors


NAMESPACE = Kind(
    NAMESPACES,
    shape=Namespace,
    defaults=default_namespace,
    validate=validate_namespace,
    name_rule=DnsRule.LABEL,
    roles={
        Role.VIEWER: {"": READ},
        Role.EDITOR: {"": ALL},
        Role.SCHEDULER: {"": READ},
        Role.CONTROLLER: {"": COLLECT},
        Role.APISERVER: {"": READ},
    },
    status=StatusWrites.SUBRESOURCE,
    selectable_fields=("status.phase",),
    columns=(NAME, Column("Status", at("status", "phase", default="Active")), AGE),
)
