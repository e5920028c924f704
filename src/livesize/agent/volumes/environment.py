"""The variables of a container: given, taken from ConfigMaps and Secrets, or of the pod itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import msgspec

from livesize.agent.volumes.fields import field_value, resource_value
from livesize.agent.volumes.sources import ContainerConfigError, Sources, require
from livesize.api.objects import Object, lookup

CONFIG_MAPS, SECRETS = "configmaps", "secrets"
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class ReferenceContext(msgspec.Struct, frozen=True):
    """Everything outside a container's own definition that it may refer to. ``sizes``: allocated,
    by container; ``node``: the node's allocatable cpu and memory; ``folders``: where it keeps the
    volumes of claims."""

    pod: Object
    sources: Sources
    sizes: Mapping[str, Object]
    node: Object
    folders: str = ""


def environment(container: Object, references: ReferenceContext) -> tuple[tuple[str, str], ...]:
    """Variables in order, each may use those before it; env outweighs envFrom."""
    known: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix") or ""
        for key, value in _all_of(source, references.sources).items():
            if _NAME.fullmatch(prefix + key):
                known[prefix + key] = value
    for variable in container.get("env") or []:
        found = _value(variable, container["name"], known, references)
        if found is not None:
            known[variable["name"]] = found
    return tuple(known.items())


def expanded(texts: list[str] | None, known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(text, known) for text in texts or ())


def expand(text: str, known: Mapping[str, str]) -> str:
    """$(NAME) becomes the variable, $$ one dollar; an unknown name stays as it is written."""

    def replace(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else known.get(name, found.group(0))

    return _REFERENCE.sub(replace, text)


def contents(obj: Object, plural: str) -> dict[str, bytes]:
    """What a ConfigMap or Secret holds, by key."""
    if plural == SECRETS:
        held = obj.get("data") or {}
        return {key: base64.b64decode(text) for key, text in held.items()}
    plain = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
    binary = obj.get("binaryData") or {}
    return plain | {key: base64.b64decode(text) for key, text in binary.items()}


def _all_of(source: Object, sources: Sources) -> dict[str, str]:
    for field, plural in (("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS)):
        reference = source.get(field)
        if reference:
            optional = bool(reference.get("optional"))
            obj = require(sources, plural, reference.get("name", ""), optional=optional)
            held = {} if obj is None else contents(obj, plural)
            return {key: held[key].decode(errors="replace") for key in sorted(held)}
    return {}


def _value(
    variable: Object, container: str, known: Mapping[str, str], references: ReferenceContext
) -> str | None:
    """None: it may be missing, and is."""
    source = variable.get("valueFrom")
    if not source:
        return expand(str(variable.get("value") or ""), known)
    if source.get("fieldRef"):
        return field_value(references.pod, lookup(source, "fieldRef", "fieldPath", default=""))
    if source.get("resourceFieldRef"):
        return own_resource(source["resourceFieldRef"], container, references)
    for field, plural in (("configMapKeyRef", CONFIG_MAPS), ("secretKeyRef", SECRETS)):
        if source.get(field):
            return _key_value(source[field], plural, references.sources)
    return ""


def own_resource(reference: Object, container: str, references: ReferenceContext) -> str:
    name = reference.get("containerName") or container
    size = references.sizes.get(name)
    if size is None:
        raise ContainerConfigError(f"resourceFieldRef: the pod has no container {name!r}")
    divisor = str(reference.get("divisor") or "")
    return resource_value(size, reference.get("resource", ""), divisor, references.node)


def _key_value(reference: Object, plural: str, sources: Sources) -> str | None:
    name, key = reference.get("name", ""), reference.get("key", "")
    optional = bool(reference.get("optional"))
    obj = require(sources, plural, name, optional=optional)
    held = {} if obj is None else contents(obj, plural)
    if key in held:
        return held[key].decode(errors="replace")
    if optional:
        return None
    raise ContainerConfigError(f"couldn't find key {key} in {plural[:-1]} {name}: add it")
