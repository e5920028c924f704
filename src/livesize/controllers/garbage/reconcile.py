"""Watches every kind, and carries out what the plan says of an object, its owners and dependents.

An owner counts as gone only when the API server itself says so: a watch may be behind.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, namespace_of, uid_of
from livesize.client.informer import Delta
from livesize.controllers.garbage.owners import (
    ResourceKey,
    blocks,
    finalizers_of,
    is_leaving,
    key_of,
    owner_key,
    references_of,
    waits_for_collector,
)
from livesize.controllers.garbage.plan import (
    FOREGROUND,
    Collect,
    Dependent,
    DropFinalizer,
    ForgetOwners,
    GarbageStep,
    OwnedObject,
    OwnerState,
    OwnerView,
    RemoveOwnerReference,
    RequeueDependent,
    plan_piece,
)
from livesize.controllers.kit.caches import BY_OWNER
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Done, Result
from livesize.controllers.kit.watches import Watch
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.garbage")

WORKERS = 4
_READ = ("deletionTimestamp", "finalizers", "ownerReferences", "uid")
COLLECTED: tuple[Resource, ...] = tuple(one for one in REGISTRY.stored() if kind_of(one).collected)


def garbage_controller(_context: Context) -> Controller[ResourceKey]:
    return Controller(
        name="garbage",
        component="garbage-collector",
        watches=tuple(
            Watch(resource, functools.partial(_keys, resource)) for resource in COLLECTED
        ),
        reconcile=_reconcile,
        workers=WORKERS,
    )


# Observe


def _keys(resource: Resource, delta: Delta, read: Reader) -> Iterator[ResourceKey]:
    states = [obj for obj in (delta.old, delta.new) if obj is not None]
    if len(states) == 2 and _reads_alike(*states):
        return  # as nearly always: a heartbeat, a status
    new = delta.new
    if new is not None and (references_of(new) or waits_for_collector(new)):
        yield key_of(resource, new)
    if new is None or waits_for_collector(new):
        for key, _ in _dependents(read, uid_of(delta.object)):
            yield key
    for obj in states:
        yield from _waiting_owners(obj, read)


def _waiting_owners(obj: Object, read: Reader) -> Iterator[ResourceKey]:
    """One that waits for what it owns sees it go."""
    for reference in references_of(obj):
        key = owner_key(namespace_of(obj), reference)
        if key is None:
            continue
        owner = read.get(key.resource, key.name, key.namespace) or {}
        if uid_of(owner) == reference.get("uid") and waits_for_collector(owner):
            yield key


def _dependents(read: Reader, uid: str) -> Iterator[tuple[ResourceKey, Object]]:
    for resource in COLLECTED:
        for obj in read.select(resource, BY_OWNER, uid):
            yield key_of(resource, obj), obj


def _reads_alike(old: Object, new: Object) -> bool:
    """In all that the collector reads of an object."""
    was, is_now = old["metadata"], new["metadata"]
    return all(was.get(name) == is_now.get(name) for name in _READ)


async def _observe(key: ResourceKey, obj: Object, read: Reader) -> OwnedObject:
    owners = [
        OwnerView(str(reference.get("uid")), await _owner_state(key, reference, read))
        for reference in references_of(obj)
    ]
    uid = uid_of(obj)
    dependents = [
        Dependent(
            uid_of(below), blocks(below, uid), is_leaving(below), _waits_for(below, uid, read)
        )
        for _, below in _dependents(read, uid)
    ]
    return OwnedObject(tuple(owners), tuple(dependents), tuple(finalizers_of(obj)), is_leaving(obj))


def _waits_for(obj: Object, other: str, read: Reader) -> bool:
    """Whether ``obj``, deleted in the foreground, waits for ``other``, or for one that does."""
    waiting, seen = [obj], {uid_of(obj)}
    while waiting:
        here = waiting.pop()
        if not (is_leaving(here) and FOREGROUND in finalizers_of(here)):
            continue
        for _, below in _dependents(read, uid_of(here)):
            uid = uid_of(below)
            if not blocks(below, uid_of(here)):
                continue
            if uid == other:
                return True
            if uid not in seen:
                seen.add(uid)
                waiting.append(below)
    return False


async def _owner_state(key: ResourceKey, reference: Object, read: Reader) -> OwnerState:
    above = owner_key(key.namespace, reference)
    if above is None:
        return OwnerState.UNKNOWN
    uid = reference.get("uid")
    owner = read.get(above.resource, above.name, above.namespace)
    if owner is None or uid_of(owner) != uid:
        owner = await read.newest(above.resource, above.name, above.namespace)
    if owner is None or uid_of(owner) != uid:
        return OwnerState.ABSENT
    waits = is_leaving(owner) and FOREGROUND in finalizers_of(owner)
    return OwnerState.WAITING if waits else OwnerState.SOLID


# Plan and apply


async def _reconcile(key: ResourceKey, read: Reader, write: ApiWriter) -> Result:
    obj = read.get(key.resource, key.name, key.namespace)
    if obj is None:
        return Done()
    for step in plan_piece(await _observe(key, obj, read)):
        await _apply(step, key, obj, read, write)
    return Done()


async def _apply(
    step: GarbageStep, key: ResourceKey, obj: Object, read: Reader, write: ApiWriter
) -> None:
    match step:
        case Collect(propagation):
            log.info("collected", kind=key.resource.kind, name=key.name)
            await write.delete(key.resource, obj, propagation=propagation)
        case ForgetOwners(uids):
            await _forget(key.resource, obj, uids, write)
        case RemoveOwnerReference(dependent):
            for below, owned in _dependents(read, uid_of(obj)):
                if uid_of(owned) == dependent:
                    await _forget(below.resource, owned, (uid_of(obj),), write)
        case RequeueDependent(dependent):
            for below, owned in _dependents(read, uid_of(obj)):
                if uid_of(owned) == dependent:
                    write.enqueue(below)
        case DropFinalizer(finalizer):
            left = [one for one in finalizers_of(obj) if one != finalizer]
            await write.patch(key.resource, obj, {"metadata": {"finalizers": left or None}})


async def _forget(resource: Resource, obj: Object, uids: tuple[str, ...], write: ApiWriter) -> None:
    left = [one for one in references_of(obj) if one.get("uid") not in uids]
    await write.patch(resource, obj, {"metadata": {"ownerReferences": left or None}})
