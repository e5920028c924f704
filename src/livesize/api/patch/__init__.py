"""The three patch formats of Kubernetes: merge, JSON patch, strategic merge.

All are copy-on-write: neither target nor patch is ever changed, and the result shares with both
what it did not have to copy.
"""

from __future__ import annotations

import contextlib
import enum
import operator
from collections.abc import Iterable
from typing import Any

import orjson

MAXIMUM_DEPTH = 128


class PatchType(enum.StrEnum):
    """How a PATCH says what it changes: the content type of its body."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class PatchError(ValueError):
    """A patch cannot be applied; nothing was changed. ``code`` is the HTTP status to answer with:
    400 the patch itself is malformed, 413 it is too large, 422 it does not fit the object."""

    def __init__(self, message: str, code: int = 422) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def check_depth(depth: int) -> None:
    """Refuse a patch so deep that walking it would exhaust the stack."""
    if depth > MAXIMUM_DEPTH:
        raise PatchError(f"the patch is nested more than {MAXIMUM_DEPTH} levels deep", code=400)


def check_depth_of(value: Any) -> None:
    """The same for a whole value, without walking it recursively; what has few brackets, as nearly
    every patch, cannot be deep."""
    with contextlib.suppress(TypeError):  # it cannot be encoded, perhaps because it is too deep
        encoded = orjson.dumps(value)
        if encoded.count(b"{") + encoded.count(b"[") < MAXIMUM_DEPTH:
            return
    level, depth = [value], 0
    while level:
        check_depth(depth)
        level = [child for here in level for child in _children(here)]
        depth += 1


def same_parts(before: Any, after: Any) -> bool:
    """Nothing was replaced: every part is still the very same one, in the same place."""
    if isinstance(before, dict):
        return len(before) == len(after) and all(before.get(key) is after[key] for key in after)
    return len(before) == len(after) and all(map(operator.is_, before, after))


def equal_json(left: Any, right: Any) -> bool:
    """Equality as JSON sees it: 1 equals 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal_json(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal_json, left, right))
    return bool(left == right)


def _children(here: Any) -> Iterable[Any]:
    if isinstance(here, dict):
        return here.values()
    return here if isinstance(here, list) else ()
