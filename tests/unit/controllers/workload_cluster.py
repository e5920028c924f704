"""A cluster on virtual time: the real API service, scheduler and agents, machines in memory.

The built-in controllers are those of the control plane. in_place runs beside them. Both may die at
any write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from design.kubernetes_only import KubernetesOnly
from livesize.agent.settings import AgentSettings
from livesize.api.conditions import is_true
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, generation_of, lookup, name_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.api.workload_resize import RESIZE_STATUS
from livesize.apiserver.auth.identities import Identity
from livesize.client.interface import Client
from livesize.controllers.in_place.reconcile import in_place_controller
from livesize.controllers.kit.loop import run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from livesize.machinery.context import Context, seeded_context
from livesize.main.wiring.controllers import CLUSTER
from livesize.main.wiring.scheduler import schedule
from livesize.runtime.fake import FakeMachine
from livesize.runtime.oci import BUILT_IN_IMAGE
from livesize.sim.control_plane import CONTROLLERS, SCHEDULER, ControlPlane
from livesize.sim.loop import VirtualClock
from livesize.sim.network import QUIET, Network
from livesize.sim.node import SimNode
from livesize.sim.trace import Trace
from livesize.store.memory import MemoryStore

GIB = 1 << 30
NAMESPACE = "default"
USER = Identity("user", Role.ADMIN)
LABELS = {"app": "db"}


Refuse: TypeAlias = Callable[[str, Any, str], None]
"""Raises StatusError."""


def take_all(_name: str, _patch: Any, _subresource: str) -> None:
    """Nothing is refused that our own API server takes."""


class MortalClient(KubernetesOnly):
    """Lets ``writes`` through, and dies at the next one: before it, or after it was done.
    ``refuse``: what another API server says to a patch (name, patch, subresource)."""

    def __init__(
        self, client: Client, writes: float = float("inf"), *, after: bool, refuse: Refuse
    ) -> None:
        super().__init__(client)
        self._left = writes
        self._after = after
        self._refuse = refuse
        self.dead = asyncio.Event()
        self.written: list[str] = []

    async def _write(self, what: str, request: Callable[[], Any]) -> Any:
        if self.dead.is_set():
            await asyncio.Event().wait()
        self._left -= 1
        if self._left >= 0:
            self.written.append(what)
            return await request()
        self.dead.set()
        if self._after:
            await request()
        return await asyncio.Event().wait()  # until its task is cancelled

    async def create(self, resource: Resource, *given: Any, **more: Any) -> Object:
        if resource.kind == "Event":
            made: Object = await super().create(resource, *given, **more)
            return made
        raise AssertionError(f"in_place creates no {resource.kind}")

    async def update(self, resource: Resource, obj: Object, **more: Any) -> Object:
        parent = super().update
        written: Object = await self._write(
            f"update {resource.kind}", lambda: parent(resource, obj, **more)
        )
        return written

    async def patch(self, resource: Resource, name: str, patch: Any, **more: Any) -> Object:
        parent = super().patch
        if resource.kind == "Event":
            noted: Object = await parent(resource, name, patch, **more)
            return noted
        what = f"{more.get('subresource') or 'patch'} {name}"
        self._refuse(name, patch, more.get("subresource", ""))
        written: Object = await self._write(what, lambda: parent(resource, name, patch, **more))
        return written

    async def delete(self, *given: Any, **more: Any) -> Object:
        parent = super().delete
        gone: Object = await self._write(f"delete {given[1]}", lambda: parent(*given, **more))
        return gone

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        parent = super().post
        answer: Object = await self._write(
            f"{subresource} {name}", lambda: parent(resource, name, namespace, subresource, body)
        )
        return answer


class DyingClient:
    """Of the built-in controllers: lives until ``die`` is told at which of the writes that are to
    come it ends, before or after it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._left, self._after = float("inf"), False
        self.dead = asyncio.Event()

    def die(self, writes: int, *, after: bool) -> None:
        self._left, self._after = writes, after

    def live(self) -> None:
        self._left = float("inf")

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._client, name)
        if name not in {"create", "update", "patch", "delete", "post"}:
            return request

        async def write(resource: Resource, *given: Any, **more: Any) -> Object:
            if resource.kind != "Event":
                self._left -= 1
            if self._left >= 0:
                written: Object = await request(resource, *given, **more)
                return written
            if self._after and not self.dead.is_set():
                await request(resource, *given, **more)
            self.dead.set()
            return await asyncio.Event().wait()  # type: ignore[return-value]  # it is cancelled

        return write


class WorkloadCluster:
    def __init__(self, nodes: int, cpu_milli: int) -> None:
        self.context = seeded_context(1, VirtualClock())
        self.clock = self.context.clock
        parts = {"scheduler": (schedule, SCHEDULER), "cluster": (self._control, CONTROLLERS)}
        self.plane = ControlPlane(MemoryStore(), self.context, parts)
        trace = Trace(None)
        self.network = Network(self.plane, self.clock, self.context.random, trace, QUIET)
        self.nodes = [
            SimNode(
                AgentSettings(
                    node_name=f"n{number}",
                    allocatable_cpu_milli=cpu_milli,
                    allocatable_memory_bytes=64 * GIB,
                ),
                FakeMachine(self.context, cpu_milli=cpu_milli, memory_bytes=64 * GIB),
                self.context,
                trace,
            )
            for number in range(1, nodes + 1)
        ]
        self.user = self.network.connect("user", USER)
        self.uids: dict[str, list[str]] = {}
        """Of each pod, those that it has had."""
        self._in_place: asyncio.Task[None] | None = None
        self.built_in = DyingClient(self.user)
        """Of the controllers that the cluster brings."""

    async def _control(self, client: Client, context: Context) -> None:
        """The built-in controllers; those that have died are started again."""
        while True:
            mortal = self.built_in = DyingClient(client)
            work = asyncio.create_task(control_cluster(mortal, context))
            try:
                await mortal.dead.wait()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def begin(
        self, writes: float = float("inf"), *, after: bool = False, refuse: Refuse = take_all
    ) -> MortalClient:
        """in_place begins to work; the one before has died."""
        inner = self.network.connect("in-place", CONTROLLERS)
        client = MortalClient(inner, writes, after=after, refuse=refuse)
        self.work(client)
        return client

    def work(self, client: Client) -> None:
        made = in_place_controller(self.context)
        work = run_controllers([made], client, self.context, KitMetrics())
        self._in_place = asyncio.create_task(work)

    async def end(self) -> None:
        if self._in_place is not None:
            self._in_place.cancel()
            await asyncio.gather(self._in_place, return_exceptions=True)
            self._in_place = None

    async def get(self, resource: Resource, name: str = "db") -> Object:
        return await self.user.get(resource, name, NAMESPACE)

    async def pods(self) -> list[Object]:
        """Of the workload."""
        items = (await self.user.list(PODS, Selection(NAMESPACE))).items
        own = [pod for pod in items if lookup(pod, "metadata", "labels", "app") == LABELS["app"]]
        return sorted(own, key=lambda pod: (len(name_of(pod)), name_of(pod)))

    async def write(self, resource: Resource, patch: Object, name: str = "db") -> Object:
        return await self.user.patch(
            resource, name, patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
        )

    async def resize(self, resource: Resource, cpu: str, **more: Any) -> Object:
        sizes = {"cpu": cpu, "memory": "1Gi"}
        app = {"name": "app", "resources": {"requests": sizes, "limits": sizes}}
        template = {"spec": {"containers": [app]}}
        return await self.write(resource, {**more, "spec": {"template": template}})

    async def until(self, holds: Callable[[], Any], seconds: float = 120.0) -> None:
        """``holds``: a coroutine function; asked every 50 ms."""
        async with asyncio.timeout(seconds):
            while not await holds():
                await self.clock.sleep(0.05)

    async def until_ready(self, count: int) -> None:
        async def ready() -> bool:
            pods = await self.pods()
            return len(pods) == count and all(is_true(pod, "Ready") for pod in pods)

        await self.until(ready)

    async def until_released(self, resource: Resource, name: str = "db") -> Object:
        async def released() -> bool:
            found = await self.get(resource, name)
            annotations = found["metadata"]["annotations"]
            seen = lookup(found, "status", "observedGeneration") == generation_of(found)
            return seen and "livesize.dev/held" not in annotations

        await self.until(released)
        return await self.get(resource, name)

    async def sizes(self) -> list[str]:
        """CPU limits as the machines have them."""
        return [
            str(lookup(pod, "status", "containerStatuses", 0, "resources", "limits", "cpu"))
            for pod in await self.pods()
        ]

    async def status(self, resource: Resource) -> Any:
        found = await self.get(resource)
        return json.loads(lookup(found, "metadata", "annotations", RESIZE_STATUS, default="{}"))

    async def follow(self) -> None:
        """Notes every pod that there ever was."""
        while True:
            for pod in await self.pods():
                known = self.uids.setdefault(name_of(pod), [])
                if uid_of(pod) not in known:
                    known.append(uid_of(pod))
            await self.clock.sleep(0.05)


@contextlib.asynccontextmanager
async def workload_cluster(
    nodes: int = 1, cpu_milli: int = 64000
) -> AsyncIterator[WorkloadCluster]:
    cluster = WorkloadCluster(nodes, cpu_milli)
    async with asyncio.TaskGroup() as tasks:
        await cluster.plane.start(cluster.network, tasks)
        for node in cluster.nodes:
            await node.start(cluster.network, tasks)
        following = tasks.create_task(cluster.follow())
        try:
            yield cluster
        finally:
            following.cancel()
            await cluster.end()
            for node in cluster.nodes:
                await node.kill()
            await cluster.plane.kill()


def workload(resource: Resource, replicas: int = 3, **more: Any) -> Object:
    sizes = {"cpu": "1", "memory": "1Gi"}
    app = {
        "name": "app",
        "image": BUILT_IN_IMAGE,
        "resources": {"requests": sizes, "limits": sizes},
    }
    app |= more.pop("container", {})
    annotations = {"resizeAction": "InPlaceResizePreferred", **more.pop("annotations", {})}
    spec = {"containers": [app], "terminationGracePeriodSeconds": 0}
    return {
        "metadata": {"name": "db", "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
            **more,
        },
    }


async def control_cluster(client: Client, context: Context) -> None:
    """The built-in controllers alone."""
    await run_controllers([make(context) for make in CLUSTER], client, context, KitMetrics())
