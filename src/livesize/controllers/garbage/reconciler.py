"""Watches every kind, keeps the graph of owners, and carries out what the plan says of an object.

An owner counts as gone only when the API server itself says so: a watch may be behind.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable

from livesize.api.errors import StatusError
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, name_of, uid_of, version_of
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.garbage.graph import (
    Graph,
    Place,
    finalizers_of,
    is_going,
    owner_place,
    references_of,
)
from livesize.controllers.garbage.plan import (
    FOREGROUND,
    ORPHAN,
    Collect,
    Dependent,
    ForgetMe,
    ForgetOwners,
    LetGo,
    LookAt,
    Owner,
    OwnerState,
    Piece,
    Step,
    plan_piece,
)
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.garbage")

WORKERS = 4
AGAIN_SECONDS = 0.05
_BUSY = frozenset({"deletionTimestamp", "ownerReferences"})
COLLECTED: tuple[Resource, ...] = tuple(one for one in REGISTRY.stored() if kind_of(one).collected)


class GarbageCollector:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._graph = Graph()
        self._queue: WorkQueue[Place] = WorkQueue(context)
        self._informers = [
            Informer(
                client,
                resource,
                context=context,
                on_change=functools.partial(self._observe, resource),
            )
            for resource in COLLECTED
        ]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                await informer.synced.wait()
            await run_workers(self._queue, self._reconcile, WORKERS)

    # Observe

    def _observe(self, resource: Resource, delta: Delta) -> None:
        if delta.old is not None and delta.new is not None and _are_free(delta.old, delta.new):
            self._graph.set(resource, delta.new)
            return
        if delta.new is None:
            self._graph.drop(resource, delta.object)
        else:
            place = self._graph.set(resource, delta.new)
            if references_of(delta.new) or _has_to_do(delta.new):
                self._queue.add(place)
        if delta.new is None or _has_to_do(delta.new):
            self._look_at(self._graph.dependents(uid_of(delta.object)))
        self._tell_owners(delta)

    def _tell_owners(self, delta: Delta) -> None:
        """One that waits for what it owns sees it go."""
        for obj in (delta.old, delta.new):
            for reference in references_of(obj) if obj is not None else ():
                owner = self._graph.place_of(str(reference.get("uid")))
                if owner is not None and _has_to_do(self._graph.get(owner) or {}):
                    self._queue.add(owner)

    def _look_at(self, places: Iterable[Place]) -> None:
        for place in places:
            self._queue.add(place)

    async def _piece(self, place: Place, obj: Object) -> Piece:
        owners = [
            Owner(str(reference.get("uid")), await self._owner_state(place, reference))
            for reference in references_of(obj)
        ]
        dependents = [
            self._dependent(below, uid_of(obj)) for below in self._graph.dependents(uid_of(obj))
        ]
        return Piece(tuple(owners), tuple(dependents), tuple(finalizers_of(obj)), is_going(obj))

    def _dependent(self, place: Place, owner: str) -> Dependent:
        obj = self._graph.get(place)
        assert obj is not None, "the graph has no dependents without their objects"
        return Dependent(
            uid_of(obj), _blocks(obj, owner), is_going(obj), self._waits_for(obj, owner)
        )

    def _waits_for(self, obj: Object, other: str) -> bool:
        """Whether ``obj``, deleted in the foreground, waits for ``other``, or for one that does."""
        waiting, seen = [obj], {uid_of(obj)}
        while waiting:
            here = waiting.pop()
            if not (is_going(here) and FOREGROUND in finalizers_of(here)):
                continue
            for below in self._blocking(uid_of(here)):
                uid = uid_of(below)
                if uid == other:
                    return True
                if uid not in seen:
                    seen.add(uid)
                    waiting.append(below)
        return False

    def _blocking(self, owner: str) -> list[Object]:
        found = [self._graph.get(place) for place in self._graph.dependents(owner)]
        return [obj for obj in found if obj is not None and _blocks(obj, owner)]

    async def _owner_state(self, place: Place, reference: Object) -> OwnerState:
        above = owner_place(place, reference)
        if above is None:
            return OwnerState.UNKNOWN
        uid = reference.get("uid")
        owner = self._graph.get(above)
        if owner is None or uid_of(owner) != uid:
            owner = await self._ask(above)
        if owner is None or uid_of(owner) != uid:
            return OwnerState.ABSENT
        waits = is_going(owner) and FOREGROUND in finalizers_of(owner)
        return OwnerState.WAITING if waits else OwnerState.SOLID

    async def _ask(self, place: Place) -> Object | None:
        try:
            return await self._client.get(place.resource, place.name, place.namespace)
        except StatusError as refusal:
            if refusal.code != 404:
                raise
            return None

    # Plan and apply

    async def _reconcile(self, place: Place) -> float | None:
        obj = self._graph.get(place)
        if obj is None:
            return None
        try:
            for step in plan_piece(await self._piece(place, obj)):
                await self._apply(step, place, obj)
        except StatusError as refusal:
            if refusal.code == 404:
                return None  # gone meanwhile
            if refusal.code == 409:
                return AGAIN_SECONDS  # changed meanwhile
            raise
        return None

    async def _apply(self, step: Step, place: Place, obj: Object) -> None:
        match step:
            case Collect(propagation):
                log.info("collected", kind=place.resource.kind, name=place.name)
                await self._client.delete(
                    place.resource,
                    place.name,
                    place.namespace,
                    uid=uid_of(obj),
                    propagation=propagation,
                )
            case ForgetOwners(uids):
                await self._forget(place, obj, uids)
            case ForgetMe(dependent):
                below = self._graph.place_of(dependent)
                owned = None if below is None else self._graph.get(below)
                if below is not None and owned is not None:
                    await self._forget(below, owned, (uid_of(obj),))
            case LookAt(dependent):
                below = self._graph.place_of(dependent)
                self._look_at(() if below is None else (below,))
            case LetGo(finalizer):
                kept = [one for one in finalizers_of(obj) if one != finalizer]
                await self._write(place, obj, {"finalizers": kept or None})

    async def _forget(self, place: Place, obj: Object, uids: tuple[str, ...]) -> None:
        kept = [one for one in references_of(obj) if one.get("uid") not in uids]
        await self._write(place, obj, {"ownerReferences": kept or None})

    async def _write(self, place: Place, obj: Object, metadata: Object) -> None:
        """Only if nobody has changed it since it was seen."""
        versioned = {**metadata, "resourceVersion": version_of(obj), "uid": uid_of(obj)}
        patch = {"metadata": versioned}
        await self._client.patch(place.resource, name_of(obj), patch, namespace=place.namespace)


def _blocks(obj: Object, owner: str) -> bool:
    return any(
        reference.get("uid") == owner and bool(reference.get("blockOwnerDeletion"))
        for reference in references_of(obj)
    )


def _are_free(*objects: Object) -> bool:
    """Owned by nobody and there to stay, as most objects at most times."""
    return all(_BUSY.isdisjoint(obj["metadata"]) for obj in objects)


def _has_to_do(obj: Object) -> bool:
    """Its deletion waits for the garbage collector."""
    return is_going(obj) and not {FOREGROUND, ORPHAN}.isdisjoint(finalizers_of(obj))
