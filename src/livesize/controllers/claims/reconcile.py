"""Watches claims, volumes, classes, pods and nodes, and writes what the plan says.

A volume or claim counts as gone only when the API server itself says so: one watch may be behind
another. Pods and nodes are watched from the first claim on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.storage import (
    BIND_COMPLETED,
    FOLDERS_AT,
    claim_key,
    claims_of,
    class_of,
    is_bound_to,
    is_going,
    volume_name,
)
from livesize.api.volume_choice import NodeFacts
from livesize.client.informer import Delta
from livesize.controllers.claims.plan import (
    ClaimStep,
    ClaimView,
    CreateObject,
    DeleteObject,
    TellEvent,
    UpdateObject,
    plan_claim,
    plan_volume,
)
from livesize.controllers.claims.provision import ConsumerNode
from livesize.controllers.claims.users import ClaimUsers
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Done, Result
from livesize.controllers.kit.watches import Watch
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.claims")

StorageKey: TypeAlias = tuple[str, str, str]
"""(plural, namespace, name) of a claim or a volume."""


def claims_controller(_context: Context) -> Controller[StorageKey]:
    binder = ClaimBinder()
    return Controller(
        name="claims",
        component="persistentvolume-controller",
        watches=(
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys_of_claim),
            Watch(PERSISTENT_VOLUMES, _keys_of_volume),
            Watch(STORAGE_CLASSES, _keys_of_class),
            Watch(NODES, _keys_of_node, once_there_is=PERSISTENT_VOLUME_CLAIMS),
            Watch(PODS, binder.keys_of_pod, once_there_is=PERSISTENT_VOLUME_CLAIMS),
        ),
        reconcile=binder.reconcile,
    )


# Events and their keys


def _keys_of_claim(delta: Delta, read: Reader) -> Iterator[StorageKey]:
    claim = delta.object
    yield _claim_key(claim)
    owner = (namespace_of(claim), name_of(claim))
    for volume in read.list(PERSISTENT_VOLUMES):
        if claim_key(volume) == owner or name_of(volume) == volume_name(claim):
            yield _volume_key(volume)


def _keys_of_volume(delta: Delta, read: Reader) -> Iterator[StorageKey]:
    volume = delta.object
    yield _volume_key(volume)
    owner = claim_key(volume)
    if owner is not None:
        yield PERSISTENT_VOLUME_CLAIMS.plural, *owner
    else:
        yield from _unbound_claims(read, class_of(volume))
    for claim in read.list(PERSISTENT_VOLUME_CLAIMS):
        if volume_name(claim) == name_of(volume):
            yield _claim_key(claim)


def _keys_of_class(delta: Delta, read: Reader) -> Iterator[StorageKey]:
    yield from _unbound_claims(read, name_of(delta.object))


def _keys_of_node(delta: Delta, read: Reader) -> Iterator[StorageKey]:
    """Only where it keeps folders is of interest, and that seldom changes."""
    before, after = (_folders_at(one) for one in (delta.old, delta.new))
    if before != after:
        yield from _unbound_claims(read, None)


def _unbound_claims(read: Reader, class_name: str | None) -> Iterator[StorageKey]:
    """Claims that may find what they wait for; None: of all classes."""
    for claim in read.list(PERSISTENT_VOLUME_CLAIMS):
        bound = lookup(claim, "metadata", "annotations", BIND_COMPLETED)
        if not bound and class_name in (None, class_of(claim)):
            yield _claim_key(claim)


class ClaimBinder:
    def __init__(self) -> None:
        self._users = ClaimUsers()
        self._told: dict[StorageKey, TellEvent] = {}

    def keys_of_pod(self, delta: Delta, _read: Reader) -> Iterator[StorageKey]:
        gone = delta.new is None
        changed = self._users.drop(delta.object) if gone else self._users.see(delta.object)
        for namespace, name in changed:
            yield PERSISTENT_VOLUME_CLAIMS.plural, namespace, name

    async def reconcile(self, key: StorageKey, read: Reader, write: ApiWriter) -> Result:
        plural, namespace, name = key
        is_claim = plural == PERSISTENT_VOLUME_CLAIMS.plural
        resource = PERSISTENT_VOLUME_CLAIMS if is_claim else PERSISTENT_VOLUMES
        obj = read.get(resource, name, namespace)
        if obj is None:
            self._told.pop(key, None)
            return Done()
        if is_claim:
            steps = plan_claim(await self._claim_view(obj, read))
        else:
            steps = plan_volume(obj, await _claim_of(obj, read))
        await self._apply(key, obj, steps, write)
        return Done()

    # Observe

    async def _claim_view(self, claim: Object, read: Reader) -> ClaimView:
        namespace, name = namespace_of(claim), name_of(claim)
        node = self._users.node(namespace, name)
        in_use = self._users.is_used(namespace, name)
        if is_going(claim) and not in_use:
            in_use = await _is_used(namespace, name, read)
        return ClaimView(
            claim,
            await _volumes_for(claim, read),
            read.get(STORAGE_CLASSES, class_of(claim)),
            _consumer_node(node, read) if node else None,
            in_use,
        )

    # Apply

    async def _apply(
        self, key: StorageKey, about: Object, steps: Iterable[ClaimStep], write: ApiWriter
    ) -> None:
        for step in steps:
            match step:
                case UpdateObject(resource, obj, subresource):
                    await write.update(resource, obj, subresource=subresource)
                case CreateObject(resource, obj):
                    await write.ensure(resource, obj)
                    log.info("made", kind=resource.kind, name=name_of(obj))
                case DeleteObject(resource, obj):
                    log.info("removed", kind=resource.kind, name=name_of(obj))
                    await write.delete(resource, obj)
                case TellEvent():
                    self._tell(key, about, step, write)

    def _tell(self, key: StorageKey, about: Object, step: TellEvent, write: ApiWriter) -> None:
        """Once, until there is something else to tell."""
        if self._told.get(key) == step:
            return
        self._told[key] = step
        is_claim = key[0] == PERSISTENT_VOLUME_CLAIMS.plural
        resource = PERSISTENT_VOLUME_CLAIMS if is_claim else PERSISTENT_VOLUMES
        write.event(resource, about, step.reason, step.message)


async def _volumes_for(claim: Object, read: Reader) -> tuple[Object, ...]:
    """All of them; the claim's own in its newest state, where there is a doubt."""
    known, name = tuple(read.list(PERSISTENT_VOLUMES)), volume_name(claim)
    if not name or is_bound_to(claim, read.get(PERSISTENT_VOLUMES, name)):
        return known
    newest = await read.newest(PERSISTENT_VOLUMES, name)
    others = tuple(one for one in known if name_of(one) != name)
    return others if newest is None else (*others, newest)


async def _is_used(namespace: str, name: str, read: Reader) -> bool:
    """As the API server says: the watch of pods may be behind that of claims."""
    async for pod in read.newest_items(PODS, namespace):
        if name in claims_of(pod) and lookup(pod, "spec", "nodeName"):
            return True
    return False


async def _claim_of(volume: Object, read: Reader) -> Object | None:
    """The claim the volume is kept for; None: certainly gone."""
    key = claim_key(volume)
    if key is None:
        return None
    namespace, name = key
    known = read.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
    uid = lookup(volume, "spec", "claimRef", "uid", default="")
    if known is not None and known["metadata"].get("uid") == uid:
        return known
    return await read.newest(PERSISTENT_VOLUME_CLAIMS, name, namespace)


def _consumer_node(name: str, read: Reader) -> ConsumerNode:
    node = read.get(NODES, name)
    labels = lookup(node, "metadata", "labels", default={})
    return ConsumerNode(NodeFacts(name, labels), _folders_at(node))


def _claim_key(claim: Object) -> StorageKey:
    return PERSISTENT_VOLUME_CLAIMS.plural, namespace_of(claim), name_of(claim)


def _volume_key(volume: Object) -> StorageKey:
    return PERSISTENT_VOLUMES.plural, "", name_of(volume)


def _folders_at(node: Object | None) -> str:
    return str(lookup(node, "metadata", "annotations", FOLDERS_AT, default=""))
