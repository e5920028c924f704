"""API objects are plain JSON dicts, kept whole and treated as immutable.

Unknown fields therefore survive. Nothing writes into an object in place: ``evolve``
returns a new object that shares everything it did not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
ObjectKey: TypeAlias = tuple[str, str]
"""Namespace and name."""
Path: TypeAlias = tuple[str | int, ...]


def lookup(obj: Any, *path: str | int, default: Any = None) -> Any:
    """Return what stands at ``path``, or ``default`` where the path does not lead anywhere."""
    here = obj
    for part in path:
        if isinstance(here, dict):
            here = here.get(part)  # a null has no parts, so it ends the path as nothing does
        elif isinstance(here, list) and isinstance(part, int) and -len(here) <= part < len(here):
            here = here[part]
        else:
            return default
    return default if here is None else here


def evolve(obj: Object, path: Path, value: Any) -> Object:
    """Return ``obj`` with ``value`` at ``path``; missing dicts on the way are made."""
    if len(path) == 2:  # nearly always: a field of the metadata, spec or status
        first: Any = path[0]
        part = obj.get(first)
        if isinstance(part, dict):
            return {**obj, first: {**part, path[1]: value}}
    return _evolve(obj, path, value)  # type: ignore[no-any-return]


def without(obj: Object, path: Path) -> Object:
    """Return ``obj`` with the key at ``path`` left out; ``obj`` itself if it was not there."""
    above: tuple[Any, ...] = path[:-1]
    last = path[-1]
    is_near = len(above) == 1  # nearly always, as for ``evolve``
    parent = obj.get(above[0]) if is_near else lookup(obj, *above)
    if not isinstance(parent, dict) or last not in parent:
        return obj
    rest = dict(parent)
    del rest[last]
    return {**obj, above[0]: rest} if is_near else _evolve(obj, above, rest)


def unshared(obj: Object, known: Object, levels: int = 2) -> Object:
    """``obj`` without what it shares with ``known``: parts that are the very same one in the same
    place, so many levels deep. Whoever has looked at ``known`` need not look at them again."""
    get = known.get
    rest = {key: part for key, part in obj.items() if part is None or part is not get(key)}
    if levels > 1:
        for key, part in rest.items():
            if isinstance(part, dict) and isinstance(before := get(key), dict):
                rest[key] = unshared(part, before, levels - 1)
    return rest


def _evolve(here: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        assert isinstance(here, list), f"{part} indexes something that is not a list"
        copied = list(here)
        copied[part] = _evolve(here[part], rest, value)
        return copied
    base: dict[str, Any] = here if isinstance(here, dict) else {}
    return {**base, part: _evolve(base.get(part), rest, value)}


def _reader(field: str) -> Callable[[Object], str]:
    """A text of the metadata, as ``lookup`` finds it; asked for so often that it is written out."""

    def read(obj: Object) -> str:
        metadata = obj.get("metadata")
        value = metadata.get(field) if isinstance(metadata, dict) else None
        return value if isinstance(value, str) else "" if value is None else str(value)

    return read


name_of = _reader("name")
namespace_of = _reader("namespace")
uid_of = _reader("uid")
version_of = _reader("resourceVersion")


def generation_of(obj: Object) -> int:
    metadata = obj.get("metadata")
    return int(metadata.get("generation") or 0) if isinstance(metadata, dict) else 0
