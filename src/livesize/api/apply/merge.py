"""Merges the part that a client applies into an object: its fields win, the rest stays."""

from __future__ import annotations

from typing import Any

from livesize.api.apply.list_keys import elements
from livesize.api.patch import PatchError
from livesize.api.schema.fields import Field


def merge_applied(live: Any, applied: Any, schema: Field, where: str = "") -> Any:
    """``live`` with everything ``applied`` says. Elements of lists stay where they are; new ones
    come behind them. Raises PatchError where elements of ``applied`` cannot be told apart."""
    if isinstance(applied, dict):
        merged = dict(live) if isinstance(live, dict) else {}
        for name, item in applied.items():
            path = f"{where}.{name}"
            below = schema.below(name)
            if below.is_atomic:
                merged[name] = item
            else:
                merged[name] = merge_applied(merged.get(name), item, below, path)
        return merged
    if isinstance(applied, list) and schema.merge_key is not None:
        return _merge_lists(live, applied, schema, where)
    return applied


def _merge_lists(live: Any, applied: list[Any], schema: Field, where: str) -> list[Any]:
    named = elements(applied, schema)
    if named is None:
        raise PatchError(
            f"{where}: elements must be objects with a {schema.merge_key or 'value'} of their own"
        )
    before = elements(live, schema) if isinstance(live, list) else {}
    if before is None:
        return applied
    inside = schema.element
    merged = dict(before)
    for key, item in named.items():
        merged[key] = merge_applied(before.get(key), item, inside, f"{where}[{key[2:]}]")
    return list(merged.values())
