"""Workloads on the real API service and virtual time, with a node that is made up.

    async with workload_world() as world:
        await world.make(DEPLOYMENTS, "web", replicas=3)
        await world.until(lambda: len(world.pods()) == 3)

``dies_at``: the controllers die after that many writes, and others begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.patch import PatchType
from livesize.api.times import format_time
from livesize.apiserver.auth.identities import node_identity
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.namespaces import ensure_lasting_namespaces, run_namespaces
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.service import ApiService
from livesize.controllers.deployment.reconcile import deployment_controller
from livesize.controllers.garbage.reconcile import garbage_controller
from livesize.controllers.kit.loop import Controller, run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.controllers.kit.owned_pods import is_active, is_leaving, is_ready
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Result
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.replicaset.reconcile import replicaset_controller
from livesize.store.memory import MemoryStore
from unit.api.kinds.workload_objects import workload
from unit.apiserver.conftest import ADMIN, IDENTITIES
from virtual_time import CLOCK, virtual_context

TURN_SECONDS = 0.1
LONG_SECONDS = 300.0


class ControllerClient(DirectClient):
    """Notes every write but those of events, and after write number ``dies_at`` answers nothing
    any more: whoever uses it is as good as dead."""

    def __init__(self, world: World, dies_at: int) -> None:
        super().__init__(world.service, IDENTITIES["controller"])
        self._world = world
        self._dies_at = dies_at

    async def create(self, resource: Resource, *given: Any, **more: Any) -> Object:
        if resource in self._world.refused:
            self._world.attempts += 1
            raise self._world.refused[resource]
        return await self._noted(resource, "create", super().create(resource, *given, **more))

    async def update(self, resource: Resource, *given: Any, **more: Any) -> Object:
        verb = more.get("subresource") or "update"
        return await self._noted(resource, verb, super().update(resource, *given, **more))

    async def patch(self, resource: Resource, *given: Any, **more: Any) -> Object:
        return await self._noted(resource, "patch", super().patch(resource, *given, **more))

    async def delete(self, resource: Resource, *given: Any, **more: Any) -> Object:
        return await self._noted(resource, "delete", super().delete(resource, *given, **more))

    async def _noted(self, resource: Resource, verb: str, write: Any) -> Any:
        answer = await write
        if resource != EVENTS:
            self._world.writes.append(f"{verb} {resource.plural}")
            self._world.look()
            if len(self._world.writes) == self._dies_at:
                self._world.died.set()
                await asyncio.Event().wait()
        return answer


class World:
    def __init__(self) -> None:
        context = virtual_context()
        self.store = MemoryStore()
        self.cache = ObjectsCache(self.store)
        self.service = ApiService(self.store, self.cache, context)
        self.user = DirectClient(self.service, ADMIN)
        self.node = DirectClient(self.service, node_identity("n1"))
        self.writes: list[str] = []
        """What controllers have written."""
        self.refused: dict[Resource, Exception] = {}
        """Why controllers may not create objects of a kind."""
        self.attempts = 0
        """How often they tried nevertheless."""
        self.reconciled: list[Any] = []
        """The controllers' names and keys, in the order of their turns."""
        self.died = asyncio.Event()
        self.broken: set[str] = set()
        """Images whose pods never become ready."""
        self.ready_seconds = 0.0
        """How long a pod starts."""
        self.lingers: set[str] = set()
        """Pods that do not end."""
        self.most_active = 0
        self.least_ready: int | None = None
        """The extremes since ``watch_closely``."""

    # What a user does

    async def make(self, resource: Resource, name: str = "web", **spec: Any) -> Object:
        return await self.user.create(resource, workload(resource, name, **spec), "default")

    async def change(self, resource: Resource, name: str = "web", **spec: Any) -> Object:
        return await self.user.patch(resource, name, {"spec": spec}, namespace="default")

    async def roll(self, image: str, **spec: Any) -> Object:
        containers = [{"name": "app", "image": image}]
        patch = {"spec": {"template": {"spec": {"containers": containers}}, **spec}}
        return await self.user.patch(
            DEPLOYMENTS, "web", patch, namespace="default", patch_type=PatchType.STRATEGIC
        )

    async def label(self, resource: Resource, name: str, **labels: str | None) -> None:
        patch = {"metadata": {"labels": labels}}
        await self.user.patch(resource, name, patch, namespace="default")

    # What is to be seen

    def all(self, resource: Resource) -> list[Object]:
        return [record.served for record in self.cache.records(resource)]

    def get(self, resource: Resource, name: str = "web") -> Object:
        return next((one for one in self.all(resource) if name_of(one) == name), {})

    def pods(self) -> list[Object]:
        return [pod for pod in self.all(PODS) if is_active(pod)]

    def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in self.pods())

    def sizes(self) -> dict[str, int]:
        """The replicas of each ReplicaSet that has any, by image."""
        return {
            lookup(one, "spec", "template", "spec", "containers", 0, "image"): replicas
            for one in self.all(REPLICA_SETS)
            if (replicas := one["spec"]["replicas"])
        }

    def reason(self, kind: str, resource: Resource = DEPLOYMENTS) -> str:
        conditions = lookup(self.get(resource), "status", "conditions", default=[])
        return str({one["type"]: one["reason"] for one in conditions}.get(kind))

    def told(self, reason: str) -> list[str]:
        return [one["message"] for one in self.all(EVENTS) if one["reason"] == reason]

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(LONG_SECONDS):
            while not holds():
                await CLOCK.sleep(TURN_SECONDS)

    async def settled(self) -> None:
        """Until nothing is written for a second."""
        before = -1
        while before != len(self.writes):
            before = len(self.writes)
            await CLOCK.sleep(1)

    async def rolled_out(self, image: str, replicas: int) -> None:
        def is_done() -> bool:
            status = self.get(DEPLOYMENTS).get("status") or {}
            counts = ("updatedReplicas", "replicas", "availableReplicas")
            return self.images() == [image] * replicas and all(
                status.get(name, 0) == replicas for name in counts
            )

        await self.until(is_done)

    def watch_closely(self) -> None:
        self.most_active, self.least_ready = 0, None

    def look(self) -> None:
        pods = self.pods()
        self.most_active = max(self.most_active, len(pods))
        ready = sum(map(is_ready, pods))
        self.least_ready = min(ready, ready if self.least_ready is None else self.least_ready)

    # What runs

    async def run_node(self) -> None:
        while True:
            for pod in self.all(PODS):
                await self._turn(pod)
            self.look()
            await CLOCK.sleep(TURN_SECONDS)

    async def _turn(self, pod: Object) -> None:
        name = name_of(pod)
        if is_leaving(pod):
            if name not in self.lingers:
                await self.node.delete(PODS, name, "default", grace_period_seconds=0)
        elif not lookup(pod, "spec", "nodeName"):
            await self.user.post(PODS, name, "default", "binding", {"target": {"name": "n1"}})
        elif pod["status"]["phase"] == "Pending":
            await self.say(pod, phase="Running", startTime=format_time(CLOCK.now()))
        elif not is_ready(pod) and pod["spec"]["containers"][0]["image"] not in self.broken:
            await CLOCK.sleep(self.ready_seconds)
            await self.ready(pod)

    async def ready(self, pod: Object, *, is_ready: bool = True) -> None:
        since = format_time(CLOCK.now())
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}
        await self.say(pod, conditions=[condition])

    async def say(self, pod: Object, **status: Any) -> None:
        said = {"status": status}
        await self.node.patch(PODS, name_of(pod), said, namespace="default", subresource="status")

    async def run_controllers(self, dies_at: int) -> None:
        context = virtual_context(2)
        makes = (deployment_controller, replicaset_controller, garbage_controller)
        while True:
            client = ControllerClient(self, dies_at)
            made = [self._counted(make(context)) for make in makes]
            task = asyncio.create_task(run_controllers(made, client, context, KitMetrics()))
            try:
                await self.died.wait()
            finally:
                task.cancel()
                await asyncio.wait([task])
            self.died.clear()

    def _counted(self, controller: Controller[Any]) -> Controller[Any]:
        async def reconcile(key: Any, read: Reader, write: ApiWriter) -> Result:
            self.reconciled.append((controller.name, key))
            return await controller.reconcile(key, read, write)

        return msgspec.structs.replace(controller, reconcile=reconcile)


@asynccontextmanager
async def workload_world(dies_at: int = 0) -> AsyncIterator[World]:
    world = World()
    tasks = [asyncio.create_task(world.cache.run())]
    await world.cache.loaded.wait()
    await ensure_lasting_namespaces(world.service)
    room = {"capacity": {"cpu": "999", "memory": "999Gi", "pods": "999"}}
    node: Object = evolve({"metadata": {"name": "n1"}}, ("status",), room)
    await world.user.create(NODES, node)
    working = (
        run_namespaces(world.service, clock=CLOCK),
        world.run_node(),
        world.run_controllers(dies_at),
    )
    tasks += [asyncio.create_task(work) for work in working]
    try:
        yield world
        failed = [task for task in tasks if task.done()]
        assert not failed, failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
