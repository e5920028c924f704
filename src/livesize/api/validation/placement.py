"""What may be said about where a pod goes: required node affinity and tolerations."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.placement import Operator, TaintEffect
from livesize.api.validation.choices import one_of, required_one_of

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
_WITH_VALUES = (Operator.IN, Operator.NOT_IN)
_WITH_ONE_NUMBER = (Operator.GREATER, Operator.LESS)
_FIELD_OPERATORS = (Operator.IN, Operator.NOT_IN)


def validate_placement(spec: Object) -> list[FieldError]:
    return [*_validate_affinity(spec), *_validate_tolerations(spec)]


def _validate_affinity(spec: Object) -> list[FieldError]:
    required = lookup(spec, "affinity", "nodeAffinity", _REQUIRED)
    if required is None:
        return []
    return validate_node_terms(required.get("nodeSelectorTerms") or [], _TERMS)


def validate_node_terms(terms: Sequence[Object], field: str) -> list[FieldError]:
    if not terms:
        detail = "must have at least one node selector term"
        return [FieldError(FieldErrorKind.REQUIRED, field, detail)]
    errors: list[FieldError] = []
    for index, term in enumerate(terms):
        where = f"{field}[{index}]"
        for number, one in enumerate(term.get("matchExpressions") or []):
            errors += _validate_requirement(one, f"{where}.matchExpressions[{number}]")
        for number, one in enumerate(term.get("matchFields") or []):
            errors += _validate_field(one, f"{where}.matchFields[{number}]")
    return errors


def _validate_requirement(requirement: Object, field: str) -> list[FieldError]:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    errors = _validate_key(requirement, field)
    wrong = required_one_of(operator, Operator, f"{field}.operator")
    if wrong:
        return errors + wrong
    if operator in _WITH_VALUES and not values:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.values", detail))
    elif operator in _WITH_ONE_NUMBER and not _is_one_number(values):
        detail = "must be a single integer when `operator` is 'Gt' or 'Lt'"
        errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.values", detail, values))
    elif operator not in (*_WITH_VALUES, *_WITH_ONE_NUMBER) and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"{field}.values", detail))
    return errors


def _validate_field(requirement: Object, field: str) -> list[FieldError]:
    errors = one_of(requirement.get("key"), ["metadata.name"], f"{field}.key")
    errors += required_one_of(requirement.get("operator"), _FIELD_OPERATORS, f"{field}.operator")
    if len(requirement.get("values") or []) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.values", detail))
    return errors


def _validate_tolerations(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, toleration in enumerate(spec.get("tolerations") or []):
        field = f"spec.tolerations[{index}]"
        operator = toleration.get("operator") or "Equal"
        errors += one_of(operator, ("Equal", Operator.EXISTS), f"{field}.operator")
        if toleration.get("effect"):
            errors += one_of(toleration["effect"], TaintEffect, f"{field}.effect")
        if not toleration.get("key") and operator != Operator.EXISTS:
            detail = 'operator must be Exists when `key` is empty, which means "match all values"'
            value = toleration.get("operator")
            errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.operator", detail, value))
        if operator == Operator.EXISTS and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            value = toleration["value"]
            errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.operator", detail, value))
    return errors


def _validate_key(requirement: Object, field: str) -> list[FieldError]:
    if requirement.get("key"):
        return []
    return [FieldError(FieldErrorKind.REQUIRED, f"{field}.key", "name part must be non-empty")]


def _is_one_number(values: list[str]) -> bool:
    return len(values) == 1 and values[0].lstrip("+-").isdigit()
