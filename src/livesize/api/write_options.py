"""The options of a write, which server and client share."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import msgspec


class FieldValidation(enum.StrEnum):
    """What the server does with fields no kind has; it keeps them unless it refuses them."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


def _no_warnings(_sentences: Sequence[str]) -> None:
    """The default: no caller reads them."""


class WriteOptions(msgspec.Struct, frozen=True):
    """``manager`` owns the fields that are written (empty: the server takes the client's name, or
    tracks no owner); ``force`` takes fields from other owners, when applying; ``warn`` takes what
    the server says of fields that it keeps and does not know."""

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.IGNORE
    manager: str = ""
    force: bool = False
    warn: Callable[[Sequence[str]], None] = _no_warnings


PLAIN_WRITE = WriteOptions()
