"""Config maps: files and variables for pods."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    entries,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object
from livesize.api.quota_rule import counted_as
from livesize.api.roles import EDITED, READ, Role
from livesize.api.schema.fields import Type, boolean, map_of, string_map
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.entries import (
    validate_encoded,
    validate_frozen,
    validate_keys,
    validate_size,
)

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, "configmap", ("cm",))


class ConfigMap(TypedObject):
    data = string_map(2)
    binaryData = map_of(Type.BYTES, 3)
    immutable = boolean(4, keeps_zero=True)


def validate_config_map(config: Object) -> list[FieldError]:
    texts, binaries = config.get("data") or {}, config.get("binaryData") or {}
    errors = [*validate_keys(texts, "data"), *validate_keys(binaries, "binaryData")]
    errors += validate_encoded(binaries, "binaryData")
    for key in sorted(texts.keys() & binaries.keys()):
        detail = "duplicate of key present in binaryData"
        errors.append(FieldError(FieldErrorKind.INVALID, f"data[{key}]", detail, key))
    size_bytes = sum(len(word.encode(errors="surrogatepass")) for word in texts.values())
    size_bytes += sum(len(word) * 3 // 4 for word in binaries.values())
    return errors + validate_size(size_bytes, "")


def validate_config_map_update(new: Object, old: Object) -> list[FieldError]:
    return [*validate_config_map(new), *validate_frozen(new, old, ("data", "binaryData"))]


CONFIG_MAP = Kind(
    CONFIG_MAPS,
    shape=ConfigMap,
    validate=validate_config_map,
    validate_update=validate_config_map_update,
    quota=counted_as("configmaps"),
    node_scope=NodeScope.USED_BY_PODS,
    roles={**EDITED, Role.NODE: {"": READ}},
    columns=(NAME, Column("Data", entries("data", "binaryData"), "integer"), AGE),
)
