"""Secrets: files, variables and credentials for pods that not everyone may read."""

from __future__ import annotations

import base64

from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    at,
    entries,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object
from livesize.api.quota_rule import counted_as
from livesize.api.roles import ALL, COLLECT, READ, Role
from livesize.api.schema.fields import Type, boolean, map_of, string, string_map
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.entries import (
    validate_encoded,
    validate_frozen,
    validate_keys,
    validate_size,
)

SECRETS = Resource("", "v1", "secrets", "Secret", True, "secret")


class Secret(TypedObject):
    data = map_of(Type.BYTES, 2)
    type = string(3)
    stringData = string_map(4, description="Plain texts, written into data.")
    immutable = boolean(5, keeps_zero=True)


def default_secret(secret: Object) -> Object:
    filled = {"type": "Opaque", **secret}
    words, known = secret.get("stringData"), secret.get("data", {})
    if not isinstance(words, dict) or not isinstance(known, dict):
        return filled
    if not all(isinstance(word, str) for word in words.values()):
        return filled
    del filled["stringData"]
    encoded = {name: _encode(word) for name, word in words.items()}
    return {**filled, "data": {**known, **encoded}}


def _encode(word: str) -> str:
    return base64.b64encode(word.encode(errors="surrogatepass")).decode()


def validate_secret(secret: Object) -> list[FieldError]:
    kept = secret.get("data") or {}
    errors = [*validate_keys(kept, "data"), *validate_encoded(kept, "data")]
    return errors + validate_size(sum(len(word) * 3 // 4 for word in kept.values()), "data")


def validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_secret(new)
    if new.get("type") != old.get("type"):
        kind, detail = FieldErrorKind.INVALID, "field is immutable"
        errors.append(FieldError(kind, "type", detail, new.get("type")))
    return errors + validate_frozen(new, old, ("data",))


SECRET = Kind(
    SECRETS,
    shape=Secret,
    defaults=default_secret,
    validate=validate_secret,
    validate_update=validate_secret_update,
    quota=counted_as("secrets"),
    node_scope=NodeScope.USED_BY_PODS,
    roles={Role.EDITOR: {"": ALL}, Role.NODE: {"": READ}, Role.CONTROLLER: {"": COLLECT}},
    selectable_fields=("type",),
    columns=(
        NAME,
        Column("Type", at("type", default="")),
        Column("Data", entries("data"), "integer"),
        AGE,
    ),
)
