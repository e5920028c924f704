"""Strategic merge patch, as kubectl and client-go use it.

Objects are merged and null removes, as in a merge patch; lists that have a merge key are merged
element by element; lists that have none are replaced. The keys are those of Kubernetes, because
kubectl computes its patches with them: a list merged here but replaced there could not be shortened
any more. Directives:

- ``$patch: delete | replace | merge`` in an object, or in an element of a merged list
- ``$retainKeys: [...]`` in an object: its other fields go
- ``$setElementOrder/LIST: [...]`` beside LIST: the order of the elements afterwards
- ``$deleteFromPrimitiveList/LIST: [...]`` beside LIST: values that go

Order of a merged list: what the patch (or $setElementOrder) names stands in that order; the other
elements stay before the named ones they stood before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from livesize.api.patch import PatchError, check_depth_of, same_parts
from livesize.api.schema.fields import SET, UNKNOWN, Field

__all__ = ["PatchError", "strategic_merge"]

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_SET_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"
_DIRECTIVES = ("delete", "merge", "replace")

PatchedFields: TypeAlias = dict[str, Any]
ElementKey: TypeAlias = str | int | float
_GONE: Any = object()
_PLAIN = frozenset({str})


class _Element(msgspec.Struct, frozen=True):
    """One element of a merged list; ``before`` is where it stood, None if the patch added it."""

    key: ElementKey | None
    value: Any
    before: int | None


def strategic_merge(target: Any, patch: Any, schema: Field) -> Any:
    """Return ``target`` with ``patch`` merged in. Raises PatchError."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object", code=400)
    # One check here bounds every recursion below: none goes deeper than the patch.
    check_depth_of(patch)
    return _merge_fields(target if isinstance(target, dict) else {}, patch, schema)


def _merge_fields(original: PatchedFields, patch: PatchedFields, schema: Field) -> PatchedFields:
    merged = dict(original)
    fields: Iterable[str] = patch
    if "$" in "".join(patch):  # there may be directives
        match _directive(patch):
            case "delete":
                return {}
            case "replace":
                return _cleaned_fields(patch)
            case _:
                merged = _retained(original, patch)
                fields = _fields_named_in(patch)
    elif _PLAIN.issuperset(map(type, patch.values())):
        merged.update(patch)
        return original if merged == original else merged
    changed = len(merged) < len(original)
    for field in fields:
        value, here = patch.get(field, _GONE), original.get(field, _GONE)
        if isinstance(value, dict) and isinstance(here, dict):
            value = _merge_fields(here, value, schema.fields.get(field, UNKNOWN))
        elif not isinstance(value, str):
            below = schema.fields.get(field, UNKNOWN)
            value = _merge_field(here, patch, field, below)
        if value is merged.get(field, _GONE):
            continue
        changed = True
        if value is _GONE:
            del merged[field]
        else:
            merged[field] = value
    return merged if changed else original


def _merge_field(here: Any, patch: PatchedFields, field: str, schema: Field) -> Any:
    """A field that is not a map in both."""
    given = patch.get(field, _GONE)
    if given is None:
        return _GONE
    if isinstance(given, dict):
        return _GONE if _is_delete(given) else _cleaned(given)
    if isinstance(here, list) and (given is _GONE or isinstance(given, list)):
        return _merge_list(here, patch, field, schema)
    return here if given is _GONE else _cleaned(given)


def _merge_list(here: list[Any], patch: PatchedFields, field: str, schema: Field) -> list[Any]:
    at = _only_one(here, patch, field, schema.merge_key)
    if at is not None:
        merged = _merge_fields(here[at], patch[field][0], schema)
        return here if merged is here[at] else [*here[:at], merged, *here[at + 1 :]]
    return _merge_by_rules(here, patch, field, schema)


def _only_one(
    here: list[Any], patch: PatchedFields, field: str, merge_key: str | None
) -> int | None:
    """The usual case, quickly: a patch of one element that is there, and nothing said beside."""
    given = patch.get(field)
    if not merge_key or given is None or len(given) != 1 or not isinstance(given[0], dict):
        return None
    key = given[0].get(merge_key)
    if isinstance(key, str) and "$" not in "".join((*patch, *given[0])):
        for at, item in enumerate(here):
            if isinstance(item, dict) and item.get(merge_key) == key:
                return at
    return None


def _merge_by_rules(here: list[Any], patch: PatchedFields, field: str, schema: Field) -> list[Any]:
    removed = _list_of(patch, _DELETE_VALUES + field, default=[])
    if removed:
        here = _without_values(here, removed)
    given = _list_of(patch, field, default=None)
    if schema.merge_key is None:
        return here if given is None else _cleaned_list(given)
    if any(isinstance(item, dict) and _directive(item) == "replace" for item in given or ()):
        return _cleaned_list(given)
    staying = [item for item in given or () if not _is_delete(item)]
    merged = _merge_elements(here, given or [], staying, schema)
    named = _keys(staying, schema.merge_key)
    order = _list_of(patch, _SET_ORDER + field, default=None)
    if order is not None:
        wanted = _keys(order, schema.merge_key)
        _check_order(named, wanted, field)
        named = wanted
    result = _in_order(merged, named)
    return here if same_parts(here, result) else result


def _merge_elements(
    here: list[Any], given: list[Any], staying: list[Any], schema: Field
) -> list[_Element]:
    """``staying``: those of ``given`` that do not delete."""
    merge_key = schema.merge_key
    assert merge_key is not None
    deleted: set[ElementKey] = set()
    if len(staying) < len(given):
        deleted = set(_keys([item for item in given if _is_delete(item)], merge_key))
    old = [_Element(_key_or_none(item, merge_key), item, at) for at, item in enumerate(here)]
    merged = [element for element in old if element.key not in deleted]
    # Written backwards, so that of two elements with one key the first is found.
    places = {merged[at].key: at for at in reversed(range(len(merged)))}
    for value in staying:
        key = _key_of(value, merge_key)
        at = places.get(key)
        if at is None:
            places[key] = len(merged)
            merged.append(_Element(key, _cleaned(value), None))
        elif merge_key != SET:
            found = merged[at]
            merged[at] = _Element(key, _merge_fields(found.value, value, schema), found.before)
    return merged


def _in_order(elements: Sequence[_Element], named: Sequence[ElementKey]) -> list[Any]:
    """Named elements as named; the others where they were, as far as that is compatible."""
    if len(named) == 1 and elements[-1].before is not None:  # nothing moves, and nothing is new
        return [element.value for element in elements]
    rank = {key: index for index, key in enumerate(named)}
    others = deque(element for element in elements if element.key not in rank)
    ordered = sorted(
        (element for element in elements if element.key in rank),
        key=lambda element: rank[element.key],  # type: ignore[index]
    )
    result: list[Any] = []
    for element in ordered:
        while others and _stood_before(others[0], element):
            result.append(others.popleft().value)
        result.append(element.value)
    return [*result, *(element.value for element in others)]


def _stood_before(left: _Element, right: _Element) -> bool:
    return left.before is not None and right.before is not None and left.before < right.before


def _check_order(named: Sequence[ElementKey], wanted: Sequence[ElementKey], field: str) -> None:
    places = {key: index for index, key in enumerate(wanted)}
    missing = [key for key in named if key not in places]
    if missing:
        raise PatchError(f"{_SET_ORDER}{field} does not name {missing[0]!r}", code=400)
    indexes = [places[key] for key in named]
    if indexes != sorted(indexes):
        raise PatchError(f"{_SET_ORDER}{field} has another order than {field}", code=400)


def _retained(original: PatchedFields, patch: PatchedFields) -> PatchedFields:
    """A copy of the original, with only the fields that ``$retainKeys`` names."""
    if _RETAIN_KEYS not in patch:
        return dict(original)
    retained = _list_of(patch, _RETAIN_KEYS, default=[])
    for field, value in patch.items():
        if not field.startswith("$") and value is not None and field not in retained:
            raise PatchError(f"{_RETAIN_KEYS} does not name {field!r}", code=400)
    return {field: value for field, value in original.items() if field in retained}


def _fields_named_in(patch: PatchedFields) -> list[str]:
    """Fields the patch says something about, plainly or by a directive beside them."""
    names: dict[str, None] = {}
    for field in patch:
        if field.startswith((_SET_ORDER, _DELETE_VALUES)):
            names[field.split("/", 1)[1]] = None
        elif field not in (_PATCH, _RETAIN_KEYS):
            names[field] = None
    return list(names)


def _directive(patch: Mapping[str, Any]) -> str | None:
    directive = patch.get(_PATCH)
    if directive is None:
        return None
    if directive not in _DIRECTIVES:
        raise PatchError(f"{_PATCH} must be one of {', '.join(_DIRECTIVES)}", code=400)
    return str(directive)


def _list_of(patch: PatchedFields, directive: str, *, default: Any) -> Any:
    value = patch.get(directive, default)
    if value is not default and not isinstance(value, list):
        raise PatchError(f"{directive} must be a list", code=400)
    return value


def _is_delete(value: Any) -> bool:
    return isinstance(value, dict) and _directive(value) == "delete"


def _without_values(here: list[Any], removed: list[Any]) -> list[Any]:
    keys = set(_keys(removed, SET))
    return [item for item in here if _key_or_none(item, SET) not in keys]


def _keys(elements: list[Any], merge_key: str) -> list[ElementKey]:
    return [_key_of(element, merge_key) for element in elements]


def _key_of(element: Any, merge_key: str) -> ElementKey:
    key = _key_or_none(element, merge_key)
    if key is not None:
        return key
    if merge_key == SET:
        raise PatchError("this list holds plain values only", code=400)
    raise PatchError(f"an element of a list has no merge key {merge_key!r}", code=400)


def _key_or_none(element: Any, merge_key: str) -> ElementKey | None:
    key = element
    if merge_key != SET:
        key = element.get(merge_key) if isinstance(element, dict) else None
    return key if isinstance(key, str | int | float) else None


def _cleaned(value: Any) -> Any:
    """A value new to the object: without nulls and directives."""
    if isinstance(value, dict):
        return _cleaned_fields(value)
    return _cleaned_list(value) if isinstance(value, list) else value


def _cleaned_fields(patch: PatchedFields) -> PatchedFields:
    return _merge_fields({}, {**patch, _PATCH: "merge"}, UNKNOWN)


def _cleaned_list(values: list[Any]) -> list[Any]:
    return [_cleaned(item) for item in values if not _is_removed(item)]


def _is_removed(value: Any) -> bool:
    return isinstance(value, dict) and _directive(value) in {"delete", "replace"}
