"""Selectors: what each operator selects, escapes, and refusals that are sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.selectors import (
    FieldRequirement,
    SelectorError,
    format_label_selector,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "db", "tier": "back", "empty": "", "example.com/role": "main"}


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("   ", True),
        ("app=db", True),
        ("app==db", True),
        ("app = db", True),
        ("app=web", False),
        ("app!=web", True),
        ("app!=db", False),
        ("absent!=db", True),
        ("absent=db", False),
        ("absent=", False),
        ("empty=", True),
        ("empty", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! absent", True),
        ("!app", False),
        ("app in (db,web)", True),
        ("app in ( web , db )", True),
        ("app in(db)", True),
        ("app in (web)", False),
        ("absent in (db)", False),
        ("empty in ()", True),
        ("empty in (,x)", True),
        ("app notin (web)", True),
        ("app notin (db,web)", False),
        ("absent notin (db)", True),
        ("example.com/role=main", True),
        ("app=db,tier=back", True),
        ("app=db, tier in (front,back) ,!absent", True),
        ("app=db,tier=front", False),
        ("in", False),
        ("in notin (x)", True),
    ],
)
def test_label_operators(text: str, is_selected: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is is_selected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("app=db,", "nothing between two commas"),
        (",app", "nothing between two commas"),
        ("a,,b", "nothing between two commas"),
        ("app in db", "'app in db' is not a label requirement"),
        ("app in (db", "is not a label requirement"),
        ("app in ((db))", "is not a label requirement"),
        ("app=db=x", "is not a label requirement"),
        ("app=(db)", "is not a label requirement"),
        ("a b", "'a b' is not a label requirement"),
        ("app>1", "is not a label requirement"),
        ("=db", "is not a label requirement"),
        ("!", "is not a label requirement"),
        ("-app=db", "'-app' is not a label key"),
        ("a/b/c=db", "'a/b/c' is not a label key"),
        ("UPPER.com/x=db", "is not a label key"),
        ("a" * 64, "is not a label key"),
        (f"{'a' * 254}/x", "is not a label key"),
        ("app=-db", "'-db' is not a label value"),
        (f"app={'a' * 64}", "is not a label value"),
        ("app in (a b)", "'a b' is not a label value"),
        ("a" * 40_000, "at most 32768 characters"),
    ],
)
def test_what_is_no_label_selector_is_refused_with_a_sentence(text: str, part: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_label_selector(text)
    assert part in str(refused.value)


FIELDS = {"spec.nodeName": "n1", "status.phase": "Running", "metadata.name": "a,b=c\\d"}


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName = n1", True),
        ("spec.nodeName=n2", False),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.nodeName=n1,status.phase!=Running", False),
        ("involvedObject.namespace=", True),
        ("involvedObject.namespace!=", False),
        (r"metadata.name=a\,b\=c\\d", True),
        (r"metadata.name!=a\,b\=c\\d", False),
        (",spec.nodeName=n1,", True),
    ],
)
def test_field_operators(text: str, is_selected: bool) -> None:
    assert parse_field_selector(text).matches(FIELDS) is is_selected


def test_field_requirements_can_be_read_one_by_one() -> None:
    selector = parse_field_selector("spec.nodeName=n1,status.phase!=Failed")
    assert selector.requirements == (
        FieldRequirement("spec.nodeName", "n1"),
        FieldRequirement("status.phase", "Failed", negated=True),
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("spec.nodeName", "'spec.nodeName' is not a field requirement"),
        ("=n1", "'=n1' is not a field requirement"),
        ("!=n1", "is not a field requirement"),
        ("a=b=c", "the value 'b=c' has a '='"),
        ("a===c", "has a '='"),
        ("a=b\\", "without a backslash before it"),
        ("a=b\\c", "without a backslash before it"),
        ("a=" + "b" * 40_000, "at most 32768 characters"),
    ],
)
def test_what_is_no_field_selector_is_refused_with_a_sentence(text: str, part: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_field_selector(text)
    assert part in str(refused.value)


values = st.text(st.sampled_from("ab,=\\."), max_size=8)


@given(st.dictionaries(st.sampled_from(["x", "y.z"]), values, min_size=1))
def test_every_value_can_be_selected_when_it_is_escaped(fields: dict[str, str]) -> None:
    def escaped(value: str) -> str:
        return "".join("\\" + c if c in ",=\\" else c for c in value)

    text = ",".join(f"{field}={escaped(value)}" for field, value in fields.items())
    assert parse_field_selector(text).matches(fields)
    assert not parse_field_selector(text).matches(dict.fromkeys(fields, "other"))


names = st.sampled_from(["a", "b", "c.d/e"])


@given(names, st.sets(names), st.dictionaries(names, names))
def test_notin_is_the_opposite_of_in(key: str, among: set[str], labels: dict[str, str]) -> None:
    among = {value.replace("/", "") for value in among}
    labels = {name: value.replace("/", "") for name, value in labels.items()}
    listed = ",".join(sorted(among))
    is_in = parse_label_selector(f"{key} in ({listed})").matches(labels)
    assert is_in is not parse_label_selector(f"{key} notin ({listed})").matches(labels)
    assert is_in is (labels.get(key) in among)


@given(st.text(st.sampled_from("ab=!,() in/\\"), max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_label_selector, parse_field_selector):
        try:
            selector = parse(text)
        except SelectorError:
            continue
        assert selector.matches({}) in {True, False}


def test_a_selector_of_an_object_as_clients_write_it() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "f", "operator": "DoesNotExist"},
        ],
    }
    written = format_label_selector(selector)
    assert written == "a=1,b=2,c in (x,y),d notin (z),e,!f"
    assert parse_label_selector(written).matches({"a": "1", "b": "2", "c": "x", "e": ""})
