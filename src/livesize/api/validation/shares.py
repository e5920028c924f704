"""A number of pods, or a percentage of them, with Kubernetes' sentences."""

from __future__ import annotations

import re
from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object

NEGATIVE = "must be greater than or equal to 0"
_PERCENT = re.compile("([0-9]{1,18})%")
_PERCENT_SENTENCE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or"
    " '93%', regex used for validation is '[0-9]+%')"
)


def validate_counts(parent: Object, field: str, *names: str) -> list[FieldError]:
    """None of these numbers is negative; those that are absent are fine."""
    return [
        _invalid(f"{field}.{name}" if field else name, NEGATIVE, parent[name])
        for name in names
        if parent.get(name, 0) < 0
    ]


def validate_share(value: Any, field: str, *, most_percent: int | None = 100) -> list[FieldError]:
    """A number of zero or more, or a percentage; None: of any height."""
    if type(value) is int:
        return [] if value >= 0 else [_invalid(field, NEGATIVE, value)]
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return [_invalid(field, _PERCENT_SENTENCE, value)]
    if most_percent is not None and int(found[1]) > most_percent:
        return [_invalid(field, f"must not be greater than {most_percent}%", value)]
    return []


def is_zero_share(value: Any) -> bool:
    """Of a valid one."""
    return not int(str(value).removesuffix("%"))


def _invalid(field: str, detail: str, value: Any) -> FieldError:
    return FieldError(FieldErrorKind.INVALID, field, detail, value)
