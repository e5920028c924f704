"""The API server of the agent's tests: the real API service on a memory store.

``WorldApi`` is what users do and see. ``NodeClient`` is the agent's client, of which a test sees
what the agent said, and which a test can cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from livesize.api.errors import StatusError
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection, WatchEvent
from livesize.api.objects import Object, evolve, lookup, version_of
from livesize.api.patch import PatchType
from livesize.api.resize_state import resize_state
from livesize.api.resources import is_vm
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.keys import key_of
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.service import ApiService
from livesize.machinery.context import Context
from memory_service import MemoryService

NODE = "node-1"
NAMESPACE = "default"


class NodeClient(DirectClient):
    """``posts``: every body of pods/X/resizing that was taken; ``refused``: that was not.
    ``is_down``: no request arrives, while open watches go on."""

    def __init__(self, service: ApiService) -> None:
        super().__init__(service, node_identity(NODE))
        self.posts: list[Object] = []
        self.refused: list[Object] = []
        self.deletes = 0
        self.watched: set[Resource] = set()
        self.is_down = False
        self._hears = asyncio.Event()
        self._hears.set()

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """What happens meanwhile the node hears of afterwards, all at once."""
        self._hears.clear()
        yield
        self._hears.set()

    async def watch(
        self, resource: Resource, *parts: Any, **more: Any
    ) -> AsyncGenerator[WatchEvent, None]:
        self.watched.add(resource)
        async with contextlib.aclosing(super().watch(resource, *parts, **more)) as events:
            async for event in events:
                await self._hears.wait()
                yield event

    async def delete(self, *parts: Any, **more: Any) -> Object:
        deleted = await super().delete(*parts, **more)
        self.deletes += 1
        return deleted

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        try:
            answer = await super().post(resource, name, namespace, subresource, body)
        except StatusError:
            self.refused.append(body)
            raise
        self.posts.append(body)
        return answer

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        if self.is_down:
            raise ConnectionError("the API server is away")
        with super()._reachable():
            yield


class WorldApi(DirectClient):
    """An administrator's client, with what users do to pods in few words; and what is stored."""

    def __init__(self, context: Context) -> None:
        self.server = MemoryService(context)
        super().__init__(self.server.service, Identity("test", Role.ADMIN))
        self.node_client = NodeClient(self.server.service)

    async def start(self) -> None:
        await self.server.start()

    # What users do

    async def run_pod(self, name: str, *containers: Object, **spec: Any) -> Object:
        """Create a pod that is bound to the node already."""
        if containers:
            spec["containers"] = list(containers)
        pod = {"metadata": {"name": name}, "spec": {"nodeName": NODE, **spec}}
        return await self.create(PODS, pod, NAMESPACE)

    async def resize(self, name: str, container: str, **amounts: str) -> None:
        """Ask for cpu and memory, requests and limits alike; a limit-only word: ``limit_cpu``."""
        resources: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for word, amount in amounts.items():
            resources["limits"][word.removeprefix("limit_")] = amount
            if not word.startswith("limit_"):
                resources["requests"][word] = amount
        spec: Object = {"virtualMachine": {"resources": resources}}
        if not is_vm(self.pod(name)):
            starting = lookup(self.pod(name), "spec", "initContainers", default=[])
            is_starting = container in [one["name"] for one in starting]
            kind = "initContainers" if is_starting else "containers"
            spec = {kind: [{"name": container, "resources": resources}]}
        await self._patch_pod(name, {"spec": spec}, "resize")

    async def mark_deleted(self, name: str, *, grace_seconds: int | None = None) -> None:
        await self.delete(PODS, name, NAMESPACE, grace_period_seconds=grace_seconds)

    async def vanish(self, name: str) -> None:
        """Deleted with force: the object goes first."""
        await self.mark_deleted(name, grace_seconds=0)

    async def finalize(self, name: str, *finalizers: str) -> None:
        await self.edit(name, ("metadata", "finalizers"), list(finalizers))

    async def edit(self, name: str, path: tuple[str | int, ...], value: Any) -> None:
        part, field = path[:2]
        edited = lookup(evolve(self.pod(name), path, value), part, field)
        subresource = "status" if part == "status" else ""
        await self._patch_pod(name, {part: {field: edited}}, subresource, PatchType.MERGE)

    async def _patch_pod(
        self,
        name: str,
        patch: Object,
        subresource: str,
        patch_type: PatchType = PatchType.STRATEGIC,
    ) -> None:
        how = {"patch_type": patch_type, "subresource": subresource}
        await self.patch(PODS, name, patch, namespace=NAMESPACE, **how)

    # What is stored

    @property
    def objects(self) -> dict[tuple[str, str, str], Object]:
        """By kind, namespace and name."""
        return {
            (resource.plural, record.namespace, record.name): record.stored
            for resource in REGISTRY.stored()
            for record in self.server.cache.records(resource)
        }

    def has(self, name: str) -> bool:
        return self._record(name) is not None

    def pod(self, name: str) -> Object:
        record = self._record(name)
        assert record is not None, f"there is no pod {name}"
        return record.stored

    def served(self, name: str) -> Object:
        record = self._record(name)
        assert record is not None, f"there is no pod {name}"
        return record.served

    def _record(self, name: str) -> ObjectRecord | None:
        return self.server.cache.get(PODS, key_of(PODS, NAMESPACE, name))

    def phase(self, name: str) -> str:
        return str(resize_state(self.pod(name)).get("phase"))

    async def told(self, name: str) -> list[str]:
        """Phases of a pod's resize, as a watch shows them, from the beginning."""
        newest, phases = version_of(self.pod(name)), list[str]()
        only = Selection(NAMESPACE, fields=f"metadata.name={name}")
        async for event in self.watch(PODS, only, resource_version="1"):
            phase = str(resize_state(event.object).get("phase"))
            phases += [phase] if phases[-1:] != [phase] else []
            if version_of(event.object) == newest:
                break
        return phases

    def node(self) -> Object:
        return self.objects[NODES.plural, "", NODE]

    def event_reasons(self, name: str) -> list[str]:
        events = [record.stored for record in self.server.cache.records(EVENTS)]
        return [one["reason"] for one in events if one["involvedObject"]["name"] == name]
