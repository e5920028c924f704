"""Watches claims, volumes, classes, pods and nodes, and writes what the plan says.

A volume or claim counts as gone only when the API server itself says so: one watch may be behind
another. Pods and nodes are listened to from the first claim on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.reasons import event_type
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
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.claims.plan import (
    ClaimView,
    Make,
    Remove,
    Step,
    Tell,
    Write,
    plan_claim,
    plan_volume,
)
from livesize.controllers.claims.provision import Place
from livesize.controllers.claims.users import ClaimUsers
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.recorder import EventRecorder, EventSource
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.claims")

AGAIN_SECONDS = 0.05

Key: TypeAlias = tuple[str, str, str]
"""(plural, namespace, name) of a claim or a volume."""


class ClaimBinder:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._queue: WorkQueue[Key] = WorkQueue(context)
        self._claims = Informer(
            client, PERSISTENT_VOLUME_CLAIMS, context=context, on_change=self._observe_claim
        )
        self._volumes = Informer(
            client, PERSISTENT_VOLUMES, context=context, on_change=self._observe_volume
        )
        self._classes = Informer(
            client, STORAGE_CLASSES, context=context, on_change=self._observe_class
        )
        self._nodes = Informer(client, NODES, context=context, on_change=self._observe_node)
        self._pods = Informer(client, PODS, context=context, on_change=self._observe_pod)
        self._users = ClaimUsers()
        self._has_claims = asyncio.Event()
        self._told: dict[Key, Tell] = {}
        self._recorder = EventRecorder(
            event_poster(client), context=context, source=EventSource("persistentvolume-controller")
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            for informer in (self._claims, self._volumes, self._classes):
                group.create_task(informer.run())
            group.create_task(self._follow(self._pods))
            group.create_task(self._follow(self._nodes))
            for informer in (self._claims, self._volumes, self._classes):
                await informer.synced.wait()
            await run_workers(self._queue, self._reconcile, 1)

    async def _follow(self, informer: Informer) -> None:
        await self._has_claims.wait()
        await informer.run()

    # Observe

    def _observe_claim(self, delta: Delta) -> None:
        self._has_claims.set()
        claim = delta.object
        key = (namespace_of(claim), name_of(claim))
        self._queue.add(_claim_key(*key))
        for volume in self._volumes.items():
            if claim_key(volume) == key or name_of(volume) == volume_name(claim):
                self._queue.add(_volume_key(volume))

    def _observe_volume(self, delta: Delta) -> None:
        volume = delta.object
        self._queue.add(_volume_key(volume))
        owner = claim_key(volume)
        if owner is not None:
            self._queue.add(_claim_key(*owner))
        else:
            self._look_at_unbound(class_of(volume))
        for claim in self._claims.items():
            if volume_name(claim) == name_of(volume):
                self._queue.add(_claim_key(namespace_of(claim), name_of(claim)))

    def _observe_class(self, delta: Delta) -> None:
        self._look_at_unbound(name_of(delta.object))

    def _observe_node(self, delta: Delta) -> None:
        """Only where it keeps folders is of interest, and that seldom changes."""
        before, after = (_folders_at(one) for one in (delta.old, delta.new))
        if before != after:
            self._look_at_unbound(None)

    def _observe_pod(self, delta: Delta) -> None:
        changed = (
            self._users.drop(delta.object) if delta.new is None else self._users.see(delta.new)
        )
        for namespace, name in changed:
            self._queue.add(_claim_key(namespace, name))

    def _look_at_unbound(self, class_name: str | None) -> None:
        """Claims that may find what they wait for; None: of all classes."""
        for claim in self._claims.items():
            bound = lookup(claim, "metadata", "annotations", BIND_COMPLETED)
            if not bound and class_name in (None, class_of(claim)):
                self._queue.add(_claim_key(namespace_of(claim), name_of(claim)))

    async def _claim_view(self, claim: Object) -> ClaimView:
        key = (namespace_of(claim), name_of(claim))
        node = self._users.node(*key)
        in_use = self._users.is_used(*key)
        if is_going(claim) and not in_use:
            in_use = await self._is_used(*key)
        return ClaimView(
            claim,
            await self._volumes_for(claim),
            self._classes.get("", class_of(claim)),
            self._place(node) if node else None,
            in_use,
        )

    def _place(self, name: str) -> Place:
        node = self._nodes.get("", name)
        labels = lookup(node, "metadata", "labels", default={})
        return Place(NodeFacts(name, labels), _folders_at(node))

    async def _volumes_for(self, claim: Object) -> tuple[Object, ...]:
        """All of them; the claim's own in its newest state, where there is a doubt."""
        known, name = self._volumes.items(), volume_name(claim)
        if not name or is_bound_to(claim, self._volumes.get("", name)):
            return known
        newest = await self._ask(PERSISTENT_VOLUMES, name)
        others = tuple(one for one in known if name_of(one) != name)
        return others if newest is None else (*others, newest)

    async def _is_used(self, namespace: str, name: str) -> bool:
        pods = await self._client.list(PODS, Selection(namespace))
        return any(name in claims_of(pod) and lookup(pod, "spec", "nodeName") for pod in pods.items)

    async def _claim_of(self, volume: Object) -> Object | None:
        """The claim the volume is kept for; None: certainly gone."""
        key = claim_key(volume)
        if key is None:
            return None
        known = self._claims.get(*key)
        uid = lookup(volume, "spec", "claimRef", "uid", default="")
        if known is not None and known["metadata"].get("uid") == uid:
            return known
        return await self._ask(PERSISTENT_VOLUME_CLAIMS, key[1], key[0])

    async def _ask(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(resource, name, namespace)
        except StatusError as refusal:
            if refusal.code != 404:
                raise
            return None

    # Plan and apply

    async def _reconcile(self, key: Key) -> float | None:
        plural, namespace, name = key
        is_claim = plural == PERSISTENT_VOLUME_CLAIMS.plural
        informer = self._claims if is_claim else self._volumes
        obj = informer.get(namespace, name)
        if obj is None:
            self._told.pop(key, None)
            return None
        try:
            await self._apply(key, obj, await self._plan(obj, is_claim=is_claim))
        except StatusError as refusal:
            if refusal.code == 404:
                return None  # gone meanwhile
            if refusal.code == 409:
                return AGAIN_SECONDS  # changed meanwhile
            raise
        return None

    async def _plan(self, obj: Object, *, is_claim: bool) -> Iterable[Step]:
        if not is_claim:
            return plan_volume(obj, await self._claim_of(obj))
        for informer in (self._pods, self._nodes):
            await informer.synced.wait()
        return plan_claim(await self._claim_view(obj))

    async def _apply(self, key: Key, about: Object, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Write(resource, obj, subresource):
                    await self._client.update(resource, obj, subresource=subresource)
                case Make(resource, obj):
                    await self._make(resource, obj)
                case Remove(resource, name, uid):
                    log.info("removed", kind=resource.kind, name=name)
                    await self._client.delete(resource, name, uid=uid)
                case Tell():
                    self._tell(key, about, step)

    async def _make(self, resource: Resource, obj: Object) -> None:
        try:
            await self._client.create(resource, obj)
        except StatusError as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        log.info("made", kind=resource.kind, name=name_of(obj))

    def _tell(self, key: Key, about: Object, step: Tell) -> None:
        """Once, until there is something else to tell."""
        if self._told.get(key) == step:
            return
        self._told[key] = step
        self._recorder.record(about, event_type(step.reason), step.reason.value, step.message)


def _claim_key(namespace: str, name: str) -> Key:
    return PERSISTENT_VOLUME_CLAIMS.plural, namespace, name


def _volume_key(volume: Object) -> Key:
    return PERSISTENT_VOLUMES.plural, "", name_of(volume)


def _folders_at(node: Object | None) -> str:
    return str(lookup(node, "metadata", "annotations", FOLDERS_AT, default=""))
