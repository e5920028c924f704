"""Counts each quota anew when it changes, and a while after anything in its namespace has.

The door charges every change in its own commit, so there is nothing to correct unless it died
between storing a quota and counting what came at the same moment, or an older version wrote to
the store.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.quota import is_counted
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.controllers.quota.plan import plan_recount
from livesize.machinery.context import Context
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.quota")

SETTLED_SECONDS = 2.0  # after a change in the namespace
ANYWAY_SECONDS = 300.0

Key: TypeAlias = tuple[str, str]


class QuotaCounter:
    """``await run()`` until cancelled."""

    def __init__(self, client: Client, *, context: Context) -> None:
        self._client = client
        self._queue: WorkQueue[Key] = WorkQueue(context)
        self._quotas = Informer(
            client, RESOURCE_QUOTAS, context=context, on_change=self._observe_quota
        )
        self._pods = Informer(client, PODS, context=context, on_change=self._observe_pod)
        self._in_namespace: dict[str, dict[Key, None]] = {}
        self._has_quotas = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._quotas.run())
            group.create_task(self._follow_pods())
            await run_workers(self._queue, self._reconcile, 1)

    async def _follow_pods(self) -> None:
        """From the first quota on: where there is none, nobody listens to all the pods."""
        await self._has_quotas.wait()
        await self._pods.run()

    def _observe_quota(self, delta: Delta) -> None:
        key = (namespace_of(delta.object), name_of(delta.object))
        if delta.new is None:
            self._in_namespace.get(key[0], {}).pop(key, None)
            return
        self._in_namespace.setdefault(key[0], {})[key] = None
        self._has_quotas.set()
        if delta.old is None or delta.old.get("spec") != delta.new.get("spec"):
            self._queue.add(key)
        else:
            self._queue.add_after(key, SETTLED_SECONDS)

    def _observe_pod(self, delta: Delta) -> None:
        for key in self._in_namespace.get(namespace_of(delta.object), ()):
            self._queue.add_after(key, SETTLED_SECONDS)

    async def _reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            # The quota first: whatever is charged from here on changes its version.
            quota = await self._client.get(RESOURCE_QUOTAS, name, namespace)
            counted = plan_recount(quota, await self._objects(namespace))
            if counted is not None:
                await self._client.update(RESOURCE_QUOTAS, counted, subresource="status")
                log.warning("quota was counted anew", namespace=namespace, quota=name)
        except StatusError as refusal:
            if refusal.code == 404:
                return None
            if refusal.code == 409:
                return SETTLED_SECONDS  # somebody has written meanwhile, and charged it
            raise
        return ANYWAY_SECONDS

    async def _objects(self, namespace: str) -> list[tuple[Resource, Object]]:
        found = []
        for resource in REGISTRY.stored():
            if is_counted(resource):
                listing = await self._client.list(resource, Selection(namespace))
                found += [(resource, obj) for obj in listing.items]
        return found
