"""Label and field selectors as clients write them in a query: ``a=b,c!=d,e in (f,g),!h``.

Parsing raises SelectorError with a sentence; matching never fails. An empty text selects all.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

MAXIMUM_CHARACTERS = 32 * 1024

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*)/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
_MAXIMUM_PREFIX = 253

_EXISTS = re.compile(r"(?P<key>[^\s,()!=<>]+)")
_NOT_EXISTS = re.compile(r"!\s*(?P<key>[^\s,()!=<>]+)")
_EQUALITY = re.compile(r"(?P<key>[^\s,()!=<>]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s,()!=<>]*)")
_SET = re.compile(r"(?P<key>[^\s,()!=<>]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_ESCAPED = re.compile(r"\\([\\,=])")
_FIELD_OPERATOR = re.compile(r"!=|==|=")


class SelectorError(ValueError):
    """The text is not a selector; the message says what is wrong with which part."""


class LabelOperator(enum.StrEnum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    NOT_EXISTS = "!"


_OPERATORS = {
    "In": LabelOperator.IN,
    "NotIn": LabelOperator.NOT_IN,
    "Exists": LabelOperator.EXISTS,
    "DoesNotExist": LabelOperator.NOT_EXISTS,
}


class LabelRequirement(msgspec.Struct, frozen=True):
    """``=`` and ``!=`` are ``in`` and ``notin`` with one value; a label that is not there is not
    in any list of values."""

    key: str
    operator: LabelOperator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case LabelOperator.IN:
                return self.key in labels and labels[self.key] in self.values
            case LabelOperator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case LabelOperator.EXISTS:
                return self.key in labels
            case LabelOperator.NOT_EXISTS:
                return self.key not in labels


class LabelMatcher(msgspec.Struct, frozen=True):
    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldRequirement(msgspec.Struct, frozen=True):
    field: str
    value: str
    negated: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.field, "") == self.value) is not self.negated


class FieldMatcher(msgspec.Struct, frozen=True):
    """``fields`` maps the paths a resource can be selected by to text; absent counts as empty."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(requirement.matches(fields) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelMatcher:
    """Read a label selector. Raises SelectorError."""
    _check_length(text)
    if not text.strip():
        return LabelMatcher()
    return LabelMatcher(tuple(_label_requirement(part) for part in _unbracketed_parts(text)))


def parse_selector(selector: Mapping[str, Any]) -> LabelMatcher:
    """Of matchLabels and matchExpressions; an empty one selects everything."""
    labels: Mapping[str, str] = selector.get("matchLabels") or {}
    requirements = [
        LabelRequirement(key, LabelOperator.IN, frozenset({value}))
        for key, value in sorted(labels.items())
    ]
    requirements += [
        LabelRequirement(
            one.get("key", ""),
            _OPERATORS.get(one.get("operator", ""), LabelOperator.EXISTS),
            frozenset(one.get("values") or ()),
        )
        for one in selector.get("matchExpressions") or []
    ]
    return LabelMatcher(tuple(requirements))


def parse_field_selector(text: str) -> FieldMatcher:
    """Read a field selector; in a value, backslash escapes comma, equals sign and itself.
    Raises SelectorError."""
    _check_length(text)
    return FieldMatcher(tuple(_field_requirement(part) for part in _unescaped_parts(text) if part))


def _check_length(text: str) -> None:
    if len(text) > MAXIMUM_CHARACTERS:
        raise SelectorError(f"a selector must have at most {MAXIMUM_CHARACTERS} characters")


def _unbracketed_parts(text: str) -> Iterator[str]:
    """The parts between commas that do not stand in brackets."""
    begin, is_inside = 0, False
    for index, character in enumerate(text):
        if character in "()":
            is_inside = character == "("
        elif character == "," and not is_inside:
            yield text[begin:index].strip()
            begin = index + 1
    yield text[begin:].strip()


def _label_requirement(part: str) -> LabelRequirement:
    if not part:
        raise SelectorError("a label selector has nothing between two commas, or at its end")
    if found := _EXISTS.fullmatch(part):
        return LabelRequirement(_label_key(found["key"]), LabelOperator.EXISTS)
    if found := _NOT_EXISTS.fullmatch(part):
        return LabelRequirement(_label_key(found["key"]), LabelOperator.NOT_EXISTS)
    if found := _EQUALITY.fullmatch(part):
        operator = LabelOperator.NOT_IN if found["operator"] == "!=" else LabelOperator.IN
        values = [found["value"]]
    elif found := _SET.fullmatch(part):
        operator = LabelOperator(found["operator"])
        values = [value.strip() for value in found["values"].split(",")]
    else:
        raise SelectorError(
            f"{part!r} is not a label requirement: write key=value, key!=value, key in (a,b),"
            " key notin (a,b), key or !key"
        )
    return LabelRequirement(
        _label_key(found["key"]), operator, frozenset(_label_value(value) for value in values)
    )


def _label_key(key: str) -> str:
    found = _LABEL_KEY.fullmatch(key)
    if found is None or len(found["prefix"] or "") > _MAXIMUM_PREFIX:
        raise SelectorError(
            f"{key!r} is not a label key: at most 63 letters, digits, '-', '_' or '.', beginning"
            " and ending with a letter or digit, after an optional domain name and '/'"
        )
    return key


def _label_value(value: str) -> str:
    if not _LABEL_VALUE.fullmatch(value):
        raise SelectorError(
            f"{value!r} is not a label value: at most 63 letters, digits, '-', '_' or '.',"
            " beginning and ending with a letter or digit"
        )
    return value


def _unescaped_parts(text: str) -> list[str]:
    """The parts between commas that no backslash stands before; escapes are left in."""
    parts, begin, index = [], 0, 0
    while index < len(text):
        if text[index] == ",":
            parts.append(text[begin:index])
            begin = index + 1
        index += 2 if text[index] == "\\" else 1
    return [*parts, text[begin:]]


def _field_requirement(part: str) -> FieldRequirement:
    # The first operator in the text counts, and of those at one place the longest.
    found = _FIELD_OPERATOR.search(part)
    if found is None or found.start() == 0:
        raise SelectorError(
            f"{part!r} is not a field requirement: write field=value or field!=value"
        )
    field, value = part[: found.start()].strip(), part[found.end() :].strip()
    return FieldRequirement(field, _unescaped(value), negated=found[0] == "!=")


def _unescaped(value: str) -> str:
    unescaped = _ESCAPED.sub("", value)
    for character in ("=", "\\"):
        if character in unescaped:
            raise SelectorError(
                f"the value {value!r} has a {character!r} without a backslash before it"
            )
    return _ESCAPED.sub(r"\1", value)


def format_label_selector(selector: Mapping[str, Any]) -> str:
    """A selector of an object (matchLabels, matchExpressions) as clients write it in a query."""
    words = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        values = f"({','.join(sorted(one.get('values') or ()))})"
        match one.get("operator"):
            case "In":
                words.append(f"{one['key']} in {values}")
            case "NotIn":
                words.append(f"{one['key']} notin {values}")
            case "Exists":
                words.append(str(one["key"]))
            case _:
                words.append(f"!{one['key']}")
    return ",".join(words)
