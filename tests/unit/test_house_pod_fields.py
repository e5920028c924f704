"""Every field of a pod's spec has a row that says what becomes of it, and the row is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.schema.fields import Field, Schema, schema_of
from livesize.api.schema.pod_status import PodStatus
from livesize.api.schema.pod_template import PodSpec
from livesize.api.schema.support import NODE, AtNode, Refused, StoredOnly, Used
from livesize.api.validation.unsupported import refused_fields

SOURCES = Path(__file__).parents[2] / "src" / "livesize"
PAGE = Path(__file__).parents[2] / "docs" / "pod-fields.md"


def walk(schema: Schema) -> Iterator[tuple[str, str, Field]]:
    """Every field below a pod's spec that nothing above refuses or keeps whole."""
    for name, field in schema.fields.items():
        yield schema.name, name, field
        if field.support is None and isinstance(field.type, Schema):
            yield from walk(field.type)


WALKED = {(shape, name): field for shape, name, field in walk(schema_of(PodSpec))}
ROWS = [(*at, field.support) for at, field in WALKED.items() if field.support is not None]


def test_the_walk_goes_all_the_way_down() -> None:
    assert len(WALKED) > 200
    assert {("PodSpec", "hostAliases"), ("HTTPHeader", "value"), ("Sysctl", "name")} <= set(WALKED)


@pytest.mark.parametrize(("shape", "name"), WALKED)
def test_every_field_has_a_row(shape: str, name: str) -> None:
    field = WALKED[shape, name]
    assert field.support is not None or isinstance(field.type, Schema), (
        f"{shape}.{name} would be ignored in silence: say at its declaration where it is used,"
        " refuse it, or keep it with its reason"
    )


@pytest.mark.parametrize(
    ("shape", "field", "row"), [one for one in ROWS if isinstance(one[2], Used | AtNode)]
)
def test_the_named_module_speaks_of_the_field(shape: str, field: str, row: Used | AtNode) -> None:
    where = row.where if isinstance(row, Used) else (row.where,)
    for module in where:
        source = (SOURCES / f"{module.replace('.', '/')}.py").read_text()
        spoken = re.search(rf"\b{field}\b", source) or (shape in UNIONS and row == NODE)
        assert spoken, f"{module} says nothing of {shape}.{field}"


# Of their members a node refuses all that it does not know.
UNIONS = ("Volume", "VolumeProjection")


def path_to(shape: str) -> tuple[str, ...]:
    """The fields from a pod's spec to the first place of a shape."""
    left: list[tuple[Schema, tuple[str, ...]]] = [(schema_of(PodSpec), ())]
    while left:
        schema, path = left.pop(0)
        if schema.name == shape:
            return path
        for name, field in schema.fields.items():
            if field.support is None and isinstance(field.type, Schema):
                left.append((field.type, (*path, name)))
    raise AssertionError(shape)


def spec_with(path: tuple[str, ...], value: Any) -> Object:
    for field in reversed(path):
        value = {field: value}
    return dict(value)


def complaints(shape: str, field: str, value: Any) -> list[tuple[str, str]]:
    return list(refused_fields(spec_with((*path_to(shape), field), value)))


REFUSED = [one for one in ROWS if isinstance(one[2], Refused)]


@pytest.mark.parametrize(("shape", "field", "row"), REFUSED)
def test_what_is_refused_is_refused_with_a_sentence(shape: str, field: str, row: Refused) -> None:
    asked: Any = True not in row.fine
    where = ".".join(("spec", *path_to(shape), field))
    assert complaints(shape, field, asked) == [(where, row.detail)]
    assert re.search(r": (leave|say|use|give) ", row.detail), "it says what to do instead"


NAMES = [field for _, field, _ in ROWS]
# These judge or describe what is asked for; they carry nothing out.
JUDGES = ("pod_fields.py", "pod_security.py", "pod_template.py", "types.py")


# Names that mean something else too: of other rows, or of a pod's status.
UNCLEAR = {*(name for name in NAMES if NAMES.count(name) > 1), *schema_of(PodStatus).fields}


@pytest.mark.parametrize("field", sorted({field for _, field, _ in REFUSED} - UNCLEAR))
def test_what_is_refused_is_carried_out_nowhere(field: str) -> None:
    carrying = [
        *SOURCES.glob("agent/**/*.py"),
        *SOURCES.glob("scheduler/*.py"),
        *(path for path in SOURCES.glob("api/*.py") if path.name not in JUDGES),
        *SOURCES.glob("api/kinds/*.py"),
    ]
    users = [path.name for path in carrying if f'"{field}"' in path.read_text()]
    assert users == [], f"{field} is refused, and used by {users}: one of the two is wrong"


@pytest.mark.parametrize(("shape", "field", "row"), REFUSED)
def test_what_clients_send_by_default_asks_for_nothing(
    shape: str, field: str, row: Refused
) -> None:
    for value in (None, *row.fine, *(() if row.fine else ("", [], {}, False))):
        assert complaints(shape, field, value) == []


@pytest.mark.parametrize(
    ("shape", "field", "row"), [one for one in ROWS if isinstance(one[2], StoredOnly)]
)
def test_what_is_kept_without_effect_is_on_the_page(
    shape: str, field: str, row: StoredOnly
) -> None:
    assert row.why
    assert f"`{field}`" in PAGE.read_text(), f"{shape}.{field}"
