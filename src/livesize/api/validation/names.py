"""The rules for names, labels and annotation keys, with Kubernetes' sentences."""

from __future__ import annotations

import enum
import re

from livesize.api.bounded_cache import bounded_cache
from livesize.api.errors import FieldError, FieldErrorKind

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"

_LABEL_PATTERN = re.compile(_LABEL)
_SUBDOMAIN_PATTERN = re.compile(_SUBDOMAIN)
_QUALIFIED_PATTERN = re.compile(_QUALIFIED)
_LABEL_VALUE_PATTERN = re.compile(_LABEL_VALUE)

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
LONGEST_KEY = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH


class DnsRule(enum.Enum):
    LABEL = "label"
    SUBDOMAIN = "subdomain"


_LABEL_SENTENCE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex"
    f" used for validation is '{_LABEL}')"
)
_SUBDOMAIN_SENTENCE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{_SUBDOMAIN}')"
)
_QUALIFIED_SENTENCE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{_QUALIFIED}')"
)
_LABEL_VALUE_SENTENCE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    f"  or '12345', regex used for validation is '{_LABEL_VALUE}')"
)


_RULES = {
    DnsRule.LABEL: (_LABEL_PATTERN, _LABEL_SENTENCE, LABEL_LENGTH),
    DnsRule.SUBDOMAIN: (_SUBDOMAIN_PATTERN, _SUBDOMAIN_SENTENCE, SUBDOMAIN_LENGTH),
}


def name_problems(name: str, rule: DnsRule) -> list[str]:
    """What is wrong with a DNS name, one sentence each."""
    pattern, sentence, length = _RULES[rule]
    if len(name) > length:
        return [_too_long(length)]
    return [] if pattern.fullmatch(name) else [sentence]


def validate_name(name: str | None, field: str, rule: DnsRule) -> list[FieldError]:
    """A name that has to be there."""
    if not name:
        return [FieldError(FieldErrorKind.REQUIRED, field, "")]
    return [
        FieldError(FieldErrorKind.INVALID, field, problem, name)
        for problem in name_problems(name, rule)
    ]


def validate_key(key: str, field: str) -> list[FieldError]:
    """A label or annotation key: a name with an optional DNS prefix before a slash."""
    return [
        FieldError(FieldErrorKind.INVALID, field, problem, key) for problem in key_problems(key)
    ]


@bounded_cache(1024, longest=LONGEST_KEY)
def key_problems(key: str) -> tuple[str, ...]:
    """Kept, because all objects together have few different keys."""
    prefix, slash, name = key.rpartition("/")
    problems: list[str] = []
    if slash:
        wrong = name_problems(prefix, DnsRule.SUBDOMAIN) if prefix else ["must be non-empty"]
        problems += [f"prefix part {problem}" for problem in wrong]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_LENGTH:
        problems.append(f"name part {_too_long(LABEL_LENGTH)}")
    elif not _QUALIFIED_PATTERN.fullmatch(name):
        problems.append(_QUALIFIED_SENTENCE)
    return tuple(problems)


def validate_label_value(value: str, field: str) -> list[FieldError]:
    if len(value) > LABEL_LENGTH:
        return [FieldError(FieldErrorKind.INVALID, field, _too_long(LABEL_LENGTH), value)]
    if not _LABEL_VALUE_PATTERN.fullmatch(value):
        return [FieldError(FieldErrorKind.INVALID, field, _LABEL_VALUE_SENTENCE, value)]
    return []


def _too_long(length: int) -> str:
    return f"must be no more than {length} characters"
