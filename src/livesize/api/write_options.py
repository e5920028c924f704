"""The options of a write, which server and client share."""

from __future__ import annotations

import enum

import msgspec


class FieldValidation(enum.StrEnum):
    """What the server does with fields no shape has; it keeps them unless it refuses them."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class WriteOptions(msgspec.Struct, frozen=True):
    """``manager`` owns the fields that are written (empty: the server takes the client's name, or
    tracks no owner); ``force`` takes fields from other owners, when applying."""

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.IGNORE
    manager: str = ""
    force: bool = False


PLAIN_WRITE = WriteOptions()
