"""A value that has to be one of some words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind


def one_of(value: Any, supported: Iterable[str], field: str) -> list[FieldError]:
    words = list(supported)
    if value in words:
        return []
    detail = "supported values: " + ", ".join(f'"{word}"' for word in words)
    return [FieldError(FieldErrorKind.NOT_SUPPORTED, field, detail, value)]


def required_one_of(value: Any, supported: Iterable[str], field: str) -> list[FieldError]:
    if not value:
        return [FieldError(FieldErrorKind.REQUIRED, field, "")]
    return one_of(value, supported, field)
