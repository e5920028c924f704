"""Messages to systemd: method calls, and what of their answers is of interest. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.low_level import Message

Variant: TypeAlias = tuple[str, Any]
"""A value with its signature."""

_NAME = "org.freedesktop.systemd1"
_MANAGER = DBusAddress("/org/freedesktop/systemd1", _NAME, f"{_NAME}.Manager")


class BusReply(msgspec.Struct, frozen=True):
    """``error`` empty: it was done. ``serial``: of the call it answers; 0 for what answers none."""

    serial: int
    error: str = ""
    words: str = ""


def encode_call(member: str, signature: str, body: tuple[Any, ...], serial: int) -> bytes:
    """``body``: as many values as ``signature`` names."""
    message = new_method_call(_MANAGER, member, signature, body)
    return bytes(message.serialise(serial))


def read_reply(message: Message) -> BusReply:
    fields = message.header.fields
    serial = int(fields.get(HeaderFields.reply_serial, 0))
    if message.header.message_type is not MessageType.error:
        return BusReply(serial)
    words = next(iter(message.body), "")
    return BusReply(serial, str(fields.get(HeaderFields.error_name, "")), str(words))
