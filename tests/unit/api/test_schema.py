"""A message that is declared once is checked, merged, read from protobuf and described by that."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.apply.comparison import fields_of
from livesize.api.objects import Object
from livesize.api.patch.strategic import strategic_merge
from livesize.api.schema.fields import (
    UNKNOWN,
    Cardinality,
    Message,
    Schema,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    quantities,
    scalar,
    schema_of,
    string,
    string_map,
    string_set,
)
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.shapes import check_shape, unknown_fields
from livesize.apiserver.http.openapi_schemas import definitions
from livesize.apiserver.http.protobuf import _message

TOYS = "com.example.toys.v1"


class Wheel(Message, package=TOYS):
    """What it rolls on."""

    name = string(1, description="Which one.")
    inches = integer(2, keeps_zero=True)


class Paint(Message, package=TOYS, is_atomic=True):
    colour = string(1)


class Engine(Message, package=TOYS):
    power = quantities(1)
    runs = boolean(2)


class CarSpec(Message, package=TOYS, inlined={1: Engine}):
    wheels = list_of(Wheel, 2, key="name", keys=("name", "inches"))
    paint = object_of(Paint, 3)
    selector = string_map(4, is_atomic=True)
    tags = string_set(5)
    plate = scalar(Type.INT_OR_STRING, 6)
    notes = anything()


class Car(TypedObject, package=TOYS):
    spec = object_of(CarSpec, 2)


CAR = schema_of(Car)
GOOD: Object = {
    "apiVersion": "toys.example.com/v1",
    "kind": "Car",
    "metadata": {"name": "c", "labels": {"a": "b"}},
    "spec": {
        "power": {"kW": "55"},
        "wheels": [{"name": "left", "inches": 15}],
        "paint": {"colour": "red"},
        "plate": 7,
        "notes": [{"any": [1, None]}],
    },
}


def test_fields_of_base_classes_and_inlined_messages_are_its_own_in_json() -> None:
    assert list(CAR.fields) == ["apiVersion", "kind", "metadata", "spec"]
    assert list(schema_of(CarSpec).fields)[:3] == ["power", "runs", "wheels"]
    assert next(iter(schema_of(CarSpec).own_fields)) == "wheels"
    assert CAR.full_name == f"{TOYS}.Car"


def test_a_walk_ends_where_nothing_is_declared() -> None:
    wheels = CAR.root.below("spec").below("wheels")
    assert (wheels.cardinality, wheels.element.below("name").type) == (
        Cardinality.LIST,
        Type.STRING,
    )
    assert wheels.below("nothing") is UNKNOWN
    assert CAR.root.below("metadata").below("labels").below("a") is UNKNOWN


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("power", {"kW": "much"}, "spec.power[kW]: quantities must match"),
        ("power", [], "spec.power: must be an object"),
        ("runs", 1, "spec.runs: must be true or false"),
        ("wheels", {}, "spec.wheels: must be a list"),
        ("wheels", [{"inches": "15"}], "spec.wheels[0].inches: must be an integer"),
        ("wheels", [None], "spec.wheels[0]: must be an object"),
        ("paint", {"colour": None}, "spec.paint.colour: must be a string"),
        ("tags", ["a", 1], "spec.tags[1]: must be a string"),
        ("plate", True, "spec.plate: must be an integer or a string"),
    ],
)
def test_a_wrong_type_is_named_with_its_field(field: str, value: Any, says: str) -> None:
    obj = {**GOOD, "spec": {**GOOD["spec"], field: value}}
    (error,) = check_shape(CAR, obj)
    assert f"{error.field}: {error.detail}".startswith(says)


def test_a_good_object_and_what_it_has_that_is_not_declared() -> None:
    more = {**GOOD, "spec": {**GOOD["spec"], "wheels": [{"name": "a", "rim": 1}], "horn": {}}}
    assert check_shape(CAR, GOOD) == check_shape(CAR, more) == []
    assert unknown_fields(CAR, GOOD) == []
    assert unknown_fields(CAR, more) == ["spec.wheels[0].rim", "spec.horn"]


def test_patches_and_apply_tell_elements_by_their_keys() -> None:
    patch = {"spec": {"wheels": [{"name": "left", "inches": 16}], "paint": {"colour": "blue"}}}
    merged = strategic_merge(GOOD, patch, CAR.root)
    assert merged["spec"]["wheels"] == [{"name": "left", "inches": 16}]
    spec = {**merged["spec"], "selector": {"a": "b"}, "tags": ["x"]}
    fields = fields_of({"spec": spec}, CAR.root)["f:spec"]
    assert 'k:{"inches":16,"name":"left"}' in fields["f:wheels"]
    assert (fields["f:paint"], fields["f:selector"]) == ({}, {})
    assert fields["f:tags"] == {'v:"x"': {}}


def test_protobuf_nests_what_json_has_inline() -> None:
    engine = b"\x0a\x02\x10\x01"
    wheel = b"\x12\x05\x0a\x01l\x10\x00"
    assert _message(schema_of(CarSpec), engine + wheel) == {
        "runs": True,
        "wheels": [{"name": "l", "inches": 0}],
    }


def test_openapi_has_the_group_in_each_name_and_how_each_field_is_merged() -> None:
    found = definitions([CAR])
    assert {f"{TOYS}.{name}" for name in ("Car", "CarSpec", "Paint", "Wheel")} <= set(found)
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in found
    assert found[f"{TOYS}.Wheel"]["description"] == "What it rolls on."
    assert found[f"{TOYS}.Wheel"]["properties"]["name"]["description"] == "Which one."
    assert found[f"{TOYS}.Paint"]["x-kubernetes-map-type"] == "atomic"
    spec = found[f"{TOYS}.CarSpec"]["properties"]
    assert spec["wheels"] == {
        "type": "array",
        "items": {"$ref": f"#/components/schemas/{TOYS}.Wheel"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name", "inches"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }
    assert spec["tags"]["x-kubernetes-list-type"] == "set"
    assert spec["selector"]["x-kubernetes-map-type"] == "atomic"
    assert isinstance(CAR, Schema)
