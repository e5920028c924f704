"""JSON patch (RFC 6902): add, remove, replace, move, copy, test, all or nothing.

Only the containers on the way to a change are copied. An error says which operation failed and
why. Three limits keep a small patch from making a huge object: the number of operations, the
depth of the result, and the size of everything that ``copy`` repeats.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from livesize.api.patch import MAXIMUM_DEPTH, PatchError, check_depth_of, equal_json

__all__ = ["MAXIMUM_COPIED_CHARACTERS", "MAXIMUM_OPERATIONS", "PatchError", "apply_json_patch"]

MAXIMUM_OPERATIONS = 1000
MAXIMUM_COPIED_CHARACTERS = 3 * 2**20

Pointer: TypeAlias = tuple[str, ...]

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")


class _Operation(msgspec.Struct, frozen=True):
    """One operation, checked and with its pointers taken apart."""

    op: str
    path: Pointer
    source: Pointer = ()
    value: Any = None


def apply_json_patch(
    target: Any,
    operations: Any,
    *,
    maximum_operations: int = MAXIMUM_OPERATIONS,
    maximum_copied_characters: int = MAXIMUM_COPIED_CHARACTERS,
) -> Any:
    """Return ``target`` with the operations applied one after the other. Raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch must be a list of operations", code=400)
    if len(operations) > maximum_operations:
        raise PatchError(
            f"the allowed maximum operations in a JSON patch is {maximum_operations},"
            f" got {len(operations)}",
            code=413,
        )
    parsed = [_parse(index, item) for index, item in enumerate(operations)]
    copied_characters = 0
    for index, operation in enumerate(parsed):
        try:
            if operation.op == "copy":
                value = _value_at(target, operation.source)
                copied_characters += _count_characters(
                    value, maximum_copied_characters - copied_characters
                )
            target = _APPLY[operation.op](target, operation)
        except PatchError as failure:
            shown = f"{operation.op} {_format_pointer(operation.path)!r}"
            message = f"operation {index} ({shown}): {failure.message}"
            raise PatchError(message, failure.code) from None
    if any(operation.op in _DEEPENING for operation in parsed):
        check_depth_of(target)
    return target


def _parse(index: int, item: Any) -> _Operation:
    try:
        return _parse_operation(item)
    except PatchError as failure:
        raise PatchError(f"operation {index}: {failure.message}", failure.code) from None


def _parse_operation(item: Any) -> _Operation:
    if not isinstance(item, dict):
        raise PatchError("an operation must be an object", code=400)
    op = item.get("op")
    if not isinstance(op, str) or op not in _APPLY:
        raise PatchError(f"op must be one of {', '.join(sorted(_APPLY))}", code=400)
    if op in _WITH_VALUE and "value" not in item:
        raise PatchError(f"{op} needs a value", code=400)
    path = _parse_pointer(item.get("path"), "path")
    source = _parse_pointer(item.get("from"), "from") if op in _WITH_SOURCE else ()
    if op == "move" and len(source) < len(path) and path[: len(source)] == source:
        raise PatchError("a value cannot be moved into itself")
    check_depth_of(item.get("value"))
    return _Operation(op, path, source, item.get("value"))


def _parse_pointer(text: Any, field: str) -> Pointer:
    if not isinstance(text, str):
        raise PatchError(f"{field} must be a JSON pointer", code=400)
    if not text:
        return ()
    if not text.startswith("/"):
        raise PatchError(f"{field} must be empty or start with '/'", code=400)
    if _BAD_ESCAPE.search(text):
        raise PatchError(f"{field} has a '~' that is neither '~0' nor '~1'", code=400)
    parts = text[1:].split("/")
    if len(parts) > MAXIMUM_DEPTH:
        raise PatchError(f"{field} has more than {MAXIMUM_DEPTH} parts", code=400)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _format_pointer(pointer: Pointer) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in pointer)


def _add(target: Any, operation: _Operation) -> Any:
    return _put(target, operation.path, operation.value)


def _remove(target: Any, operation: _Operation) -> Any:
    return _take(target, operation.path)


def _replace(target: Any, operation: _Operation) -> Any:
    return _swap(target, operation.path, operation.value)


def _move(target: Any, operation: _Operation) -> Any:
    value = _value_at(target, operation.source)
    if operation.source == operation.path:
        return target
    return _put(_take(target, operation.source), operation.path, value)


def _copy(target: Any, operation: _Operation) -> Any:
    return _put(target, operation.path, _value_at(target, operation.source))


def _test(target: Any, operation: _Operation) -> Any:
    if not equal_json(_value_at(target, operation.path), operation.value):
        raise PatchError("the value there is another one")
    return target


_APPLY: dict[str, Callable[[Any, _Operation], Any]] = {
    "add": _add,
    "copy": _copy,
    "move": _move,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
}
_WITH_VALUE = {"add", "replace", "test"}
_WITH_SOURCE = {"move", "copy"}
_DEEPENING = {"add", "move", "copy"}


def _value_at(here: Any, pointer: Pointer) -> Any:
    for part in pointer:
        here = here[_key(here, part)]
    return here


def _put(here: Any, pointer: Pointer, value: Any) -> Any:
    """Insert into a list, set in an object."""
    if not pointer:
        return value
    part, rest = pointer[0], pointer[1:]
    if rest:
        return _descend(here, part, lambda child: _put(child, rest, value))
    if isinstance(here, list):
        at = len(here) if part == "-" else _index(part, len(here) + 1)
        return [*here[:at], value, *here[at:]]
    if isinstance(here, dict):
        return {**here, part: value}
    raise PatchError(f"there is nothing that could hold {part!r}")


def _take(here: Any, pointer: Pointer) -> Any:
    if not pointer:
        raise PatchError("the whole object cannot be removed")
    part, rest = pointer[0], pointer[1:]
    if rest:
        return _descend(here, part, lambda child: _take(child, rest))
    key = _key(here, part)
    if isinstance(here, list):
        return [*here[:key], *here[key + 1 :]]
    return {name: item for name, item in here.items() if name != key}


def _swap(here: Any, pointer: Pointer, value: Any) -> Any:
    if not pointer:
        return value
    return _descend(here, pointer[0], lambda child: _swap(child, pointer[1:], value))


def _descend(here: Any, part: str, change: Callable[[Any], Any]) -> Any:
    """Copy one level, with ``change`` done to the child."""
    key = _key(here, part)
    if isinstance(here, list):
        copied = list(here)
        copied[key] = change(here[key])
        return copied
    return {**here, key: change(here[key])}


def _key(here: Any, part: str) -> Any:
    """The key or index of an existing child."""
    if isinstance(here, list):
        return _index(part, len(here))
    if isinstance(here, dict) and part in here:
        return part
    raise PatchError(f"there is no {part!r}")


def _index(part: str, length: int) -> int:
    if part == "-":
        raise PatchError("'-' is past the end of the list and only add can use it")
    if not _INDEX.fullmatch(part):
        raise PatchError(f"{part!r} is not an index of a list")
    if int(part) >= length:
        raise PatchError(f"index {part} is past the end of the list")
    return int(part)


def _count_characters(value: Any, allowed: int) -> int:
    """About how long ``value`` is as JSON; stops with an error past ``allowed``, because with
    shared parts a few copies describe more than could ever be walked."""
    pending, count = [value], 0
    while pending:
        here = pending.pop()
        count += 1 + (len(here) if isinstance(here, str) else 0)
        if count > allowed:
            raise PatchError("the patch copies too much", code=413)
        if isinstance(here, dict):
            pending.extend(here)
            pending.extend(here.values())
        elif isinstance(here, list):
            pending.extend(here)
    return count
