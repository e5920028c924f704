"""How many fields and items an object may have: the cost of checking one grows with them. Pure."""

from __future__ import annotations

from typing import Any

from livesize.api.errors import StatusError

MAX_ENTRIES = 10_000
MAX_WITH_OWNERS = 5 * MAX_ENTRIES
"""With managedFields, in which each owner has a field for each that it owns."""


def refuse_many(tree: Any, encoded: bytes) -> None:
    """Raises 413 for a tree, of which ``encoded`` is the JSON, with more than MAX_ENTRIES."""
    if may_be_many(encoded) and are_many(tree):
        raise too_many_entries()


def may_be_many(encoded: bytes) -> bool:
    """A quick look that never overlooks: each entry has one of these characters before it."""
    if len(encoded) <= MAX_ENTRIES:
        return False
    return encoded.count(b":") + encoded.count(b",") + encoded.count(b"[") > MAX_ENTRIES


def are_many(tree: Any) -> bool:
    return count_own_entries(tree) > MAX_ENTRIES or count_entries(tree) > MAX_WITH_OWNERS


def count_own_entries(tree: Any) -> int:
    """Without who owns which field."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    owners = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return count_entries(tree) - count_entries(owners)


def count_entries(tree: Any) -> int:
    """Fields of objects and items of lists, at all levels."""
    total, waiting = 0, [tree]
    while waiting:
        inner = waiting.pop()
        total += len(inner) if isinstance(inner, dict | list) else 0
        items = inner.values() if isinstance(inner, dict) else inner
        if isinstance(inner, dict | list):
            waiting += [one for one in items if isinstance(one, dict | list)]
    return total


def too_many_entries() -> StatusError:
    return StatusError(
        413,
        "RequestEntityTooLarge",
        f"the object has more than {MAX_ENTRIES} fields and items in all; split it",
    )
