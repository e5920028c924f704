"""Watches a workload and its pods, never polling, until its resize has happened or will not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from livesize.api.errors import StatusError
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.selectors import format_label_selector
from livesize.cli.resize.workload_plan import WorkloadPatch
from livesize.cli.resize.workload_progress import (
    PodProgress,
    WorkloadProgress,
    workload_progress,
)
from livesize.client.informer import Informer
from livesize.client.interface import Client
from livesize.client.pages import list_all
from livesize.machinery.context import Context

_NOT_FOUND = 404


def pods_selection(workload: Object) -> Selection:
    """Where its pods and ReplicaSets are; others may be among them."""
    selector = lookup(workload, "spec", "selector", default={})
    return Selection(namespace_of(workload), labels=format_label_selector(selector))


def own_pods(
    workload: Object, replica_sets: Iterable[Object], pods: Iterable[Object]
) -> list[Object]:
    """Those that it controls, or one of its ReplicaSets does."""
    uid = uid_of(workload)
    owners = {uid, *(uid_of(one) for one in replica_sets if _controller_uid(one) == uid)}
    return [pod for pod in pods if _controller_uid(pod) in owners]


def controller_of(obj: Object) -> Object | None:
    """The owner that makes and deletes it."""
    owners: list[Object] = lookup(obj, "metadata", "ownerReferences", default=[])
    return next((one for one in owners if one.get("controller")), None)


async def read_pods(client: Client, resource: Resource, workload: Object) -> list[Object]:
    selection = pods_selection(workload)
    listings = [await list_all(client, kind, selection) for kind in _watched_kinds(resource)]
    *replica_sets, pods = (listing.items for listing in listings)
    own = own_pods(workload, [one for items in replica_sets for one in items], pods)
    return sorted(own, key=name_of)


def _watched_kinds(resource: Resource) -> tuple[Resource, ...]:
    """Pods last."""
    return (REPLICA_SETS, PODS) if resource == DEPLOYMENTS else (PODS,)


class WorkloadFollower:
    """The newest state seen, also when a time-out ends it. ``begun`` and ``ended`` say when a pod
    was first seen on its way and with its size, by name; not of those that had it before."""

    def __init__(
        self,
        client: Client,
        context: Context,
        resource: Resource,
        workload: Object,
        pods: list[Object],
        patch: WorkloadPatch,
    ) -> None:
        self._clock, self._patch = context.clock, patch
        self._changed = asyncio.Event()
        by_name = Selection(namespace_of(workload), fields=f"metadata.name={name_of(workload)}")
        selected = pods_selection(workload)
        watched = [(resource, by_name), *((kind, selected) for kind in _watched_kinds(resource))]
        self._workloads, *self._replica_sets, self._pods = (
            Informer(client, kind, selection, context=context, on_change=self._wake)
            for kind, selection in watched
        )
        self.workload = workload
        self.progress = workload_progress(workload, pods, patch)
        self._told = {uid_of(one.pod): one.progress for one in self.progress.pods if one.is_done}
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    async def run(self, tell: Callable[[WorkloadProgress, PodProgress], None]) -> None:
        """Return when it is done, overtaken or at an end; ``tell`` hears of every step of a pod.
        Raises StatusError when the workload is deleted."""
        async with asyncio.TaskGroup() as group:
            informers = (self._workloads, *self._replica_sets, self._pods)
            watching = [group.create_task(one.run()) for one in informers]
            for one in informers:
                await one.synced.wait()
            is_there = await self._follow(tell)
            for task in watching:
                task.cancel()
        if not is_there:
            message = f"{name_of(self.workload)} was deleted before its pods were resized"
            raise StatusError(_NOT_FOUND, "NotFound", message)

    async def _follow(self, tell: Callable[[WorkloadProgress, PodProgress], None]) -> bool:
        while True:
            self._changed.clear()
            found = self._workloads.items()
            if not found or not self._is_the_same(found[0]):
                return False
            self.workload = found[0]
            replica_sets = [one for known in self._replica_sets for one in known.items()]
            pods = own_pods(self.workload, replica_sets, self._pods.items())
            self._look(workload_progress(self.workload, pods, self._patch), tell)
            if self.progress.is_done or self.progress.overtaken or self.progress.is_at_an_end:
                return True
            await self._changed.wait()

    def _is_the_same(self, workload: Object) -> bool:
        is_leaving = lookup(workload, "metadata", "deletionTimestamp") is not None
        return uid_of(workload) == uid_of(self.workload) and not is_leaving

    def _look(
        self, progress: WorkloadProgress, tell: Callable[[WorkloadProgress, PodProgress], None]
    ) -> None:
        now, there = self._clock.monotonic(), {uid_of(one.pod) for one in progress.pods}
        gone = [one for one in self.progress.pods if uid_of(one.pod) not in there]
        news = [
            one
            for one in progress.pods
            if not one.is_queued and self._told.get(uid_of(one.pod)) != one.progress
        ]
        self.progress = progress
        for one in (*gone, *news):
            self.begun.setdefault(name_of(one.pod), now)
        for one in news:
            self._told[uid_of(one.pod)] = one.progress
            if one.is_done:
                self.ended.setdefault(name_of(one.pod), now)
            tell(progress, one)

    def _wake(self, _delta: object) -> None:
        self._changed.set()


def _controller_uid(obj: Object) -> str:
    return str((controller_of(obj) or {}).get("uid", ""))
