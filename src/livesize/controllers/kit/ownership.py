"""Which objects a workload controls: claimed by selector and owner reference, as Kubernetes does.

An owner has at most one controller reference to it in each object. ``claim`` adopts orphans that
the owner selects and releases what it no longer selects. It does so only while the owner is not
being deleted, and adopts only after the API server itself has confirmed that: a cache may show an
owner that has gone, and nothing would ever collect what such an owner adopts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from livesize.api.errors import StatusError, conflict
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, ObjectKey, lookup, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.client.informer import Delta
from livesize.controllers.kit.caches import BY_OWNER, Index
from livesize.controllers.kit.owned_pods import is_leaving, owner_reference
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.watches import controller_of, owner_keys
from livesize.controllers.kit.writer import ApiWriter

Selects: TypeAlias = Callable[[Object, Object], bool]
"""Whether an owner (the first) selects an object."""

_GONE, _INVALID = 404, 422


def _orphans_of(obj: Object) -> tuple[str, ...]:
    return () if controller_of(obj) is not None else (namespace_of(obj),)


ORPHANS = Index("orphans", _orphans_of)
"""Objects that no controller owns, by namespace."""


class Claim(msgspec.Struct, frozen=True):
    """``owner`` of the kind ``owners`` claims objects of the kind ``owned`` that it ``selects``."""

    owners: Resource
    owner: Object
    owned: Resource
    selects: Selects

    async def take(self, read: Reader, write: ApiWriter) -> list[Object]:
        """What the owner controls from now on, adopted and released as it should be."""
        held = owned_by(self.owner, self.owned, read)
        claimed = [obj for obj in held if self.selects(self.owner, obj)]
        if is_leaving(self.owner):
            return claimed
        for obj in held:
            if not self.selects(self.owner, obj):
                await self._refer(obj, {"$patch": "delete", "uid": uid_of(self.owner)}, write)
        orphans = [
            obj
            for obj in read.select(self.owned, ORPHANS, namespace_of(self.owner))
            if self.selects(self.owner, obj) and not is_leaving(obj)
        ]
        if orphans:
            await self._confirm(read)
            reference = owner_reference(self.owners, self.owner)
            adopted = [await self._refer(orphan, reference, write) for orphan in orphans]
            claimed += [obj for obj in adopted if obj is not None]
        return claimed

    async def _confirm(self, read: Reader) -> None:
        """Raises a conflict unless the API server has this very owner, and it stays."""
        name, namespace = name_of(self.owner), namespace_of(self.owner)
        newest = await read.newest(self.owners, name, namespace)
        if newest is None or uid_of(newest) != uid_of(self.owner) or is_leaving(newest):
            raise conflict(self.owners, name, "it is gone, or going")

    async def _refer(self, obj: Object, reference: Object, write: ApiWriter) -> Object | None:
        """The object with that reference; None: it is gone, or refuses the change for good."""
        patch = {"metadata": {"ownerReferences": [reference]}}
        try:
            return await write.patch(
                self.owned, obj, patch, patch_type=PatchType.STRATEGIC, any_version=True
            )
        except StatusError as refusal:
            if refusal.code not in (_GONE, _INVALID):
                raise
            return None


def owned_by(owner: Object, owned: Resource, read: Reader) -> list[Object]:
    """Objects that say that ``owner`` controls them, as the caches show them."""
    uid = uid_of(owner)
    return [
        obj
        for obj in read.select(owned, BY_OWNER, uid)
        if (controller_of(obj) or {}).get("uid") == uid
    ]


def member_keys(
    owners: Resource, selects: Selects
) -> Callable[[Delta, Reader], Iterable[ObjectKey]]:
    """Keys of the workload that controls an object, now or before; of an orphan that is new or has
    other labels: of all workloads that would adopt it."""
    controlling = owner_keys(owners)

    def keys(delta: Delta, read: Reader) -> Iterator[ObjectKey]:
        yield from controlling(delta, read)
        if _may_be_adopted(delta):
            namespace = namespace_of(delta.object)
            for owner in read.list(owners, namespace):
                if selects(owner, delta.object):
                    yield namespace, name_of(owner)

    return keys


def is_namespace_ending(refusal: StatusError) -> bool:
    """Nothing is made in the namespace any more: there is nothing to report and nothing to wait
    for."""
    return any(cause.reason == "NamespaceTerminating" for cause in refusal.causes)


def _may_be_adopted(delta: Delta) -> bool:
    if delta.new is None or controller_of(delta.new) is not None:
        return False
    if delta.old is None or controller_of(delta.old) is not None:
        return True
    return bool(_labels(delta.old) != _labels(delta.new))


def _labels(obj: Object) -> Object:
    labels: Object = lookup(obj, "metadata", "labels", default={})
    return labels
