"""JSON schemas of the kinds, made from the shapes in livesize.api.types.

One set of definitions serves three ends: the OpenAPI documents, the type check of everything that
comes in (compiled once per kind), and the list of unknown fields for fieldValidation=Strict.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

import jsonschema_rs
import msgspec

from livesize.api import types
from livesize.api.kept import kept
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, unshared
from livesize.api.quantity import MAXIMUM_CHARACTERS, QuantityError, parse_quantity
from livesize.apiserver.descriptions import described

QUANTITY_FORMAT = "quantity"
META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1"
_REFERENCE = re.compile(r"#/components/schemas/([\w.]+)")
_META = frozenset({"ObjectMeta", "OwnerReference"})

# Fields of today's Kubernetes that we keep without looking inside.
_ALSO_KNOWN: Mapping[str, tuple[str, ...]] = {
    "PodSpec": (
        "affinity", "automountServiceAccountToken", "dnsConfig", "hostAliases", "hostIPC",
        "hostPID", "hostUsers", "imagePullSecrets", "os", "preemptionPolicy", "readinessGates",
        "resourceClaims", "resources", "runtimeClassName", "schedulingGates",
        "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace",
        "subdomain", "topologySpreadConstraints",
    ),
    "Container": (
        "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "stdin",
        "stdinOnce", "targetContainerName", "tty", "volumeDevices", "volumeMounts",
    ),
    "ContainerResizePolicy": ("name", "policy"),
    "ContainerPort": ("hostIP",),
    "ContainerStatus": (
        "allocatedResourcesStatus", "stopSignal", "user", "volumeMounts",
    ),
    "EnvVar": ("valueFrom",),
    "ResourceRequirements": ("claims",),
    "ObjectMeta": ("selfLink",),
    "PodStatus": (
        "allocatedResources", "ephemeralContainerStatuses", "extendedResourceClaimStatus",
        "hostIPs", "nominatedNodeName", "resize", "resourceClaimStatuses", "resources",
    ),
    "NodeStatus": (
        "config", "declaredFeatures", "features", "phase", "runtimeHandlers", "volumesAttached",
        "volumesInUse",
    ),
    "NodeSystemInfo": ("kubeProxyVersion", "swap"),
    "Event": ("action", "related", "series"),
    "ServiceSpec": (
        "allocateLoadBalancerNodePorts", "externalTrafficPolicy", "healthCheckNodePort",
        "loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges",
        "publishNotReadyAddresses", "sessionAffinityConfig", "trafficDistribution",
    ),
    "PersistentVolumeClaimSpec": ("dataSource", "dataSourceRef", "volumeAttributesClassName"),
    "PersistentVolumeClaimStatus": (
        "allocatedResourceStatuses", "allocatedResources", "currentVolumeAttributesClassName",
        "modifyVolumeStatus",
    ),
    "PersistentVolumeSpec": ("csi", "fc", "iscsi", "nfs", "volumeAttributesClassName"),
}  # fmt: skip


class TypeProblem(msgspec.Struct, frozen=True):
    """One value of the wrong type: where, and what is wrong with it."""

    field: str
    message: str


def definitions() -> Object:
    """Every shape by its full name, as OpenAPI components."""
    return dict(_definitions())


def full_name(shape: str) -> str:
    return f"{META_PREFIX}.{shape}" if shape in _META else f"io.k8s.api.core.v1.{shape}"


def kind_name(resource: Resource) -> str:
    return full_name(resource.kind)


def type_problems(kind: str, obj: Object, known: Object | None = None) -> list[TypeProblem]:
    """What in ``obj`` has the wrong type; empty for kinds whose shape is not known. ``known`` has
    no problems, so that what ``obj`` shares with it need not be looked at again."""
    validator = _validator(kind)
    # Shapes require nothing: the rest has a problem exactly if ``obj`` has one.
    if validator is None or validator.is_valid(unshared(obj, known or {})):
        return []
    return [
        TypeProblem(dotted(error.instance_path), _problem_message(error))
        for error in validator.iter_errors(obj)
    ]


def unknown_fields(kind: str, obj: Object) -> list[str]:
    """Paths of fields no shape has."""
    shape = getattr(types, kind, None)
    return list(_unknown(shape, obj, "")) if shape is not None else []


def prune_nulls(tree: Any) -> Any:
    """Without keys whose value is null, as Kubernetes decodes; the same object if it has none."""
    if isinstance(tree, dict):
        pruned = {key: prune_nulls(item) for key, item in tree.items() if item is not None}
        unchanged = len(pruned) == len(tree) and all(pruned[key] is tree[key] for key in pruned)
        return tree if unchanged else pruned
    if isinstance(tree, list):
        items = [prune_nulls(item) for item in tree]
        unchanged = all(new is old for new, old in zip(items, tree, strict=True))
        return tree if unchanged else items
    return tree


def dotted(path: list[str | int]) -> str:
    """``spec.containers[0].name``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _problem_message(error: jsonschema_rs.ValidationError) -> str:
    value = error.instance
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            parse_quantity(value)
        except QuantityError as wrong:
            if "quantity" in str(error.message):
                return str(wrong)
    return str(error.message)


@functools.cache
def _validator(kind: str) -> jsonschema_rs.Validator | None:
    if getattr(types, kind, None) is None:
        return None
    schema = {
        "$ref": f"#/components/schemas/{full_name(kind)}",
        # Only what it needs: all of them for each kind would be megabytes.
        "components": {"schemas": _needed(full_name(kind))},
    }
    return jsonschema_rs.validator_for(
        schema, formats={QUANTITY_FORMAT: _is_quantity}, validate_formats=True
    )


def _needed(name: str) -> Object:
    """A definition and all that it refers to."""
    known = dict(_definitions(for_checking=True))
    needed: Object = {}
    left = [name]
    while left:
        one = left.pop()
        if one not in needed:
            needed[one] = known[one]
            left += _REFERENCE.findall(str(known[one]))
    return needed


@kept(4096, longest=MAXIMUM_CHARACTERS)
def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _definitions(*, for_checking: bool = False) -> Iterator[tuple[str, Object]]:
    for name, shape in vars(types).items():
        if is_typeddict(shape):
            yield full_name(name), _shape_schema(name, shape, for_checking=for_checking)


def _shape_schema(name: str, shape: Any, *, for_checking: bool) -> Object:
    properties: Object = {
        field: _schema(hint, for_checking=for_checking)
        for field, hint in typing.get_type_hints(shape).items()
    }
    if not for_checking:
        for field in _ALSO_KNOWN.get(name, ()):
            properties[field] = {"x-kubernetes-preserve-unknown-fields": True}
        properties = {field: _described(name, field, one) for field, one in properties.items()}
    schema: Object = {"type": "object", "properties": properties}
    if shape.__doc__ and not for_checking:
        schema["description"] = shape.__doc__.strip()
    return schema


def _described(shape: str, field: str, schema: Object) -> Object:
    text = described(shape, field)
    if not text:
        return schema
    # Beside a reference nothing else counts, so it is wrapped.
    return (
        {"allOf": [schema], "description": text}
        if "$ref" in schema
        else {**schema, "description": text}
    )


_PLAIN: Mapping[Any, Object] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    Any: {},
}


def _schema(hint: Any, *, for_checking: bool) -> Object:
    if is_typeddict(hint):
        return {"$ref": f"#/components/schemas/{full_name(hint.__name__)}"}
    if hint in _PLAIN:
        plain = dict(_PLAIN[hint])
        if for_checking:
            plain.pop("format", None)
        return plain
    return _composed(get_origin(hint), get_args(hint), for_checking=for_checking)


def _composed(origin: Any, arguments: tuple[Any, ...], *, for_checking: bool) -> Object:
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], for_checking=for_checking)}
    if origin is dict:
        inner = _schema(arguments[1], for_checking=for_checking)
        return {"type": "object", "additionalProperties": inner or True}
    if origin is Literal:
        # What is not supported is a matter of validation (422), not of types (400).
        return {"type": "string"} if for_checking else {"type": "string", "enum": list(arguments)}
    assert origin in (Union, UnionType), f"no schema for {origin} of {arguments}"
    if for_checking:
        return {"type": ["string", "number"], "format": QUANTITY_FORMAT}
    return {"oneOf": [{"type": "string"}, {"type": "number"}]}


def _unknown(hint: Any, value: Any, path: str) -> Iterator[str]:
    if is_typeddict(hint) and isinstance(value, dict):
        hints = typing.get_type_hints(hint)
        also = _ALSO_KNOWN.get(hint.__name__, ())
        for field, item in value.items():
            where = f"{path}.{field}" if path else field
            if field in hints:
                yield from _unknown(hints[field], item, where)
            elif field not in also:
                yield where
    elif get_origin(hint) is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(get_args(hint)[0], item, f"{path}[{index}]")
