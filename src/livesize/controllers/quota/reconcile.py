"""Counts each quota anew when it changes, and a while after anything in its namespace has.

The API server charges every change in its own commit, so there is nothing to correct unless it died
between storing a quota and counting what came at the same moment, or an older version wrote to
the store.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import ObjectKey, name_of, namespace_of
from livesize.api.quota import is_counted
from livesize.client.informer import Delta
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import After, Watch
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.quota.plan import QuotaCount
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

log = get_logger("controllers.quota")

SETTLED_SECONDS = 2.0  # after a change in the namespace
ANYWAY_SECONDS = 300.0

COUNTED: tuple[Resource, ...] = tuple(filter(is_counted, REGISTRY.stored()))


def quota_controller(_context: Context) -> Controller[ObjectKey]:
    return Controller(
        name="quota",
        component="resourcequota-controller",
        watches=(
            Watch(RESOURCE_QUOTAS, _own_key),
            Watch(PODS, _quotas_of, once_there_is=RESOURCE_QUOTAS),
        ),
        reconcile=_reconcile,
        conflict_seconds=SETTLED_SECONDS,  # another request has charged the quota meanwhile
    )


def _own_key(delta: Delta, _read: Reader) -> Iterator[ObjectKey | After[ObjectKey]]:
    if delta.new is None:
        return
    key = (namespace_of(delta.new), name_of(delta.new))
    if delta.old is None or delta.old.get("spec") != delta.new.get("spec"):
        yield key
    else:
        yield After(key, SETTLED_SECONDS)


def _quotas_of(delta: Delta, read: Reader) -> Iterator[After[ObjectKey]]:
    namespace = namespace_of(delta.object)
    for quota in read.list(RESOURCE_QUOTAS, namespace):
        yield After((namespace, name_of(quota)), SETTLED_SECONDS)


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
    namespace, name = key
    # The quota first: whatever is charged from here on changes its version. And not from the
    # caches, which may be behind the quota.
    quota = await read.newest(RESOURCE_QUOTAS, name, namespace)
    if quota is None:
        return Done()
    count = QuotaCount(quota)
    for resource in COUNTED:
        async for obj in read.newest_items(resource, namespace):
            count.add(resource, obj)
    counted = count.plan()
    if counted is not None:
        await write.update(RESOURCE_QUOTAS, counted, subresource="status")
        log.warning("quota was counted anew", namespace=namespace, quota=name)
    return Again(ANYWAY_SECONDS)
