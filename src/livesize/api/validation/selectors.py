"""Checks of label selectors inside objects: matchLabels and matchExpressions."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.names import validate_key, validate_label_value

SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def validate_selector(selector: Object, field: str = "spec.selector") -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        errors += validate_key(key, f"{field}.matchLabels")
        errors += validate_label_value(value or "", f"{field}.matchLabels")
    for index, one in enumerate(selector.get("matchExpressions") or []):
        where = f"{field}.matchExpressions[{index}]"
        errors += validate_key(one.get("key") or "", f"{where}.key")
        operator = one.get("operator")
        errors += required_one_of(operator, SELECTOR_OPERATORS, f"{where}.operator")
        if (operator in ("In", "NotIn")) != bool(one.get("values")):
            detail = "must be given when `operator` is 'In' or 'NotIn', and only then"
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"{where}.values", detail))
    return errors
