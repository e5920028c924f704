"""Sets of fields in the shape of Kubernetes' fieldsV1, and what can be done with them.

A set is a tree of dicts. Keys say where: ``f:name`` a field, ``k:{"name":"db"}`` the element of a
list with these keys, ``v:"x"`` a plain value in a list. ``{}`` is a field of the set; ``.`` beside
other keys says that the field itself belongs to it, not only what is below. Sets are never changed
in place, so they may be shared. Written down they are in the order and in the words of Kubernetes
(``ordered``): clients keep fieldsV1 as the text it came in, and compare that.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

FieldSet: TypeAlias = dict[str, Any]

ITSELF = "."
NOTHING: FieldSet = {ITSELF: None}
"""The set without any field, and the only one: told by its identity, never stored."""

_KINDS = "fkvi"
"""The kinds of keys, in the order in which a set has them."""
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
"""What Go escapes in JSON besides what has to be."""
_CACHED_SETS = 4096
_CACHED_CHARACTERS = (
    16 * 1024
)  # of one set: a few times that of a pod; larger ones are no one's make


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Fields of either; ``left`` itself where it has them all."""
    if right is NOTHING or left == right:
        return left
    if left is NOTHING:
        return right
    added: FieldSet = {}
    for key, item in right.items():
        if key != ITSELF:
            both = union(left[key], item) if key in left else item
            if both is not left.get(key):
                added[key] = both
    itself = _has_itself(left) or _has_itself(right)
    if not added and itself == _has_itself(left):
        return left
    children = {key: item for key, item in left.items() if key != ITSELF}
    return _made({**children, **added}, itself=itself)


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Fields of ``left`` that are not in ``right``; ``left`` itself where that is all."""
    if left is NOTHING or right is NOTHING:
        return left
    return _reduced(left, right, difference)


def cut(fields: FieldSet, gone: FieldSet) -> FieldSet:
    """``fields`` without what is in ``gone`` or below a field of it."""
    if fields is NOTHING or gone is NOTHING:
        return fields
    if _has_itself(gone):
        return NOTHING
    return _reduced(fields, gone, cut)


def _reduced(
    left: FieldSet, right: FieldSet, reduce: Callable[[FieldSet, FieldSet], FieldSet]
) -> FieldSet:
    """``left`` with what ``right`` takes of it, itself and at each place below."""
    changed: FieldSet = {}
    for key, item in right.items():
        here = left.get(key)
        if here is not None and key != ITSELF:
            rest = reduce(here, item)
            if rest is not here:
                changed[key] = rest
    taken = (not right or ITSELF in right) and (not left or ITSELF in left)
    if not changed and not taken:
        return left
    children = {
        key: changed.get(key, item)
        for key, item in left.items()
        if key != ITSELF and changed.get(key, item) is not NOTHING
    }
    return _made(children, itself=_has_itself(left) and not taken)


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Fields of both."""
    if left is NOTHING or right is NOTHING:
        return NOTHING
    children: FieldSet = {}
    for key, item in left.items():
        if key != ITSELF and key in right:
            both = intersection(item, right[key])
            if both is not NOTHING:
                children[key] = both
    return _made(children, itself=_has_itself(left) and _has_itself(right))


def overlap(left: FieldSet, right: FieldSet) -> bool:
    """Whether any field is in both, neither of which is NOTHING."""
    for key, item in right.items():
        here = left.get(key)
        if here is not None and key != ITSELF and overlap(here, item):
            return True
    return (not right or ITSELF in right) and (not left or ITSELF in left)


def is_nothing(fields: FieldSet) -> bool:
    return fields is NOTHING


def below(fields: FieldSet, key: str) -> FieldSet:
    return fields.get(key, NOTHING) if fields is not NOTHING else NOTHING


def owns_itself(fields: FieldSet) -> bool:
    return fields is not NOTHING and _has_itself(fields)


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Each field as people write it: ``.spec.containers[name="db"].image``."""
    if fields is NOTHING:
        return
    if _has_itself(fields):
        yield prefix
    for key in sorted(fields):
        if key != ITSELF:
            yield from paths(fields[key], prefix + _shown(key))


def is_field_set(value: Any, depth: int = 0) -> bool:
    """Whether what a client sent can be read as a set of fields."""
    if not isinstance(value, dict) or depth > 100:
        return False
    return all(
        (key == ITSELF and item == {}) or (_is_key(key) and is_field_set(item, depth + 1))
        for key, item in value.items()
    )


def shared(fields: FieldSet) -> FieldSet:
    """The one copy of equal sets, in order: objects of one make have the same owners, so a thousand
    of them keep one tree."""
    text = json.dumps(fields, separators=(",", ":"))
    return _cached(text) if len(text) <= _CACHED_CHARACTERS else ordered(fields)


@functools.lru_cache(_CACHED_SETS)
def _cached(text: str) -> FieldSet:
    fields = ordered(json.loads(text))
    in_order = json.dumps(fields, separators=(",", ":"))
    return fields if in_order == text else _cached(in_order)


def ordered(fields: FieldSet) -> FieldSet:
    """The set as Kubernetes writes it: itself, then fields by name, then elements by their keys,
    then values, then indexes."""
    elements = sorted((_parsed(key), key) for key in fields if key != ITSELF)
    written: FieldSet = {ITSELF: fields[ITSELF]} if ITSELF in fields else {}
    for parsed, key in elements:
        below_it = ordered(fields[key])
        same = written.get(parsed.text)  # one key may be spelled in several ways
        written[parsed.text] = below_it if same is None else ordered(union(same, below_it))
    return written


def path_json(value: Any) -> str:
    """A key or a value of an element, as Go writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


def _has_itself(fields: FieldSet) -> bool:
    return not fields or ITSELF in fields


def _made(children: FieldSet, *, itself: bool) -> FieldSet:
    if itself:
        return {ITSELF: {}, **children} if children else {}
    return children or NOTHING


class _PathElement(msgspec.Struct, frozen=True, order=True):
    """One key of a set; compares as Kubernetes orders them."""

    place: int
    order: tuple[Any, ...]
    text: str


def _parsed(key: str) -> _PathElement:
    kind, rest = key[0], key[2:]
    place = _KINDS.index(kind)
    match kind:
        case "f":
            return _PathElement(place, (rest,), key)
        case "k":
            pairs = sorted(json.loads(rest).items())
            order = tuple((name, *_value_order(value)) for name, value in pairs)
            return _PathElement(place, order, f"k:{path_json(dict(pairs))}")
        case _:
            value = json.loads(rest)
            return _PathElement(place, _value_order(value), f"{kind}:{path_json(value)}")


def _value_order(value: Any) -> tuple[int, Any]:
    """Numbers, then texts, truth values, lists, objects, null."""
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
        case None:
            return 5, 0
        case _:
            return 3 if isinstance(value, list) else 4, path_json(value)


def _is_key(key: str) -> bool:
    if key.startswith("f:"):
        return True
    if not key.startswith(("k:", "v:", "i:")):
        return False
    try:
        value = json.loads(key[2:])
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # also half a character, and numbers that JSON has not
        return False
    return isinstance(value, dict) if key[0] == "k" else True


def _shown(key: str) -> str:
    kind, rest = key[:2], key[2:]
    if kind == "f:":
        return f".{rest}"
    if kind == "k:":
        pairs = json.loads(rest)
        return f"[{','.join(f'{name}={json.dumps(pairs[name])}' for name in sorted(pairs))}]"
    return f"[={rest}]" if kind == "v:" else f"[{rest}]"
