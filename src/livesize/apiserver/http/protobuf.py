"""Reads request bodies in protobuf, as kubectl sends some of its kinds, into plain trees.

On the wire: four bytes ``k8s\\0``, then a runtime.Unknown with the kind and the encoded object.
Only what the tables name is read; answers are JSON always, which every such client accepts.
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
from livesize.api.objects import Object
from livesize.apiserver.http.bodies import decode_json
from livesize.apiserver.http.protobuf_pods import STRICT
from livesize.apiserver.http.protobuf_storage import STORAGE_STRICT
from livesize.apiserver.http.protobuf_tables import KINDS, MESSAGES

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_VARINT_BYTES = 10
_INLINE = "..."
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


class _Field(msgspec.Struct, frozen=True):
    name: str
    kind: str
    is_list: bool
    is_map: bool
    keeps_zero: bool


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
    known = KINDS.get(kind)
    if known is None or (known and known != api_version):
        raise _not_read(f"{kind} of {api_version}" if kind else "an object without a kind")
    return {"apiVersion": api_version, "kind": kind, **_message(kind, raw)}


def _not_read(what: str) -> StatusError:
    message = f"protobuf is not read for {what} - send application/json"
    return StatusError(415, "UnsupportedMediaType", message)


def _message(kind: str, data: bytes) -> Object:
    table = _table(kind)
    tree: Object = {}
    for number, value in _fields(data):
        field = table.get(number)
        if field is not None:
            _put(tree, field, value)
        elif value and kind in STRICT | STORAGE_STRICT:
            raise _not_read(f"field {number} of {kind}")
    return tree


def _put(tree: Object, field: _Field, value: _Value) -> None:
    if field.name == _INLINE:
        tree.update(_message(field.kind, _bytes(value)))
        return
    if field.is_list and field.kind == "int" and isinstance(value, bytes):
        tree.setdefault(field.name, []).extend(_packed(value))
        return
    if field.is_map:
        key, item = _pair(field.kind, _bytes(value))
        tree.setdefault(field.name, {})[key] = item
        return
    item = _value(field.kind, value)
    if field.is_list:
        tree.setdefault(field.name, []).append(item)
    elif item or field.keeps_zero or (field.kind == "int_or_string" and item == 0):
        tree[field.name] = item


def _pair(kind: str, data: bytes) -> tuple[str, Any]:
    key, item = "", _value(kind, b"" if kind != "int" else 0)
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            item = _value(kind, value)
    return key, item


def _value(kind: str, value: _Value) -> Any:
    reader = _PLAIN.get(kind)
    return _message(kind, _bytes(value)) if reader is None else reader(value)


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


_PLAIN: Mapping[str, Callable[[_Value], Any]] = {
    "string": _text,
    "int": _signed,
    "bool": lambda value: bool(_signed(value)),
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "quantity": lambda value: _text(_only(_bytes(value))) or "0",
    "fields": lambda value: decode_json(_only(_bytes(value)) or b"{}"),
    "time": lambda value: _time(_bytes(value), micro=False),
    "micro_time": lambda value: _time(_bytes(value), micro=True),
    "int_or_string": lambda value: _int_or_string(_bytes(value)),
}


@functools.cache
def _table(kind: str) -> dict[int, _Field]:
    return {number: _parse_field(text) for number, text in MESSAGES[kind].items()}


def _parse_field(text: str) -> _Field:
    name, _, rest = text.partition(": ")
    shape, _, kind = rest.rpartition(" ")
    return _Field(name, kind.rstrip("?"), shape == "*", shape == "map", kind.endswith("?"))
