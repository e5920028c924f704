"""Label and field selectors of a list or a watch, as one test of a record. Pure."""

from __future__ import annotations

from collections.abc import Callable

from livesize.api.errors import bad_request
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import lookup
from livesize.api.selectors import SelectorError, parse_field_selector, parse_label_selector
from livesize.apiserver.events import Matches
from livesize.apiserver.records import ObjectRecord

_ANY = ("metadata.name", "metadata.namespace")

_BOOLEANS = frozenset({"spec.unschedulable", "spec.hostNetwork"})


def parse_selection(resource: Resource, labels: str, fields: str) -> Matches | None:
    """A test of records; None where everything is selected. Raises StatusError 400."""
    tests: list[Callable[[ObjectRecord], bool]] = []
    if labels:
        tests.append(_label_test(labels))
    if fields:
        tests.append(_field_test(resource, fields))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda record: all(test(record) for test in tests)


def _label_test(text: str) -> Matches:
    try:
        selector = parse_label_selector(text)
    except SelectorError as error:
        raise bad_request(f"unable to parse the label selector {text!r}: {error}") from None
    return lambda record: selector.matches(record.labels)


def _field_test(resource: Resource, text: str) -> Matches:
    try:
        selector = parse_field_selector(text)
    except SelectorError as error:
        raise bad_request(f"unable to parse the field selector {text!r}: {error}") from None
    supported = {*_ANY, *kind_of(resource).selectable_fields}
    for name in sorted({requirement.field for requirement in selector.requirements}):
        if name not in supported:
            raise bad_request(f"field label not supported: {name}")
    wanted = [(_reader(one.field), one.value, one.negated) for one in selector.requirements]

    if len(wanted) == 1:
        read, value, negated = wanted[0]
        return lambda record: (read(record) == value) is not negated
    return lambda record: all((field(record) == text) is not no for field, text, no in wanted)


def _reader(name: str) -> Callable[[ObjectRecord], str]:
    """Reads one field as text; absent is empty. Every change is tested for every watcher, so what
    can be decided beforehand is decided here."""
    if name == "metadata.name":
        return _name
    if name == "metadata.namespace":
        return _namespace
    path = ("source", "component") if name == "source" else tuple(name.split("."))
    if name in _BOOLEANS:
        return lambda record: "true" if lookup(record.served, *path) is True else "false"
    return lambda record: str(lookup(record.served, *path, default=""))


def _name(record: ObjectRecord) -> str:
    return record.name


def _namespace(record: ObjectRecord) -> str:
    return record.namespace
