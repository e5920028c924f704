"""What a controller writes with: the client, and a note of each write for the expectations.

Refusals go through to the kit, which handles conflicts, what is gone, and servers that are busy
(livesize.controllers.kit.loop).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Generic, TypeVar

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, name_of, namespace_of, uid_of, version_of
from livesize.api.patch import PatchType
from livesize.api.reasons import EventReason, event_type
from livesize.client.interface import Client
from livesize.controllers.kit.caches import Caches
from livesize.controllers.kit.expectations import Expectations
from livesize.machinery.recorder import EventRecorder

_CONFLICT, _TOO_MANY = 409, 429

Key = TypeVar("Key", bound=Hashable)


class WriteLog(Generic[Key]):
    """Where the writes of one controller go, whatever their key is."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        watched: Collection[Resource],
        expectations: Expectations[Key],
        recorder: EventRecorder,
        enqueue: Callable[[Key], None],
    ) -> None:
        self.enqueue = enqueue
        self.client = client
        self.recorder = recorder
        self.expectations = expectations
        self._caches = caches
        self._watched = frozenset(watched)

    def note(self, key: Key, resource: Resource, written: Object) -> None:
        """Kinds that the controller does not watch, or not yet, and what the cache shows already,
        need no waiting."""
        if self._is_watched(resource) and not self._shows(resource, written):
            self.expectations.expect(key, resource, written)

    def note_deletion(self, key: Key, resource: Resource, uid: str) -> None:
        if self._is_watched(resource) and uid:
            self.expectations.expect_deletion(key, resource, uid)

    def _is_watched(self, resource: Resource) -> bool:
        return resource in self._watched and self._caches.is_started(resource)

    def _shows(self, resource: Resource, written: Object) -> bool:
        known = self._caches.of(resource).get(name_of(written), namespace_of(written))
        return known is not None and version_of(known) == version_of(written)


class ApiWriter:
    """Writes for one key."""

    def __init__(self, log: WriteLog[Any], key: Hashable) -> None:
        self._log = log
        self._key = key

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        with self._log.expectations.writing(resource):
            made = await self._log.client.create(resource, obj, namespace or namespace_of(obj))
            self._log.note(self._key, resource, made)
        return made

    async def ensure(self, resource: Resource, obj: Object) -> None:
        """Create it, unless one of its name is there."""
        try:
            await self.create(resource, obj)
        except StatusError as refusal:
            if refusal.reason != "AlreadyExists":
                raise

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """PUT the whole object, against the version that it was read in."""
        with self._log.expectations.writing(resource):
            written = await self._log.client.update(resource, obj, subresource=subresource)
            self._log.note(self._key, resource, written)
        return written

    async def patch(
        self,
        resource: Resource,
        about: Object,
        patch: Object,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        any_version: bool = False,
    ) -> Object:
        """Patch ``about``, this very object, in the version that was read or in ``any_version``."""
        said = {"uid": uid_of(about)}
        if not any_version:
            said["resourceVersion"] = version_of(about)
        body = {**patch, "metadata": {**(patch.get("metadata") or {}), **said}}
        with self._log.expectations.writing(resource):
            written = await self._log.client.patch(
                resource,
                name_of(about),
                body,
                namespace=namespace_of(about),
                patch_type=patch_type,
                subresource=subresource,
            )
            self._log.note(self._key, resource, written)
        return written

    async def delete(self, resource: Resource, about: Object, *, propagation: str = "") -> None:
        """Delete ``about``, this very object."""
        with self._log.expectations.writing(resource):
            await self._log.client.delete(
                resource,
                name_of(about),
                namespace_of(about),
                uid=uid_of(about),
                propagation=propagation,
            )
            self._log.note_deletion(self._key, resource, uid_of(about))

    async def post(
        self, resource: Resource, about: Object, subresource: str, body: Object
    ) -> Object:
        """POST to a subresource of ``about``: binding, resizing, eviction."""
        return await self._log.client.post(
            resource, name_of(about), namespace_of(about), subresource, body
        )

    async def evict(self, pod: Object) -> bool:
        """As every client may. False: not now, because a disruption budget protects it, or several
        do; or because it is another pod by now."""
        eviction = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
        }
        with self._log.expectations.writing(PODS):
            try:
                await self.post(PODS, pod, "eviction", eviction)
            except StatusError as refusal:
                if refusal.code not in (_CONFLICT, _TOO_MANY):
                    raise
                return False
            self._log.note_deletion(self._key, PODS, uid_of(pod))
        return True

    def enqueue(self, key: Hashable) -> None:
        """Another key of this controller is due."""
        self._log.enqueue(key)

    def event(self, resource: Resource, about: Object, reason: EventReason, message: str) -> None:
        """Tell people; it never fails and never waits."""
        named = {"kind": resource.kind, "apiVersion": resource.api_version}
        named["metadata"] = about["metadata"]
        self._log.recorder.record(named, event_type(reason), reason.value, message)
