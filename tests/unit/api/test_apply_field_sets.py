"""Field sets behave as sets, and the difference of two objects is what changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.apply.comparison import Difference, compare, fields_of, without_fields
from livesize.api.apply.field_sets import (
    NOTHING,
    cut,
    difference,
    intersection,
    is_field_set,
    is_nothing,
    ordered,
    paths,
    shared,
    union,
)
from livesize.api.apply.merge import merge_applied
from livesize.api.apply.owners import (
    FieldOwner,
    Operation,
    OwnedFields,
    merge_part,
    own_again,
    own_apply,
    own_update,
    parse_entries,
    read_entries,
    write_entries,
)
from livesize.api.apply.size_comparison import compare_sizes
from livesize.api.kinds.pod import Pod
from livesize.api.schema.fields import Message, list_of, schema_of, string_set


class Port(Message):
    pass


class Item(Message):
    ports = list_of(Port, key="containerPort", keys=("containerPort", "protocol"))


class Tree(Message):
    list = list_of(Item, key="name")
    set = string_set()


SCHEMA = schema_of(Tree).root
POD_SCHEMA = schema_of(Pod).root
NAMES = st.sampled_from(["a", "b", "c"])
PLAIN = st.dictionaries(NAMES, st.integers(0, 2), min_size=1, max_size=3)
ELEMENTS = st.lists(
    st.builds(lambda name, rest: {"name": name, **rest}, NAMES, st.dictionaries(
        st.sampled_from(["x", "y"]), st.integers(0, 2))),
    unique_by=lambda item: item["name"], min_size=1, max_size=3,
)  # fmt: skip
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "map": PLAIN,
        "list": ELEMENTS,
        "set": st.lists(NAMES, unique=True, min_size=1),
        "atomic": st.lists(st.integers(0, 2), min_size=1),
        "nodeSelector": PLAIN,
    },
)
SIZES = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]))
SIZED = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "resources": st.dictionaries(st.sampled_from(["requests", "limits"]), SIZES, min_size=1),
        "resizePolicy": st.just([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
    },
)
SIZED_PODS = st.lists(SIZED, min_size=1, max_size=2, unique_by=lambda one: one["name"]).map(
    lambda containers: {"spec": {"containers": containers}}
)
ME, OTHER = (FieldOwner(name, Operation.APPLY, "v1") for name in ("me", "other"))


OWNERS = st.builds(
    FieldOwner,
    st.sampled_from(["me", "other"]),
    st.sampled_from(Operation),
    st.just("v1"),
    st.sampled_from(["", "resize"]),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
)
OWNED = st.tuples(OWNERS, OBJECTS.filter(bool))


def sets(obj: Any) -> set[str]:
    return set(paths(fields_of(obj, SCHEMA))) if obj else set()


def as_set(fields: Any) -> set[str]:
    return set(paths(fields))


@given(OBJECTS, OBJECTS)
def test_union_difference_and_intersection_are_those_of_sets(one: Any, two: Any) -> None:
    left = fields_of(one, SCHEMA) or NOTHING
    right = fields_of(two, SCHEMA) or NOTHING
    assert as_set(union(left, right)) == sets(one) | sets(two)
    assert as_set(difference(left, right)) == sets(one) - sets(two)
    assert as_set(intersection(left, right)) == sets(one) & sets(two)
    assert is_nothing(difference(left, left))


@given(OBJECTS, OBJECTS)
def test_what_changed_and_what_went_leads_from_one_to_the_other(one: Any, two: Any) -> None:
    change = compare(one, two, SCHEMA)
    before = fields_of(one, SCHEMA) or NOTHING
    after = union(cut(before, change.removed), change.changed)
    assert as_set(after) - {""} == sets(two)
    assert is_nothing(compare(two, two, SCHEMA).changed)


@given(OBJECTS, OBJECTS)
def test_applying_is_idempotent_and_says_what_it_says(live: Any, part: Any) -> None:
    merged = merge_applied(live, part, SCHEMA)
    assert merge_applied(merged, part, SCHEMA) == merged
    assert is_nothing(difference(fields_of(part, SCHEMA) or NOTHING, fields_of(merged, SCHEMA)))


@given(OBJECTS, OBJECTS, OBJECTS)
def test_applying_less_takes_back_only_what_nobody_else_owns(
    live: Any, first: Any, second: Any
) -> None:
    """Whatever the order: after the second apply its fields are there, all that others own is
    there, and nothing that only the first had."""
    base = [OwnedFields(OTHER, fields_of(live, SCHEMA))] if live else []
    one = merge_part(live, first, base, ME, SCHEMA)
    entries = own_apply(base, compare(live, one.object, SCHEMA), ME, one.fields)
    two = merge_part(one.object, second, entries, ME, SCHEMA)
    theirs = [entry.fields for entry in entries if entry.owner == OTHER]
    expected = sets(second) | {path for fields in theirs for path in paths(fields)}
    assert expected <= sets(two.object)
    extra = sets(two.object) - expected
    assert all(path.endswith(".name") or path not in sets(first) for path in extra)


def test_an_element_goes_whole_and_what_gets_empty_goes() -> None:
    value = {"list": [{"name": "a", "x": 1}, {"name": "b"}], "map": {"a": 1}, "empty": {}}
    gone = {"f:list": {'k:{"name":"a"}': {".": {}, "f:name": {}}}, "f:map": {"f:a": {}}}
    left = without_fields(value, gone, NOTHING, SCHEMA)
    assert left == {"list": [{"name": "b"}], "empty": {}}


def test_an_element_others_have_fields_of_stays() -> None:
    value = {"list": [{"name": "a", "x": 1, "y": 2}]}
    gone = {"f:list": {'k:{"name":"a"}': {".": {}, "f:x": {}}}}
    kept = {"f:list": {'k:{"name":"a"}': {"f:y": {}}}}
    assert without_fields(value, gone, kept, SCHEMA) == {"list": [{"name": "a", "y": 2}]}


def test_ports_have_two_keys_and_tcp_unless_said() -> None:
    fields = fields_of({"list": [{"name": "a", "ports": [{"containerPort": 80}]}]}, SCHEMA)
    element = fields["f:list"]['k:{"name":"a"}']
    assert 'k:{"containerPort":80,"protocol":"TCP"}' in element["f:ports"]


def test_an_update_takes_what_it_changes_from_everybody() -> None:
    owned = OwnedFields(OTHER, {"f:map": {"f:a": {}, "f:b": {}}})
    change = compare({"map": {"a": 1, "b": 1}}, {"map": {"a": 2}}, SCHEMA)
    updater = FieldOwner("me", Operation.UPDATE, "v1", time="now")
    assert own_update([owned], change, updater) == (OwnedFields(updater, {"f:map": {"f:a": {}}}),)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ({}, True),
        ({"f:a": {".": {}, 'k:{"name":"x"}': {}, 'v:"y"': {}, "i:0": {}}}, True),
        ({"a": {}}, False),
        ({"f:a": []}, False),
        ({"k:[1]": {}}, False),
        ({"k:nonsense": {}}, False),
        ({".": {"f:a": {}}}, False),
        ([], False),
    ],
)
def test_what_clients_send_as_field_sets(value: Any, is_one: bool) -> None:
    assert is_field_set(value) is is_one


@given(
    st.lists(OWNED, max_size=2, unique_by=lambda owned: owned[0].manager + owned[0].subresource),
    ELEMENTS,
    ELEMENTS | st.none(),
)
def test_who_owned_it_before_and_alone_gets_only_a_new_time(
    others: list[tuple[FieldOwner, Any]], mine: Any, changed: Any
) -> None:
    """``changed`` None: all that is mine."""
    before, now = (
        FieldOwner("me", Operation.UPDATE, "v1", "status", f"2026-01-0{day}T00:00:00Z")
        for day in (1, 2)
    )
    held = [*others, (before, {"list": mine})]
    sent = write_entries(OwnedFields(one, fields_of(obj, SCHEMA)) for one, obj in held)
    managed = write_entries(parse_entries(sent) or ())
    fields = fields_of({"list": changed or mine}, SCHEMA)
    again = own_again(managed, fields, now)
    if again is not None:
        updated = own_update(read_entries(managed), Difference(fields, NOTHING), now)
        assert again == write_entries(updated)


def test_the_time_of_an_owner_is_renewed() -> None:
    updater = FieldOwner("me", Operation.UPDATE, "v1", "resize", "2026-01-01T00:00:00Z")
    later = FieldOwner("me", Operation.UPDATE, "v1", "resize", "2026-01-02T00:00:00Z")
    managed = write_entries([OwnedFields(ME, {"f:map": {}}), OwnedFields(updater, {"f:list": {}})])
    again = own_again(managed, {"f:list": {}}, later)
    assert again == write_entries(
        [OwnedFields(ME, {"f:map": {}}), OwnedFields(later, {"f:list": {}})]
    )
    assert own_again(managed, {"f:map": {}}, later) is None
    assert own_again(managed, {"f:set": {}}, later) is None


@given(SIZED_PODS, SIZED_PODS)
def test_sizes_compared_quickly_differ_as_they_do_compared_whole(one: Any, two: Any) -> None:
    found = compare_sizes(one, two)
    assert found is None or found == compare(one, two, POD_SCHEMA)


def test_other_values_of_the_same_sizes_are_compared_quickly() -> None:
    one, two = (
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": cpu}}}]}}
        for cpu in ("1", "2")
    )
    assert compare_sizes(one, two) == compare(one, two, POD_SCHEMA)
    assert compare_sizes(one, one) == compare(one, one, POD_SCHEMA)


def written(fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


IN_ORDER = (
    '{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:a-b":{},"f:b":{}}},'
    '"f:spec":{"f:containers":{"k:{\\"name\\":\\"app\\"}":{".":{},"f:image":{},"f:name":{},'
    '"f:ports":{".":{},"k:{\\"containerPort\\":80,\\"protocol\\":\\"TCP\\"}":{},'
    '"k:{\\"containerPort\\":443,\\"protocol\\":\\"TCP\\"}":{}},'
    '"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}}},'
    '"k:{\\"name\\":\\"app-2\\"}":{}},"f:finalizers":{"v:\\"a\\"":{},"v:\\"b\\"":{}},"f:x":{"i:2":{},"i:10":{}}}}'
)


def _shuffled(fields: Any, rank: Any) -> Any:
    return {key: _shuffled(fields[key], rank) for key in sorted(fields, key=rank)}


@given(st.randoms(use_true_random=False))
def test_sets_are_written_in_the_order_of_kubernetes(random: Any) -> None:
    """structured-merge-diff: fields by name, elements by keys (numbers as numbers), values."""
    mixed = _shuffled(json.loads(IN_ORDER), lambda _: random.random())
    assert written(ordered(mixed)) == IN_ORDER
    assert written(shared(mixed)) == IN_ORDER
    assert shared(mixed) is shared(json.loads(IN_ORDER)), "equal sets are kept once"


@pytest.mark.parametrize(
    ("given_", "stored"),
    [
        pytest.param('k:{"b": 1, "a": "x"}', 'k:{"a":"x","b":1}', id="keys by name, no spaces"),
        pytest.param('k:{"name":"\\u00e4"}', 'k:{"name":"ä"}', id="no more escapes than needed"),
        pytest.param('v:"a<b"', 'v:"a\\u003cb"', id="what Go escapes is escaped"),
    ],
)
def test_what_a_client_hands_on_is_stored_in_kubernetes_words(given_: str, stored: str) -> None:
    item = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entries = parse_entries([{**item, "fieldsV1": {"f:x": {given_: {}}}}])
    assert entries is not None
    assert write_entries(entries)[0]["fieldsV1"] == {"f:x": {stored: {}}}


def test_one_key_in_two_spellings_is_one_key() -> None:
    assert ordered({'v:"a"': {"f:x": {}}, 'v:"\\u0061"': {"f:y": {}}}) == {
        'v:"a"': {"f:x": {}, "f:y": {}}
    }


@pytest.mark.parametrize("key", ['v:"\\ud800"', 'k:{"name":"\\udfff"}', "v:NaN", "v:1e999"])
def test_a_key_that_cannot_be_written_as_json_is_none(key: str) -> None:
    assert not is_field_set({"f:spec": {"f:finalizers": {key: {}}}})
