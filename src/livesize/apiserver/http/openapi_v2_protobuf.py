"""OpenAPI v2 in gnostic's protobuf, the only form in which Kubernetes' Go clients take it. Pure.

What they look at is there: the schemas, and of each path its operations with their parameters and
extensions. Field numbers are gnostic's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import orjson

from livesize.api.objects import Object

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# What it is called in the answer, because Go cannot read its own name for it there.
V2_ANSWERED = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_Writer: TypeAlias = Callable[[Any], bytes]
_EXTENSION = "x-"


def encode_v2(document: Object) -> bytes:
    return _message(document, _DOCUMENT)


def _message(tree: Object, table: Mapping[str, tuple[int, _Writer]], extensions: int = 0) -> bytes:
    """The fields of ``tree`` that the table knows; its extensions at their number, if any."""
    parts = []
    for key, value in tree.items():
        if key in table:
            number, write = table[key]
            parts.append(_each(number, value, write))
        elif extensions and key.startswith(_EXTENSION):
            any_value = _field(2, orjson.dumps(value))  # JSON is YAML
            parts.append(_field(extensions, _field(1, key.encode()) + _field(2, any_value)))
    return b"".join(parts)


def _each(number: int, value: Any, write: _Writer) -> bytes:
    if isinstance(value, list):
        return b"".join(_field(number, write(item)) for item in value)
    if write is _flag:
        return _varint(number << 3) + _varint(value)
    return _field(number, write(value))


def _flag(_: Any) -> bytes:
    raise AssertionError("a flag is written in place")


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _text(value: str) -> bytes:
    return value.encode()


def _named(number: int, items: Iterable[tuple[str, Any]], write: _Writer) -> bytes:
    """A map, which gnostic writes as pairs of a name and a value."""
    return b"".join(
        _field(number, _field(1, name.encode()) + _field(2, write(value))) for name, value in items
    )


def _schema(tree: Object) -> bytes:
    return _message(tree, _SCHEMA, extensions=31)


def _schemas(tree: Object) -> bytes:
    return _named(1, tree.items(), _schema)


def _wrapped_schema(tree: Object) -> bytes:
    return _field(1, _schema(tree))


def _additional(value: Any) -> bytes:
    if isinstance(value, bool):
        return _varint(2 << 3) + _varint(value)
    return _wrapped_schema(value)


def _type(value: str) -> bytes:
    return _field(1, value.encode())


def _any(value: Any) -> bytes:
    return _field(2, orjson.dumps(value))


def _paths(tree: Object) -> bytes:
    return _named(2, tree.items(), functools.partial(_message, table=_PATH))


def _operation(tree: Object) -> bytes:
    return _message(tree, _OPERATION, extensions=13)


def _parameter(tree: Object) -> bytes:
    """In ParametersItem and Parameter; all but a body also in NonBodyParameter."""
    if tree["in"] == "body":
        return _field(1, _field(1, _message(tree, _BODY_PARAMETER)))
    place, table = (4, _PATH_PARAMETER) if tree["in"] == "path" else (3, _QUERY_PARAMETER)
    return _field(1, _field(2, _field(place, _message(tree, table))))


_DOCUMENT: Mapping[str, tuple[int, _Writer]] = {
    "swagger": (1, _text),
    "info": (2, lambda tree: _message(tree, {"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _paths),
    "definitions": (9, _schemas),
}
_SCHEMA: Mapping[str, tuple[int, _Writer]] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "pattern": (13, _text),
    "required": (19, _text),
    "enum": (20, _any),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _wrapped_schema),
    "allOf": (24, _schema),
    "properties": (25, _schemas),
}
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_PATH: Mapping[str, tuple[int, _Writer]] = {
    **{method: (number, _operation) for method, number in _METHODS.items()},
    "parameters": (9, _parameter),
}
_OPERATION: Mapping[str, tuple[int, _Writer]] = {
    "produces": (6, _text),
    "consumes": (7, _text),
    "parameters": (8, _parameter),
}
_BODY_PARAMETER: Mapping[str, tuple[int, _Writer]] = {
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _flag),
    "schema": (5, _schema),
}
_PATH_PARAMETER: Mapping[str, tuple[int, _Writer]] = {
    "required": (1, _flag),
    "in": (2, _text),
    "name": (4, _text),
    "type": (5, _text),
}
_QUERY_PARAMETER: Mapping[str, tuple[int, _Writer]] = {
    "in": (2, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, _flag),
}
