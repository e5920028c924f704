"""Checks of the entries of config maps and secrets."""

from __future__ import annotations

import base64
import binascii
import re

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object

LARGEST_BYTES = 1024 * 1024
_KEY = re.compile("[-._a-zA-Z0-9]+")
_KEY_SENTENCE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
    " 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_FROZEN = "field is immutable when `immutable` is set"


def validate_keys(entries: Object, field: str) -> list[FieldError]:
    return [
        FieldError(FieldErrorKind.INVALID, f"{field}[{key}]", _KEY_SENTENCE, key)
        for key in entries
        if len(key) > 253 or not _KEY.fullmatch(key) or key in (".", "..")
    ]


def validate_encoded(entries: Object, field: str) -> list[FieldError]:
    errors = []
    for key, word in entries.items():
        try:
            base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            where, detail = f"{field}[{key}]", "must be base64"
            # The value itself may be a secret.
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, ""))
    return errors


def validate_size(size_bytes: int, field: str) -> list[FieldError]:
    if size_bytes <= LARGEST_BYTES:
        return []
    detail = f"may not be more than {LARGEST_BYTES} bytes"
    return [FieldError(FieldErrorKind.TOO_LONG, field, detail)]


def validate_frozen(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    if not new.get("immutable"):
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "immutable", _FROZEN))
    changed = [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return errors + [FieldError(FieldErrorKind.FORBIDDEN, field, _FROZEN) for field in changed]
