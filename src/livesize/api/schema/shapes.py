"""Checks that every field which we know has the JSON type it was declared with. Pure.

Each message is also compiled into a msgspec type, which says in microseconds that nothing is wrong;
only where something is, the declaration itself is walked to say what. Fields that we do not know
are free; null is a value of no type, so callers take it out first.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, unshared
from livesize.api.quantity import QuantityError, parse_quantity
from livesize.api.schema.fields import Cardinality, Field, Schema, Type


class _Quantity:
    """Compiled types have this where a quantity stands."""


_READ = _Quantity()

_COMPILED: dict[Type, Any] = {
    Type.STRING: str,
    Type.INTEGER: int,
    Type.NUMBER: float,
    Type.BOOLEAN: bool,
    Type.BYTES: str,
    Type.TIME: str,
    Type.MICRO_TIME: str,
    Type.QUANTITY: _Quantity,
    Type.INT_OR_STRING: int | str,
    Type.FIELDS: dict[Any, Any],
    Type.ANYTHING: Any,
}
_PYTHON: dict[Type, tuple[type, ...]] = {
    Type.STRING: (str,),
    Type.INTEGER: (int,),
    Type.NUMBER: (int, float),
    Type.BOOLEAN: (bool,),
    Type.BYTES: (str,),
    Type.TIME: (str,),
    Type.MICRO_TIME: (str,),
    Type.INT_OR_STRING: (int, str),
    Type.FIELDS: (dict,),
}
_DETAILS: dict[Type, str] = {
    Type.STRING: "must be a string",
    Type.INTEGER: "must be an integer",
    Type.NUMBER: "must be a number",
    Type.BOOLEAN: "must be true or false",
    Type.BYTES: "must be a string",
    Type.TIME: "must be a string",
    Type.MICRO_TIME: "must be a string",
    Type.INT_OR_STRING: "must be an integer or a string",
    Type.FIELDS: "must be an object",
}


def check_shape(schema: Schema, obj: Object, known: Object | None = None) -> list[FieldError]:
    """Every field we know that has the wrong JSON type. ``known`` has none, so that the check need
    not look again at what ``obj`` shares with it."""
    # Nothing is required: what is left of ``obj`` has a wrong type exactly if ``obj`` has one.
    try:
        msgspec.convert(
            unshared(obj, known) if known else obj, _compiled(schema), dec_hook=_read_quantity
        )
    except msgspec.ValidationError:
        return list(_message_errors(obj, schema, ""))
    return []


def unknown_fields(
    schema: Schema, obj: Object, known: Object | None = None, patch: Any = None
) -> list[str]:
    """Paths of fields that no message has. Where ``obj`` was made of ``known`` by a ``patch``, only
    those that the patch names or changes: the others are stored already, and not its fault."""
    rest = obj if known is None else unshared(obj, known)
    if _has_known_fields(rest, schema) and (known is None or _has_known_fields(patch, schema)):
        return []
    if known is None:
        return [path for path, _ in _unknown(obj, schema.root, "")]
    named = {_anywhere(path) for path, _ in _unknown(patch, schema.root, "")}
    rest = obj if named else rest
    found = [(path, _anywhere(path), value) for path, value in _unknown(rest, schema.root, "")]
    if not found:
        return []
    before = [(_anywhere(path), value) for path, value in _unknown(known, schema.root, "")]
    return [
        path
        for path, anywhere, value in found
        if anywhere in named or (anywhere, value) not in before
    ]


@functools.cache
def _compiled(schema: Schema) -> Any:
    """A type that msgspec converts to exactly what ``_message_errors`` has nothing to say about."""
    fields = [(name, _compiled_field(field), None) for name, field in schema.fields.items()]
    return msgspec.defstruct(schema.name, fields, gc=False)


def _compiled_field(field: Field) -> Any:
    one = _compiled(field.type) if isinstance(field.type, Schema) else _COMPILED[field.type]
    return _as_often(one, field)


def _as_often(one: Any, field: Field) -> Any:
    match field.cardinality:
        case Cardinality.ONE:
            return one
        case Cardinality.LIST:
            return list[one]
        case Cardinality.MAP:
            return dict[str, one]


def _has_known_fields(value: Any, schema: Schema) -> bool:
    """False where something may be unknown; in microseconds, as the check of types."""
    try:
        msgspec.convert(value, _structure(schema))
    except msgspec.ValidationError:
        return False
    return True


@functools.cache
def _structure(schema: Schema) -> Any:
    """A type of messages in messages, whatever the values are."""
    fields = [
        (name, _as_often(_structure(field.type), field), None)
        if isinstance(field.type, Schema)
        else (name, Any, None)
        for name, field in schema.fields.items()
    ]
    return msgspec.defstruct(schema.name, fields, forbid_unknown_fields=True, gc=False)


def _read_quantity(_: type, value: Any) -> _Quantity:
    """msgspec calls it for the type that it does not know, and takes ValueError for a refusal."""
    parse_quantity(value)
    return _READ


def _message_errors(value: Any, schema: Schema, where: str) -> Iterator[FieldError]:
    if not isinstance(value, dict):
        yield _wrong(where, "must be an object", value)
        return
    for name, field in schema.fields.items():
        if name in value:
            yield from _field_errors(value[name], field, f"{where}.{name}" if where else name)


def _field_errors(value: Any, field: Field, where: str) -> Iterator[FieldError]:
    match field.cardinality:
        case Cardinality.ONE:
            yield from _value_errors(value, field.type, where)
        case Cardinality.LIST if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _value_errors(item, field.type, f"{where}[{index}]")
        case Cardinality.MAP if isinstance(value, dict):
            for name, item in value.items():
                yield from _value_errors(item, field.type, f"{where}[{name}]")
        case _:
            kind = "a list" if field.cardinality is Cardinality.LIST else "an object"
            yield _wrong(where, f"must be {kind}", value)


def _value_errors(value: Any, type_: Type | Schema, where: str) -> Iterator[FieldError]:
    if isinstance(type_, Schema):
        yield from _message_errors(value, type_, where)
    elif type_ is Type.QUANTITY:
        try:
            parse_quantity(value)
        except QuantityError as error:
            yield _wrong(where, str(error), value)
    elif type_ is not Type.ANYTHING and type(value) not in _PYTHON[type_]:
        yield _wrong(where, _DETAILS[type_], value)


def _wrong(field: str, detail: str, value: Any) -> FieldError:
    shown = value if isinstance(value, str | int | float | bool) else None
    return FieldError(FieldErrorKind.TYPE_INVALID, field, detail, shown)


def _anywhere(path: str) -> str:
    """Elements of a list may have moved."""
    return _INDEX.sub("[]", path)


_INDEX = re.compile(r"\[\d+\]")


def _unknown(value: Any, field: Field, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and field.cardinality is Cardinality.LIST:
        for index, item in enumerate(value):
            yield from _unknown(item, field.element, f"{where}[{index}]")
    elif isinstance(value, dict) and isinstance(field.type, Schema):
        for name, item in value.items():
            here = f"{where}.{name}" if where else name
            if name in field.fields:
                yield from _unknown(item, field.fields[name], here)
            else:
                yield here, item
