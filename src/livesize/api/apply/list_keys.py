"""How apply sees lists: by which keys (Kubernetes' listMapKey) their elements are told apart."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from livesize.api.apply.field_sets import path_json
from livesize.api.schema.fields import SET, Field

_LONGEST_CACHED = 256
_KEY_DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}
"""What a key is when it is not given."""


def by_element(items: list[Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The elements by their names in a field set; None where they cannot be told apart."""
    named: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, dict):
            return None
        name = _plain_name(keys, item) or _element_name(
            tuple((key, item.get(key, _KEY_DEFAULTS.get(key))) for key in keys)
        )
        if name is None or name in named:
            return None
        named[name] = item
    return named


def by_value(items: list[Any]) -> dict[str, Any] | None:
    named: dict[str, Any] = {}
    for item in items:
        if isinstance(item, dict | list):
            return None
        named[f"v:{path_json(item)}"] = item
    return named


def elements(value: list[Any], schema: Field) -> dict[str, Any] | None:
    """The elements of a list by name; None where it is owned as a whole."""
    if schema.list_keys:
        return by_element(value, schema.list_keys)
    return by_value(value) if schema.merge_key == SET else None


def _plain_name(keys: tuple[str, ...], item: dict[str, Any]) -> str | None:
    """The usual case, quickly: one key, and its value a text."""
    value = item.get(keys[0])
    if len(keys) > 1 or not isinstance(value, str) or len(value) > _LONGEST_CACHED:
        return None
    return _one_text(keys[0], value)


def element_name(name: str) -> str:
    """Of an element that is told from others by its name."""
    return _one_text("name", name)


@functools.lru_cache(4096)
def _one_text(key: str, value: str) -> str:
    return f"k:{path_json({key: value})}"


def _element_name(pairs: tuple[tuple[str, Any], ...]) -> str | None:
    if any(isinstance(value, dict | list) for _, value in pairs):
        return None
    if any(isinstance(value, str) and len(value) > _LONGEST_CACHED for _, value in pairs):
        return _format(pairs)  # not to be kept: names are short, and memory is not for nonsense
    return _formatted(pairs, tuple(type(value) for _, value in pairs))


@functools.lru_cache(4096)
def _formatted(pairs: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> str | None:
    """``_types`` tells 1 from true in the cache."""
    return _format(pairs)


def _format(pairs: tuple[tuple[str, Any], ...]) -> str | None:
    given = {key: value for key, value in sorted(pairs) if value is not None}
    if not given:
        return None
    return f"k:{path_json(given)}"
