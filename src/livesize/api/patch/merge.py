"""JSON merge patch (RFC 7386): objects are merged, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any

from livesize.api.patch import check_depth, same_parts


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged in; ``target`` itself where nothing changes.

    Raises PatchError when the patch is nested absurdly deep.
    """
    return _merge(target, patch, 0)


def _merge(target: Any, patch: Any, depth: int) -> Any:
    check_depth(depth)
    if not isinstance(patch, dict):
        return patch
    base: dict[str, Any] = target if isinstance(target, dict) else {}
    merged: dict[str, Any] = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(base.get(key), value, depth + 1)
    if base is target and same_parts(base, merged):
        return target
    return merged
