"""Which fields an object has, which differ between two, and an object without some of them."""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.apply.field_sets import (
    ITSELF,
    NOTHING,
    FieldSet,
    below,
    is_nothing,
    owns_itself,
)
from livesize.api.apply.list_keys import elements
from livesize.api.patch import equal_json
from livesize.api.schema.fields import UNKNOWN, Field


class Difference(msgspec.Struct, frozen=True):
    """``changed``: added or with another value; ``removed``: no longer there, nor anything that
    was below."""

    changed: FieldSet
    removed: FieldSet


SAME = Difference(NOTHING, NOTHING)
_WITH_PARTS = (dict, list)


def fields_of(value: Any, schema: Field) -> FieldSet:
    """Every field of ``value``; of an object, not of something plain."""
    if isinstance(value, dict):
        return {f"f:{name}": _field_set(item, schema.below(name)) for name, item in value.items()}
    if isinstance(value, list):
        named = elements(value, schema)
        if not named:
            return {}
        return {key: _element_fields(item, schema) for key, item in named.items()}
    return {}


def _field_set(item: Any, schema: Field) -> FieldSet:
    return {} if schema.is_atomic else fields_of(item, schema)


def _element_fields(item: Any, schema: Field) -> FieldSet:
    inside = fields_of(item, schema.element)
    return {ITSELF: {}, **inside} if inside else {}


def compare(old: Any, new: Any, schema: Field) -> Difference:
    """From ``old`` to ``new``. What both share is not looked into, so a small change of a large
    object is found quickly."""
    if old is new:
        return SAME
    if isinstance(new, dict) and isinstance(old, dict):
        return _compare_maps(old, new, schema)
    if isinstance(new, list) and isinstance(old, list):
        return _compare_lists(old, new, schema)
    if equal_json(old, new):
        return SAME
    return Difference(fields_of(new, schema), {} if isinstance(old, _WITH_PARTS) else NOTHING)


def _compare_maps(old: dict[str, Any], new: dict[str, Any], schema: Field) -> Difference:
    changed: FieldSet = {}
    removed: FieldSet = {}
    below_here = schema.fields
    for name, item in new.items():
        before = old.get(name, _ABSENT)
        if before is item:
            continue
        if isinstance(item, str) and not isinstance(before, _WITH_PARTS):
            if before != item:
                changed[f"f:{name}"] = {}
            continue
        below_it = below_here.get(name, UNKNOWN)
        if before is _ABSENT or below_it.is_atomic:
            if not equal_json(before, item):
                changed[f"f:{name}"] = _field_set(item, below_it)
        elif (found := compare(before, item, below_it)) is not SAME:
            _note(f"f:{name}", found, changed, removed)
    if not old.keys() <= new.keys():
        removed |= {f"f:{name}": {} for name in old if name not in new}
    if old and not new:
        return Difference({}, removed)
    return _difference(changed, removed)


def _compare_lists(old: list[Any], new: list[Any], schema: Field) -> Difference:
    before, after = elements(old, schema), elements(new, schema)
    if before is None or after is None:
        return SAME if equal_json(old, new) else Difference({}, NOTHING)
    inside = schema.element
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, item in after.items():
        if key not in before:
            changed[key] = _element_fields(item, schema)
        elif before[key] is not item:
            _note(key, compare(before[key], item, inside), changed, removed)
    for key in before:
        if key not in after:
            removed[key] = {}
    return _difference(changed, removed)


def _difference(changed: FieldSet, removed: FieldSet) -> Difference:
    return Difference(changed or NOTHING, removed or NOTHING) if changed or removed else SAME


def _note(key: str, found: Difference, changed: FieldSet, removed: FieldSet) -> None:
    if found.changed is not NOTHING:
        changed[key] = found.changed
    if found.removed is not NOTHING:
        removed[key] = found.removed


def without_fields(value: Any, fields: FieldSet, others: FieldSet, schema: Field) -> Any:
    """``value`` without the fields of the set, except those that are, or hold, one of ``others``.
    What is empty only because of that goes too."""
    if isinstance(value, dict):
        items = {f"f:{name}": item for name, item in value.items()}
    elif isinstance(value, list) and (named := elements(value, schema)):
        items = named
    else:
        return value
    rest: dict[str, Any] = {}
    for key, item in items.items():
        going, staying = below(fields, key), below(others, key)
        if is_nothing(going):
            rest[key] = item
        elif not (owns_itself(going) and is_nothing(staying)):
            inner = schema.below(key[2:]) if isinstance(value, dict) else schema.element
            left = without_fields(item, going, staying, inner)
            if left or not item or not isinstance(item, dict | list):
                rest[key] = left
    if isinstance(value, dict):
        return {key[2:]: item for key, item in rest.items()}
    return list(rest.values())


_ABSENT: Any = object()
