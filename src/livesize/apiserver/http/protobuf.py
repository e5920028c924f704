"""Reads request bodies in protobuf, as kubectl sends some of its kinds, into plain trees.

On the wire: four bytes ``k8s\\0``, then a runtime.Unknown with the kind and the encoded object.
Only fields whose number is declared are read (livesize.api.schema); answers are JSON always, which
every such client accepts.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from livesize.api.entries import are_many, too_many_entries
from livesize.api.errors import StatusError, bad_request
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.objects import Object
from livesize.api.schema.fields import Field, Schema, Type, schema_of
from livesize.api.schema.meta import DeleteOptions
from livesize.apiserver.http.bodies import decode_json

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_VARINT_BYTES = 10
_Value: TypeAlias = int | bytes


def decode_protobuf(body: bytes) -> Object:
    """The object with its apiVersion and kind; 400 where it cannot be read, 413 where it has too
    many entries, 415 for other kinds."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not Kubernetes' protobuf: it must begin k8s")
    try:
        tree = _decode_unknown(body[len(_MAGIC) :])
    except _WireError as error:
        raise bad_request(f"the body of the request is not valid protobuf: {error}") from None
    if are_many(tree):
        raise too_many_entries()
    return tree


class _WireError(ValueError):
    """The bytes do not follow the wire format."""


def _decode_unknown(data: bytes) -> Object:
    api_version = kind = ""
    raw = b""
    for number, value in _fields(data):
        if number == 1:
            for inner, text in _fields(_bytes(value)):
                if inner == 1:
                    api_version = _text(text)
                elif inner == 2:
                    kind = _text(text)
        elif number == 2:
            raw = _bytes(value)
    schema = _schema_of(api_version, kind)
    if schema is None:
        raise _not_read(f"{kind} of {api_version}" if kind else "an object without a kind")
    return {"apiVersion": api_version, "kind": kind, **_message(schema, raw)}


def _schema_of(api_version: str, kind: str) -> Schema | None:
    """Another version may have other numbers; options of a deletion are the same in all."""
    if not kind:
        return None
    if kind == DeleteOptions.__name__:
        return schema_of(DeleteOptions)
    resource = REGISTRY.find_kind(api_version, kind)
    if resource is not None:
        return kind_of(resource).schema
    sent = [one for at in REGISTRY.served() for one in kind_of(at).subresources.values()]
    found = (one.schema for one in sent if (one.api_version, one.kind) == (api_version, kind))
    return next(found, None)


def _not_read(what: str) -> StatusError:
    message = f"protobuf is not read for {what} - send application/json"
    return StatusError(415, "UnsupportedMediaType", message)


class _Reader(msgspec.Struct, frozen=True):
    """How one field is read. ``name`` is empty where JSON has the fields of a message inline;
    ``absent`` is the value of a map's entry that has none."""

    name: str
    read: Callable[[_Value], Any]
    cardinality: str = "one"
    may_be_packed: bool = False
    keeps_zero: bool = False
    keeps_number: bool = False
    absent: _Value = b""


def _message(schema: Schema, value: _Value) -> Object:
    readers = _readers(schema)
    tree: Object = {}
    for number, item in _fields(_bytes(value)):
        reader = readers.get(number)
        if reader is not None:
            _put(tree, reader, item)
        elif item and schema.refuses_unknown:
            raise _not_read(f"field {number} of {schema.name}")
    return tree


@functools.cache
def _readers(schema: Schema) -> Mapping[int, _Reader]:
    """By the numbers of the fields."""
    own = {one.number: _reader(name, one) for name, one in schema.own_fields.items() if one.number}
    inlined = {
        number: _Reader("", functools.partial(_message, one))
        for number, one in schema.inlined.items()
    }
    return {**own, **inlined}


def _reader(name: str, field: Field) -> _Reader:
    is_integer = field.type is Type.INTEGER
    if isinstance(field.type, Schema):
        read: Callable[[_Value], Any] = functools.partial(_message, field.type)
    else:
        read = _PLAIN[field.type]
    return _Reader(
        name,
        read,
        field.cardinality.value,
        may_be_packed=is_integer,
        keeps_zero=field.keeps_zero,
        keeps_number=field.type is Type.INT_OR_STRING,
        absent=0 if is_integer else b"",
    )


def _put(tree: Object, reader: _Reader, value: _Value) -> None:
    if reader.cardinality == "list":
        items = tree.setdefault(reader.name, [])
        if reader.may_be_packed and isinstance(value, bytes):
            items.extend(_packed(value))
        else:
            items.append(reader.read(value))
    elif reader.cardinality == "map":
        key, item = _pair(reader, _bytes(value))
        tree.setdefault(reader.name, {})[key] = item
    else:
        item = reader.read(value)
        if not reader.name:
            tree.update(item)
        elif item or reader.keeps_zero or (reader.keeps_number and item == 0):
            tree[reader.name] = item


def _pair(reader: _Reader, data: bytes) -> tuple[str, Any]:
    key, given = "", reader.absent
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            given = value
    return key, reader.read(given)


def _time(data: bytes, *, micro: bool) -> str:
    seconds = nanos = 0
    for number, value in _fields(data):
        if number == 1:
            seconds = _signed(value)
        elif number == 2:
            nanos = _signed(value)
    if not seconds and not nanos:
        return ""  # no time at all
    try:
        moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise _WireError(f"{seconds} seconds is no time") from None
    if not micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{nanos // 1000:06d}Z"


def _int_or_string(data: bytes) -> int | str:
    is_text, number, text = False, 0, ""
    for place, value in _fields(data):
        if place == 1:
            is_text = bool(_signed(value))
        elif place == 2:
            number = _signed(value)
        elif place == 3:
            text = _text(value)
    return text if is_text else number


def _only(data: bytes) -> bytes:
    """The last value of field 1: messages that only wrap one."""
    found = b""
    for number, value in _fields(data):
        if number == 1:
            found = _bytes(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Field number and value of each field, in the order of the wire."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise _WireError("a field has the number 0")
        value: _Value
        match wire_type:
            case 0:
                value, place = _varint(data, place)
            case 2:
                length, place = _varint(data, place)
                value, place = _slice(data, place, length)
            case 1:
                value, place = _slice(data, place, 8)
            case 5:
                value, place = _slice(data, place, 4)
            case _:
                raise _WireError(f"wire type {wire_type} is not used")
        yield number, value


def _slice(data: bytes, place: int, length: int) -> tuple[bytes, int]:
    end = place + length
    if end > len(data):
        raise _WireError("it ends in the middle of a field")
    return data[place:end], end


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for count in range(_MAX_VARINT_BYTES):
        if place + count >= len(data):
            raise _WireError("it ends in the middle of a number")
        byte = data[place + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, place + count + 1
    raise _WireError("a number has more than 64 bits")


def _packed(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        number, place = _varint(data, place)
        yield _signed(number)


def _signed(value: _Value) -> int:
    if not isinstance(value, int):
        raise _WireError("a number was expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise _WireError("a text or message was expected")
    return value


def _text(value: _Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise _WireError("a text is not UTF-8") from None


_PLAIN: Mapping[Type, Callable[[_Value], Any]] = {
    Type.STRING: _text,
    Type.INTEGER: _signed,
    Type.BOOLEAN: lambda value: bool(_signed(value)),
    Type.BYTES: lambda value: base64.b64encode(_bytes(value)).decode(),
    Type.QUANTITY: lambda value: _text(_only(_bytes(value))) or "0",
    Type.FIELDS: lambda value: decode_json(_only(_bytes(value)) or b"{}"),
    Type.TIME: lambda value: _time(_bytes(value), micro=False),
    Type.MICRO_TIME: lambda value: _time(_bytes(value), micro=True),
    Type.INT_OR_STRING: lambda value: _int_or_string(_bytes(value)),
}
