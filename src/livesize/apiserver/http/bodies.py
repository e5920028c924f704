"""Reads request bodies: JSON and YAML into plain trees, or a 400 that says what is wrong.

Refused here, before anybody looks at the meaning: bytes that are not UTF-8, numbers JSON does
not have, keys that stand twice in one object, trees deeper than MAX_DEPTH or with more fields and
items than livesize.api.entries allows, YAML with aliases or larger than MAX_YAML_BYTES. YAML and
protobuf, which take long to read, are read on threads of their own (``decode_on_thread``).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
import yaml

from livesize.api.entries import MAX_ENTRIES, are_many, refuse_many, too_many_entries
from livesize.api.errors import StatusError, bad_request

MAX_BODY_BYTES = 3 * 1024 * 1024
MAX_YAML_BYTES = 256 * 1024
MAX_DEPTH = 100
QUICK_BYTES = 4 * 1024
_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="decoding")
Tree = TypeVar("Tree")


def decode_json(body: bytes) -> Any:
    try:
        tree = orjson.loads(body)
        refuse_many(tree, body)
        if _may_hold_huge(body) or not _is_its_encoding(tree, body):
            _TWIN_FINDER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body of the request is not valid JSON: {error}") from None
    # Keys are text and numbers finite: orjson sees to it. Only depth is left, and what has few
    # brackets cannot be deep.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_tree(tree, 0)
    return tree


async def decode_on_thread(decode: Callable[[bytes], Tree], body: bytes) -> Tree:
    """Decodes a body of which it is not known that it is read quickly, so that other requests do
    not wait for it. Few at a time: each takes a whole processor."""
    if len(body) <= QUICK_BYTES:
        return decode(body)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, decode, body)


def decode_json_or_yaml(body: bytes) -> Any:
    """What is sent as YAML is mostly JSON, which YAML includes; that is read many times faster."""
    if not body.lstrip().startswith(b"{"):
        return decode_yaml(body)
    try:
        return decode_json(body)
    except StatusError:
        if len(body) > MAX_YAML_BYTES:
            raise
        return decode_yaml(body)


def decode_yaml(body: bytes) -> Any:
    if len(body) > MAX_YAML_BYTES:
        raise bad_request(
            f"the body of the request is YAML of more than {MAX_YAML_BYTES} bytes; send JSON"
        )
    try:
        text = body.decode()
        _check_events(text)
        tree = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a safe loader with fewer tags
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request is not valid YAML: {error}") from None
    _check_tree(tree, 0)
    if are_many(tree):
        raise too_many_entries()
    return tree


def _check_events(text: str) -> None:
    """Before anything is built, and before the parser, whose time grows with the square of the
    depth, is in too deep."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > 2 * MAX_ENTRIES + 1:  # of a field, the name and what it says
            raise too_many_entries()
        if isinstance(event, yaml.AliasEvent):
            raise bad_request("the body of the request is YAML with aliases; write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            _check_depth(depth)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _PlainLoader(yaml.CSafeLoader):
    """YAML as JSON would have it: no dates, no keys twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        pairs = [(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _refuse_twins(pairs)
        return super().construct_mapping(node, deep)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _is_its_encoding(tree: Any, body: bytes) -> bool:
    """Of keys that stand twice the parser leaves one. What encodes to the very same bytes had none,
    so that it need not be parsed again to look for them; many clients send JSON in this form."""
    try:
        return orjson.dumps(tree) == body
    except TypeError:  # deeper than it encodes
        return False


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    """As a hook of the JSON parser: the tree itself is not wanted a second time."""
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f'duplicate field "{key}"')
        seen.add(key)


def _may_hold_huge(body: bytes) -> bool:
    """A run of digits as long as a number that 64 bits do not hold; the parser takes some."""
    return _LONG_RUN in body.translate(_DIGITS_ALIKE)


def _refuse_huge(text: str) -> int:
    """Whole numbers that 64 bits do not hold would silently become others."""
    if len(text) >= _LONGEST_SAFE and not _fits(int(text)):
        raise ValueError(f"the number {text[:32]} does not fit in 64 bits")
    return 0


_LONGEST_SAFE = 19
_LONG_RUN = b"0" * _LONGEST_SAFE
_DIGITS_ALIKE = bytes(ord("0") if chr(byte) in "0123456789" else 0 for byte in range(256))
_TWIN_FINDER = json.JSONDecoder(object_pairs_hook=_refuse_twins, parse_int=_refuse_huge)


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad_request(f"the body of the request is nested deeper than {MAX_DEPTH} levels")


def _check_tree(tree: Any, depth: int) -> None:
    _check_depth(depth)
    if isinstance(tree, dict):
        for key, item in tree.items():
            if not isinstance(key, str):
                raise bad_request(f"the body of the request has a key that is not text: {key!r}")
            _check_tree(item, depth + 1)
    elif isinstance(tree, list):
        for item in tree:
            _check_tree(item, depth + 1)
    else:
        _check_plain(tree)


def _check_plain(value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise bad_request("the body of the request has a number JSON does not have")
    elif isinstance(value, int):
        if not _fits(value):
            raise bad_request("the body of the request has a number that does not fit in 64 bits")
    elif value is not None and not isinstance(value, str):
        raise bad_request(f"the body of the request has a {type(value).__name__}; JSON has none")
