"""Messages to systemd in the wire format of D-Bus, as far as we need it. Pure.

A message is a header of fixed and of tagged fields, padded to eight bytes, and a body of values
whose types a signature names (D-Bus specification, "Message Format"). We send method calls, and
read whether the answer is a value or an error.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import msgspec

Variant: TypeAlias = tuple[str, Any]
"""A value with its signature."""

HEADER_BYTES = 16
_LITTLE_ENDIAN, _CALL, _ERROR, _VERSION = ord("l"), 1, 3, 1
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = (
    *(1, 2, 3, 4, 5),
    *(6, 8),
)
_NUMBERS = {"y": "B", "b": "I", "u": "I", "t": "Q"}
_TEXTS = "so"


class Call(msgspec.Struct, frozen=True):
    """``body``: as many values as ``signature`` names."""

    destination: str
    path: str
    interface: str
    member: str
    signature: str
    body: tuple[Any, ...]


class Answer(msgspec.Struct, frozen=True):
    """``error`` empty: it was done. ``serial``: of the call it answers; 0 for what answers none."""

    serial: int
    error: str = ""
    words: str = ""


def encode_call(call: Call, serial: int) -> bytes:
    body = _Writer()
    for one, value in zip(_types(call.signature), call.body, strict=True):
        body.put(one, value)
    fields = [
        (_PATH, ("o", call.path)),
        (_INTERFACE, ("s", call.interface)),
        (_MEMBER, ("s", call.member)),
        (_DESTINATION, ("s", call.destination)),
        (_SIGNATURE, ("g", call.signature)),
    ]
    header = _Writer()
    fixed = (_LITTLE_ENDIAN, _CALL, 0, _VERSION, len(body.content), serial)
    header.content += struct.pack("<BBBBII", *fixed)
    header.put("a(yv)", fields)
    header.align(8)
    return bytes(header.content + body.content)


def rest_bytes(header: bytes) -> int:
    """How much follows the first HEADER_BYTES of a message."""
    body_bytes, fields_bytes = struct.unpack_from(f"{_order(header)}I4xI", header, 4)
    return int(-(-(HEADER_BYTES + fields_bytes) // 8) * 8 - HEADER_BYTES + body_bytes)


def decode_answer(message: bytes) -> Answer:
    reader = _Reader(message, _order(message))
    body_bytes = reader.number_at(4)
    reader.position = HEADER_BYTES
    end = HEADER_BYTES + reader.number_at(12)
    fields: dict[int, Any] = {}
    while reader.position < end:
        reader.align(8)
        code = reader.byte()
        fields[code] = reader.variant()
    serial = int(fields.get(_REPLY_SERIAL, 0))
    if message[1] != _ERROR:
        return Answer(serial)
    words = ""
    if body_bytes and str(fields.get(_SIGNATURE, "")).startswith("s"):
        reader.position = end
        reader.align(8)
        words = reader.text()
    return Answer(serial, str(fields.get(_ERROR_NAME, "")), words)


class _Writer:
    def __init__(self) -> None:
        self.content = bytearray()

    def align(self, size: int) -> None:
        self.content += b"\0" * (-len(self.content) % size)

    def put(self, signature: str, value: Any) -> None:
        kind = signature[0]
        if kind in _NUMBERS:
            code = f"<{_NUMBERS[kind]}"
            self.align(struct.calcsize(code))
            self.content += struct.pack(code, value)
        elif kind in _TEXTS:
            self.put("u", len(value.encode()))
            self.content += value.encode() + b"\0"
        elif kind == "g":
            self.content += bytes([len(value)]) + value.encode() + b"\0"
        elif kind == "v":
            self.put("g", value[0])
            self.put(*value)
        elif kind == "(":
            self.align(8)
            for one, part in zip(_types(signature[1:-1]), value, strict=True):
                self.put(one, part)
        else:
            self._put_array(signature[1:], value)

    def _put_array(self, signature: str, values: Any) -> None:
        """Its length counts neither itself nor what aligns the first element."""
        self.put("u", 0)
        counted_at = len(self.content) - 4
        self.align(_alignment(signature))
        begin = len(self.content)
        for value in values:
            self.put(signature, value)
        struct.pack_into("<I", self.content, counted_at, len(self.content) - begin)


class _Reader:
    def __init__(self, message: bytes, order: str) -> None:
        self._message = message
        self._order = order
        self.position = 0

    def align(self, size: int) -> None:
        self.position += -self.position % size

    def number_at(self, position: int) -> int:
        return int(struct.unpack_from(f"{self._order}I", self._message, position)[0])

    def byte(self) -> int:
        self.position += 1
        return self._message[self.position - 1]

    def text(self, *, long: bool = True) -> str:
        """``long``: the length takes four bytes, as everywhere but in signatures."""
        if long:
            self.align(4)
            length = self.number_at(self.position)
            self.position += 4
        else:
            length = self.byte()
        begin = self.position
        self.position += length + 1
        return self._message[begin : begin + length].decode(errors="replace")

    def variant(self) -> Any:
        """Of the types that a header has."""
        signature = self.text(long=False)
        if signature == "u":
            self.align(4)
            self.position += 4
            return self.number_at(self.position - 4)
        return self.text(long=signature != "g")


def _order(message: bytes) -> str:
    return "<" if message[0] == _LITTLE_ENDIAN else ">"


def _alignment(signature: str) -> int:
    kind = signature[0]
    if kind in "(t":
        return 8
    return 1 if kind in "ygv" else 4


def _types(signature: str) -> list[str]:
    """The single types of which a signature is made."""
    found: list[str] = []
    while signature:
        length = _type_length(signature)
        found.append(signature[:length])
        signature = signature[length:]
    return found


def _type_length(signature: str) -> int:
    if signature[0] == "a":
        return 1 + _type_length(signature[1:])
    if signature[0] != "(":
        return 1
    depth = 0
    for position, letter in enumerate(signature):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return position + 1
    raise ValueError(f"{signature!r} is not a signature")
