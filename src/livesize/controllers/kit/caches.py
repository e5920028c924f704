"""One copy of all objects of a kind in a process, whoever watches it.

``Caches`` makes one ``ObjectCache`` for each kind, and starts it when the first controller follows
it. A cache lists in pages and then watches (livesize.client.informer). Objects are shared and
immutable by convention: a controller never changes one, it writes a new one.

An index answers "which objects have this value" without looking at all of them. A cache builds an
index when it is first asked for, and keeps it true from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, namespace_of
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.machinery.context import Context

Follower: TypeAlias = Callable[[Delta], None]
_Name: TypeAlias = tuple[str, str]


class Index(msgspec.Struct, frozen=True):
    """``values``: under which values an object is found."""

    name: str
    values: Callable[[Object], Iterable[str]]


def _owner_uids(obj: Object) -> list[str]:
    references = lookup(obj, "metadata", "ownerReferences", default=())
    return [str(reference.get("uid")) for reference in references]


BY_NAMESPACE = Index("namespace", lambda obj: (namespace_of(obj),))
BY_OWNER = Index("owner", _owner_uids)
"""By the uid of each owner."""


class ObjectCache:
    """All objects of one kind, as far as the watch has told."""

    def __init__(self, client: Client, resource: Resource, context: Context) -> None:
        self._informer = Informer(client, resource, context=context, on_change=self._take)
        self._followers: list[Follower] = []
        self._indexes: dict[str, tuple[Index, dict[str, dict[_Name, Object]]]] = {}
        self.synced = self._informer.synced
        self.has_objects = asyncio.Event()
        """Set with the first object, and never cleared."""

    async def run(self) -> None:
        await self._informer.run()

    def follow(self, follower: Follower) -> None:
        """Tell ``follower`` every change from here on, and first all objects that are there."""
        self._followers.append(follower)
        for obj in self._informer.items():
            follower(Delta(None, obj))

    def unfollow(self, follower: Follower) -> None:
        self._followers.remove(follower)

    def get(self, name: str, namespace: str = "") -> Object | None:
        return self._informer.get(namespace, name)

    def items(self) -> Sequence[Object]:
        return self._informer.items()

    def select(self, index: Index, value: str) -> Sequence[Object]:
        """Objects with this value, in the order in which they came to have it."""
        return tuple(self._entries(index).get(value, {}).values())

    def _take(self, delta: Delta) -> None:
        for index, entries in self._indexes.values():
            _reindex(index, entries, delta)
        if delta.new is not None:
            self.has_objects.set()
        for follower in tuple(self._followers):
            follower(delta)

    def _entries(self, index: Index) -> dict[str, dict[_Name, Object]]:
        known = self._indexes.get(index.name)
        if known is not None:
            return known[1]
        entries: dict[str, dict[_Name, Object]] = {}
        for obj in self._informer.items():
            _reindex(index, entries, Delta(None, obj))
        self._indexes[index.name] = (index, entries)
        return entries


class Caches:
    """The caches of a process. ``await run()`` until cancelled."""

    def __init__(self, client: Client, context: Context) -> None:
        self._client = client
        self._context = context
        self._caches: dict[Resource, ObjectCache] = {}
        self._started: dict[Resource, None] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(self, resource: Resource) -> ObjectCache:
        """The one cache of the kind. It stays empty until it is started."""
        if resource not in self._caches:
            self._caches[resource] = ObjectCache(self._client, resource, self._context)
        return self._caches[resource]

    def start(self, resource: Resource) -> ObjectCache:
        """List and watch the kind, unless that is done already."""
        cache = self.of(resource)
        if resource not in self._started:
            self._started[resource] = None
            if self._group is not None:
                self._group.create_task(cache.run())
        return cache

    def is_started(self, resource: Resource) -> bool:
        return resource in self._started

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for resource in self._started:
                group.create_task(self._caches[resource].run())
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None


def _reindex(index: Index, entries: dict[str, dict[_Name, Object]], delta: Delta) -> None:
    name = _name(delta.object)
    before = () if delta.old is None else tuple(index.values(delta.old))
    after = () if delta.new is None else tuple(index.values(delta.new))
    for value in before:
        if value not in after:
            found = entries[value]
            del found[name]
            if not found:
                del entries[value]
    if delta.new is not None:
        for value in after:
            entries.setdefault(value, {})[name] = delta.new


def _name(obj: Object) -> _Name:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")
