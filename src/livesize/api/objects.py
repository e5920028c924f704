"""API objects are plain JSON dicts, kept whole and treated as immutable.

Unknown fields therefore survive. Nothing writes into an object in place: ``evolve``
returns a new object that shares everything it did not change.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

_MISSING: Any = object()


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
    return _evolve(obj, path, value)  # type: ignore[no-any-return]


def without(obj: Object, path: Path) -> Object:
    """Return ``obj`` with the key at ``path`` left out; ``obj`` itself if it was not there."""
    if lookup(obj, *path[:-1], default=_MISSING) is _MISSING:
        return obj
    parent = lookup(obj, *path[:-1])
    if not isinstance(parent, dict) or path[-1] not in parent:
        return obj
    rest = {key: item for key, item in parent.items() if key != path[-1]}
    return evolve(obj, path[:-1], rest) if len(path) > 1 else rest


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


def name_of(obj: Object) -> str:
    return str(lookup(obj, "metadata", "name", default=""))


def namespace_of(obj: Object) -> str:
    return str(lookup(obj, "metadata", "namespace", default=""))


def uid_of(obj: Object) -> str:
    return str(lookup(obj, "metadata", "uid", default=""))


def generation_of(obj: Object) -> int:
    return int(lookup(obj, "metadata", "generation", default=0))


def version_of(obj: Object) -> str:
    """The object's resourceVersion."""
    return str(lookup(obj, "metadata", "resourceVersion", default=""))
