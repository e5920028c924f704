"""What a controller watches, and which keys an event brings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, ObjectKey, lookup, namespace_of
from livesize.client.informer import Delta

if TYPE_CHECKING:
    from livesize.controllers.kit.reader import Reader

Key = TypeVar("Key", bound=Hashable)


class After(msgspec.Struct, Generic[Key], frozen=True):
    """The key comes after this time; of several such times the earliest counts."""

    key: Key
    seconds: float


class Watch(msgspec.Struct, frozen=True):
    """``keys`` gets each change of the kind and yields the keys to reconcile, or ``After``. It must
    not wait. ``once_there_is``: the kind is watched from the first object of that other kind on."""

    resource: Resource
    keys: Callable[[Delta, Reader], Iterable[Any]]
    once_there_is: Resource | None = None


def own_key(delta: Delta, _read: Reader) -> Iterable[ObjectKey]:
    """The object's own key: (namespace, name)."""
    metadata = delta.object["metadata"]
    yield metadata.get("namespace", ""), metadata.get("name", "")


def owner_keys(owner: Resource) -> Callable[[Delta, Reader], Iterable[ObjectKey]]:
    """The key (namespace, name) of the ``owner`` that controls the object, now or before."""

    def keys(delta: Delta, _read: Reader) -> Iterable[ObjectKey]:
        for state in (delta.old, delta.new):
            reference = controller_of(state)
            if reference is None or reference.get("kind") != owner.kind:
                continue
            if reference.get("apiVersion") == owner.api_version:
                namespace = namespace_of(delta.object) if owner.namespaced else ""
                yield namespace, str(reference.get("name"))

    return keys


def controller_of(obj: Object | None) -> Object | None:
    """The owner reference with ``controller: true``; an object has at most one."""
    references = lookup(obj, "metadata", "ownerReferences", default=())
    return next((one for one in references if one.get("controller")), None)
