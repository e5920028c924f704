"""One object as the API server keeps it: the stored form, the served form, and its bytes.

The stored form has every fact once; the served form has all dialects (livesize.api.dialects).
Both carry the resourceVersion, which is the revision of the commit that wrote the object and
is not in the stored bytes. Nothing here is ever changed in place.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, evolve, name_of, namespace_of, without
from livesize.apiserver.keys import key_of
from livesize.apiserver.strategies.lookup import strategy_of


class ObjectRecord(msgspec.Struct, frozen=True):
    resource: Resource
    key: str
    namespace: str
    name: str
    revision: int
    stored: Object
    served: Object
    encoded: bytes

    @property
    def labels(self) -> dict[str, str]:
        return self.served["metadata"].get("labels") or {}


def served_form(resource: Resource, stored: Object) -> Object:
    return strategy_of(resource).served(stored)


def make_record(
    resource: Resource, stored: Object, revision: int, before: ObjectRecord | None = None
) -> ObjectRecord:
    """The record of ``stored`` as committed at ``revision``; 0: not committed (a dry run).
    ``before``: the record of the same object, whose names are known."""
    if revision:
        stored = evolve(stored, ("metadata", "resourceVersion"), str(revision))
    served = served_form(resource, stored)
    if before is not None:
        key, namespace, name = before.key, before.namespace, before.name
    else:
        namespace, name = namespace_of(stored), name_of(stored)
        key = key_of(resource, namespace, name)
    return ObjectRecord(resource, key, namespace, name, revision, stored, served, encode(served))


def decode_record(resource: Resource, value: bytes, revision: int) -> ObjectRecord:
    return make_record(resource, orjson.loads(value), revision)


def encode(obj: Any) -> bytes:
    """To be kept: what orjson gives occupies the room it was written into, often three times what
    it needs, so it is copied."""
    return bytes(memoryview(orjson.dumps(obj)))


def stored_bytes(stored: Object) -> bytes:
    """What goes into the store: everything but the resourceVersion."""
    return encode(without(stored, ("metadata", "resourceVersion")))
