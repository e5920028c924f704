"""Reads request bodies: JSON and YAML into plain trees, or a 400 that says what is wrong.

Refused here, before anybody looks at the meaning: bytes that are not UTF-8, numbers JSON does
not have, keys that stand twice in one object, trees deeper than MAX_DEPTH, YAML aliases.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import yaml

from livesize.api.errors import bad_request

MAX_BODY_BYTES = 3 * 1024 * 1024
MAX_DEPTH = 100


def decode_json(body: bytes) -> Any:
    try:
        tree = orjson.loads(body)
        if not _is_its_encoding(tree, body):
            _TWIN_FINDER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body of the request is not valid JSON: {error}") from None
    # Keys are text and numbers finite: orjson sees to it. Only depth is left, and what has few
    # brackets cannot be deep.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_tree(tree, 0)
    return tree


def decode_yaml(body: bytes) -> Any:
    try:
        text = body.decode()
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise bad_request("the body of the request is YAML with aliases; write it out")
        tree = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a safe loader with fewer tags
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request is not valid YAML: {error}") from None
    _check_tree(tree, 0)
    return tree


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


_TWIN_FINDER = json.JSONDecoder(object_pairs_hook=_refuse_twins)


def _check_tree(tree: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad_request(f"the body of the request is nested deeper than {MAX_DEPTH} levels")
    if isinstance(tree, dict):
        for key, item in tree.items():
            if not isinstance(key, str):
                raise bad_request(f"the body of the request has a key that is not text: {key!r}")
            _check_tree(item, depth + 1)
    elif isinstance(tree, list):
        for item in tree:
            _check_tree(item, depth + 1)
    elif isinstance(tree, float):
        if not math.isfinite(tree):
            raise bad_request("the body of the request has a number JSON does not have")
    elif tree is not None and not isinstance(tree, str | int):
        raise bad_request(f"the body of the request has a {type(tree).__name__}; JSON has none")
