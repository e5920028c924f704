"""Who owns an object, and where an owner has to be. Does no IO."""

from __future__ import annotations

import msgspec

from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.controllers.garbage.plan import FOREGROUND, ORPHAN


class ResourceKey(msgspec.Struct, frozen=True):
    resource: Resource
    namespace: str
    name: str


def key_of(resource: Resource, obj: Object) -> ResourceKey:
    return ResourceKey(resource, namespace_of(obj), name_of(obj))


def owner_key(namespace: str, reference: Object) -> ResourceKey | None:
    """An owner is in the namespace of what it owns, or in none. None: it is of a kind that is not
    served here, or in a namespace that the reference cannot name."""
    resource = REGISTRY.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
    if resource is None or (resource.namespaced and not namespace):
        return None
    name = str(reference.get("name", ""))
    return ResourceKey(resource, namespace if resource.namespaced else "", name)


def references_of(obj: Object) -> list[Object]:
    references: list[Object] = lookup(obj, "metadata", "ownerReferences", default=[])
    return references


def finalizers_of(obj: Object) -> list[str]:
    finalizers: list[str] = lookup(obj, "metadata", "finalizers", default=[])
    return finalizers


def is_leaving(obj: Object) -> bool:
    return bool(lookup(obj, "metadata", "deletionTimestamp"))


def blocks(obj: Object, owner_uid: str) -> bool:
    return any(
        reference.get("uid") == owner_uid and bool(reference.get("blockOwnerDeletion"))
        for reference in references_of(obj)
    )


def waits_for_collector(obj: Object) -> bool:
    """Its deletion waits for the garbage collector."""
    return is_leaving(obj) and not {FOREGROUND, ORPHAN}.isdisjoint(finalizers_of(obj))
