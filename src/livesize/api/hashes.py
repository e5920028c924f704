"""Two hashes of a container: did anything change, and did anything but its size change (F35).

A container whose second hash is unchanged need not be started again: only resources or the
resize policy changed (IBM, expectedHashNoResources; decisions 10).
"""

from __future__ import annotations

import hashlib
import json

import orjson

from livesize.api.objects import Object

_DERIVED = frozenset({"resourcesAllocated"})
_ABOUT_SIZE = _DERIVED | {"resources", "resizePolicy", "numa"}  # how many cells there are is fixed
_CHARACTERS = 16


def container_hash(container: Object) -> str:
    """Changes with anything the user wrote."""
    return _hash(container, _DERIVED)


def container_hash_without_resources(container: Object) -> str:
    """Changes only with what needs a new start of the container."""
    return _hash(container, _ABOUT_SIZE)


def _hash(container: Object, left_out: frozenset[str]) -> str:
    kept = {key: value for key, value in container.items() if key not in left_out}
    text = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
    if not text.isascii():
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    return hashlib.sha256(text).hexdigest()[:_CHARACTERS]
