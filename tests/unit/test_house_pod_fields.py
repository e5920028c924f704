"""Every field of a pod's spec has a row that says what becomes of it, and the row is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.api.objects import Object
from livesize.api.pod_fields import POD_FIELDS, AtNode, Inside, Kept, Refused, Used, refused_fields
from livesize.apiserver.http.protobuf_pods import POD_MESSAGES
from livesize.apiserver.http.protobuf_tables import MESSAGES
from livesize.apiserver.schemas import definitions, full_name

SOURCES = Path(__file__).parents[2] / "src" / "livesize"
PAGE = Path(__file__).parents[2] / "docs" / "pod-fields.md"
REFERENCE = re.compile(r"'\$ref': '#/components/schemas/[\w.]*?(\w+)'")
SCHEMAS = definitions()
TABLES = {**MESSAGES, **POD_MESSAGES}


def fields_of(shape: str) -> dict[str, str]:
    """Each field of a shape, as OpenAPI and as protobuf serve it, and the shape inside it."""
    found: dict[str, str] = {}
    for field, schema in (SCHEMAS.get(full_name(shape)) or {}).get("properties", {}).items():
        inner = REFERENCE.search(str(schema))
        found[field] = inner.group(1) if inner else ""
    for line in TABLES.get(shape, {}).values():
        field, kind = line.split(": ", 1)
        inner_shape = kind.removeprefix("* ").removeprefix("map ").rstrip("?")
        if field == "...":
            found |= fields_of(inner_shape)
        elif inner_shape in TABLES:
            found[field] = inner_shape
        else:
            found.setdefault(field, "")
    return found


def walk(shape: str = "PodSpec", seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Every shape and field below a pod's spec that nothing above refuses or keeps whole."""
    for field, inner in fields_of(shape).items():
        yield shape, field
        row = POD_FIELDS.get(shape, {}).get(field)
        if isinstance(row, Inside) and inner not in seen:
            yield from walk(inner, seen | {inner})


WALKED = sorted(set(walk()))
ROWS = [(shape, field, row) for shape, rows in POD_FIELDS.items() for field, row in rows.items()]


def test_the_walk_goes_all_the_way_down() -> None:
    assert len(WALKED) > 200
    assert {("PodSpec", "hostAliases"), ("HTTPHeader", "value"), ("Sysctl", "name")} <= set(WALKED)


@pytest.mark.parametrize(("shape", "field"), WALKED)
def test_every_field_has_a_row(shape: str, field: str) -> None:
    row = POD_FIELDS.get(shape, {}).get(field)
    assert row is not None, (
        f"{shape}.{field} would be ignored in silence: say in livesize.api.pod_fields where it is"
        " used, refuse it, or list it with its reason"
    )
    if isinstance(row, Inside):
        assert row.shape == fields_of(shape)[field]


def test_no_row_is_about_a_field_that_does_not_exist() -> None:
    assert {(shape, field) for shape, field, _ in ROWS} == set(WALKED)


@pytest.mark.parametrize(
    ("shape", "field", "row"), [one for one in ROWS if isinstance(one[2], Used | AtNode)]
)
def test_the_named_module_speaks_of_the_field(shape: str, field: str, row: Used | AtNode) -> None:
    where = row.where if isinstance(row, Used) else (row.where,)
    for module in where:
        source = (SOURCES / f"{module.replace('.', '/')}.py").read_text()
        spoken = re.search(rf"\b{field}\b", source) or field in ("nfs", "serviceAccountToken")
        assert spoken, f"{module} says nothing of {shape}.{field}"


def path_to(shape: str) -> tuple[str, ...]:
    """The fields from a pod's spec to the first place of a shape."""
    paths: dict[str, tuple[str, ...]] = {"PodSpec": ()}
    left = ["PodSpec"]
    while left:
        outer = left.pop(0)
        for field, row in POD_FIELDS[outer].items():
            if isinstance(row, Inside) and row.shape not in paths:
                paths[row.shape] = (*paths[outer], field)
                left.append(row.shape)
    return paths[shape]


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
UNCLEAR = {*(name for name in NAMES if NAMES.count(name) > 1), *fields_of("PodStatus")}


@pytest.mark.parametrize("field", sorted({field for _, field, _ in REFUSED} - UNCLEAR))
def test_what_is_refused_is_carried_out_nowhere(field: str) -> None:
    carrying = [
        *SOURCES.glob("agent/**/*.py"),
        *SOURCES.glob("scheduler/*.py"),
        *(path for path in SOURCES.glob("api/*.py") if path.name not in JUDGES),
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
    ("shape", "field", "row"), [one for one in ROWS if isinstance(one[2], Kept)]
)
def test_what_is_kept_without_effect_is_on_the_page(shape: str, field: str, row: Kept) -> None:
    assert row.why
    assert f"`{field}`" in PAGE.read_text(), f"{shape}.{field}"
