"""Who owns whom, as far as the watches have told."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of


class Place(msgspec.Struct, frozen=True):
    """Where an object is."""

    resource: Resource
    namespace: str
    name: str


Uid: TypeAlias = str


def references_of(obj: Object) -> list[Object]:
    references: list[Object] = lookup(obj, "metadata", "ownerReferences", default=[])
    return references


def finalizers_of(obj: Object) -> list[str]:
    finalizers: list[str] = lookup(obj, "metadata", "finalizers", default=[])
    return finalizers


def is_going(obj: Object) -> bool:
    return bool(lookup(obj, "metadata", "deletionTimestamp"))


def owner_place(place: Place, reference: Object) -> Place | None:
    """Where an owner has to be: in the namespace of what it owns, or in none. None: of a kind we do
    not serve, or in a namespace nobody can name."""
    resource = REGISTRY.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
    if resource is None or (resource.namespaced and not place.namespace):
        return None
    namespace = place.namespace if resource.namespaced else ""
    return Place(resource, namespace, str(reference.get("name", "")))


class Graph:
    """The newest known state of everything that owns or is owned."""

    def __init__(self) -> None:
        self._objects: dict[Place, Object] = {}
        self._places: dict[Uid, Place] = {}
        self._dependents: dict[Uid, dict[Place, None]] = {}

    def set(self, resource: Resource, obj: Object) -> Place:
        place = Place(resource, namespace_of(obj), name_of(obj))
        self._unlink(place)
        self._objects[place] = obj
        self._places[uid_of(obj)] = place
        for reference in references_of(obj):
            self._dependents.setdefault(str(reference.get("uid")), {})[place] = None
        return place

    def drop(self, resource: Resource, obj: Object) -> Place:
        place = Place(resource, namespace_of(obj), name_of(obj))
        self._unlink(place)
        return place

    def get(self, place: Place) -> Object | None:
        return self._objects.get(place)

    def place_of(self, uid: Uid) -> Place | None:
        return self._places.get(uid)

    def dependents(self, uid: Uid) -> list[Place]:
        return list(self._dependents.get(uid, ()))

    def _unlink(self, place: Place) -> None:
        old = self._objects.pop(place, None)
        if old is None:
            return
        self._places.pop(uid_of(old), None)
        for reference in references_of(old):
            uid = str(reference.get("uid"))
            places = self._dependents.get(uid, {})
            places.pop(place, None)
            if not places:
                self._dependents.pop(uid, None)
