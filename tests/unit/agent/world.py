"""A small API server in memory, a fake machine, and an agent between them, for the agent's tests.

The API server keeps the promises the agent relies on (versions, watch order, resizing by the real
``apply_resizing``), and can be made unreachable.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from livesize.agent.agent import Agent
from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.allocation.memory_file import MemoryDisk
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.settings import AgentSettings
from livesize.api.defaults import default_object
from livesize.api.dialects import derive_dialects, strip_dialects
from livesize.api.errors import StatusError, already_exists, conflict, not_found
from livesize.api.kernel_units import CgroupVersion
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.list_watch import EVERYTHING, ObjectList, Selection, WatchEvent, WatchEventType
from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of
from livesize.api.patch import PatchType
from livesize.api.patch.merge import merge_patch
from livesize.api.resize_state import (
    accepted_on_the_way,
    apply_resizing,
    bind_allocated,
    remember_request,
    request_resize,
    resize_state,
)
from livesize.api.resources import is_vm
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import ContainerGroup, PodGroup
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import VolumeStore
from livesize.sim.node import NoVolumes
from virtual_time import virtual_context

NODE = "node-1"
Key = tuple[str, str, str]


class SimulatedCrashError(BaseException):
    """The process died here; nothing may catch it."""


class CrashAt(CrashPoints):
    """Raises where the real one would kill; remembers all that was reached."""

    def __init__(self, point: str = "") -> None:
        super().__init__()
        self.point = point
        self.reached: list[str] = []

    def reach(self, name: str) -> None:
        self.reached.append(name)
        if name == self.point:
            self.point = ""
            raise SimulatedCrashError(name)


class MemoryApi:
    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.posts: list[Object] = []  # every body of pods/X/resizing that was taken
        self.refused: list[Object] = []  # and those that were refused
        self.told: dict[str, list[str]] = {}  # phases of a pod's resize, as a watch shows them
        self.is_down = False
        self.deletes = 0  # that were taken
        self._revision = 0
        self._uids = itertools.count(1)
        self._watchers: list[tuple[str, asyncio.Queue[WatchEvent]]] = []

    # The client's side.

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        self._check_up()
        return self._served(self._find(resource, name, namespace))

    async def list(
        self, resource: Resource, selection: Selection = EVERYTHING, **_: Any
    ) -> ObjectList:
        self._check_up()
        items = [
            self._served(obj) for key, obj in self.objects.items() if key[0] == resource.plural
        ]
        return ObjectList(tuple(items), str(self._revision))

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        if initial_events:
            raise StatusError(422, "Invalid", "this small server does not offer initial events")
        assert int(resource_version) <= self._revision
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        watcher = (resource.plural, queue)
        self._watchers.append(watcher)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(watcher)

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        self._check_up()
        metadata = {"namespace": namespace, **obj["metadata"]}
        key = (resource.plural, namespace, metadata["name"])
        if key in self.objects:
            raise already_exists(resource, metadata["name"])
        metadata = {**metadata, "uid": f"uid-{next(self._uids)}", "generation": 1}
        return self._store(WatchEventType.ADDED, key, {**obj, "metadata": metadata})

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        self._check_up()
        namespace = lookup(obj, "metadata", "namespace", default="")
        key = (resource.plural, namespace, obj["metadata"]["name"])
        return self._store(WatchEventType.MODIFIED, key, obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Object:
        self._check_up()
        await asyncio.sleep(0)
        obj = self._find(resource, name, namespace)
        uid = lookup(patch, "metadata", "uid", default=uid_of(obj))
        if uid != uid_of(obj):
            raise conflict(resource, name)
        if subresource == "status":
            patch = {"status": patch["status"]}
        changed = strip_dialects(merge_patch(obj, patch))
        return self._store(WatchEventType.MODIFIED, (resource.plural, namespace, name), changed)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
    ) -> Object:
        self._check_up()
        obj = self._find(resource, name, namespace)
        if uid and uid != uid_of(obj):
            raise conflict(resource, name)
        self.deletes += 1
        if obj["metadata"].get("finalizers"):
            marked = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
            obj = evolve(obj, ("metadata",), {**obj["metadata"], **marked})
            return self._store(WatchEventType.MODIFIED, (resource.plural, namespace, name), obj)
        return self._remove((resource.plural, namespace, name))

    async def post(
        self, resource: Resource, name: str, namespace: str, subresource: str, body: Object
    ) -> Object:
        self._check_up()
        assert subresource == "resizing"
        await asyncio.sleep(0)
        pod = self._find(resource, name, namespace)
        try:
            answered = apply_resizing(pod, body, now="2026-01-01T00:00:00Z")
        except StatusError:
            self.refused.append(body)
            raise
        self.posts.append(body)
        for event in body.get("events", []):
            key = (EVENTS.plural, namespace, event["metadata"]["name"])
            self._store(WatchEventType.ADDED, key, event)
        key = (resource.plural, namespace, name)
        accepted = accepted_on_the_way(pod, answered)
        if accepted is not None:
            self._store(WatchEventType.MODIFIED, key, accepted)
        return self._store(WatchEventType.MODIFIED, key, answered)

    async def close(self) -> None: ...

    # The user's, the scheduler's and the door's side.

    async def run_pod(self, name: str, *containers: Object, **spec: Any) -> Object:
        """Create a pod that is bound to the node already."""
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": list(containers), **spec},
        }
        pod = default_object(PODS, pod)
        bound = bind_allocated(evolve(pod, ("metadata", "generation"), 1))
        return await self.create(PODS, bound, "default")

    def resize(self, name: str, container: str, **amounts: str) -> None:
        """Ask for cpu and memory, requests and limits alike; a limit-only word: ``limit_cpu``."""
        pod = self.pod(name)
        path = _resources_path(pod, container)
        before = lookup(pod, *path)
        sides = {"requests": dict(before["requests"]), "limits": dict(before["limits"])}
        for word, amount in amounts.items():
            if word.startswith("limit_"):
                sides["limits"][word.removeprefix("limit_")] = amount
            else:
                sides["requests"][word] = sides["limits"][word] = amount
        resources = {**before, **sides}
        new = evolve(pod, path, resources)
        new = evolve(new, ("metadata", "generation"), generation_of(pod) + 1)
        asked = request_resize(pod, new, requested_by="test", now="2026-01-01T00:00:00Z")
        self._store(WatchEventType.MODIFIED, ("pods", "default", name), asked)

    def mark_deleted(self, name: str, *, grace_seconds: int | None = None) -> None:
        pod = evolve(self.pod(name), ("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z")
        if grace_seconds is not None:
            pod = evolve(pod, ("metadata", "deletionGracePeriodSeconds"), grace_seconds)
        self._store(WatchEventType.MODIFIED, ("pods", "default", name), pod)

    def finalize(self, name: str, *finalizers: str) -> None:
        pod = evolve(self.pod(name), ("metadata", "finalizers"), list(finalizers))
        self._store(WatchEventType.MODIFIED, ("pods", "default", name), pod)

    def vanish(self, name: str) -> None:
        """Deleted with force: the object goes first."""
        self._remove(("pods", "default", name))

    def edit(self, name: str, path: tuple[str | int, ...], value: Any) -> None:
        pod = evolve(self.pod(name), path, value)
        pod = evolve(pod, ("metadata", "generation"), generation_of(pod) + 1)
        self._store(WatchEventType.MODIFIED, ("pods", "default", name), pod)

    def has(self, name: str) -> bool:
        return ("pods", "default", name) in self.objects

    def pod(self, name: str) -> Object:
        return self.objects["pods", "default", name]

    def served(self, name: str) -> Object:
        return derive_dialects(self.pod(name))

    def phase(self, name: str) -> str:
        return str(resize_state(self.pod(name)).get("phase"))

    def node(self) -> Object:
        return self.objects[NODES.plural, "", NODE]

    def event_reasons(self, name: str) -> list[str]:
        return [
            obj["reason"]
            for key, obj in self.objects.items()
            if key[0] == EVENTS.plural and obj["involvedObject"]["name"] == name
        ]

    def watched(self, plural: str) -> bool:
        return any(one == plural for one, _ in self._watchers)

    def _check_up(self) -> None:
        if self.is_down:
            raise ConnectionError("the API server is away")

    def _find(self, resource: Resource, name: str, namespace: str) -> Object:
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise not_found(resource, name) from None

    def _served(self, obj: Object) -> Object:
        return derive_dialects(obj)

    def _store(self, event: WatchEventType, key: Key, obj: Object) -> Object:
        self._revision += 1
        if key[0] == PODS.plural and key in self.objects:
            obj = remember_request(self.objects[key], obj)
        stored = evolve(obj, ("metadata", "resourceVersion"), str(self._revision))
        self.objects[key] = stored
        if key[0] == PODS.plural:
            told, phase = self.told.setdefault(key[2], []), self.phase(key[2])
            told += [phase] if told[-1:] != [phase] else []
        return self._publish(event, key, stored)

    def _remove(self, key: Key) -> Object:
        self._revision += 1
        gone = self.objects.pop(key)
        gone = evolve(gone, ("metadata", "resourceVersion"), str(self._revision))
        return self._publish(WatchEventType.DELETED, key, gone)

    def _publish(self, event: WatchEventType, key: Key, obj: Object) -> Object:
        served = self._served(obj)
        for plural, queue in self._watchers:
            if plural == key[0]:
                queue.put_nowait(WatchEvent(event, served))
        return served


def _resources_path(pod: Object, container: str) -> tuple[str | int, ...]:
    if is_vm(pod):
        return "spec", "virtualMachine", "resources"
    for kind in ("containers", "initContainers"):
        names = [one["name"] for one in pod["spec"].get(kind) or ()]
        if container in names:
            return "spec", kind, names.index(container), "resources"
    raise AssertionError(f"the pod has no container {container}")


def container(name: str = "app", cpu: str = "500m", memory: str = "64Mi", **more: Any) -> Object:
    size = {"cpu": cpu, "memory": memory}
    resources = {"requests": size, "limits": size}
    return {"name": name, "image": FAKE_IMAGE, "resources": resources, **more}


def quick_settings(seconds: float, **more: Any) -> AgentSettings:
    """What fails is tried again after about so long, and never after much longer."""
    return AgentSettings(
        node_name=NODE,
        resize_backoff_seconds=seconds,
        resize_backoff_maximum_seconds=2 * seconds,
        post_backoff_seconds=seconds / 2,
        post_backoff_maximum_seconds=seconds,
        crash_backoff_seconds=2 * seconds,
        **{"event_delay_seconds": 0.0, **more},
    )


class World:
    """One machine, one API server; agents come and go."""

    poll_seconds = 0.001

    def __init__(
        self,
        directory: Path,
        version: CgroupVersion = CgroupVersion.V1,
        context: Context | None = None,
    ) -> None:
        self.context = context or virtual_context()
        self.api = MemoryApi()
        self.machine = FakeMachine(self.context, version=version, memory_bytes=4 * 1024**3)
        self.mounts = FakeMounts()
        self.path = directory / "checkpoint.db"
        self.settings = quick_settings(
            0.01,
            recheck_seconds=0.2,
            object_wait_seconds=0.02,
            object_refresh_seconds=0.1,
        )
        self._first_pid = self.machine.next_pid()
        self.agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None
        self._checkpoint: Checkpoint | None = None
        self._runtime: FakeRuntime | None = None

    @property
    def clock(self) -> Clock:
        return self.context.clock

    async def start(self, points: CrashPoints = NO_CRASH_POINTS) -> None:
        self._runtime = FakeRuntime(context=self.context, machine=self.machine)
        await self._runtime.open()
        self._checkpoint = await self._open_checkpoint()
        self.agent = Agent(
            self.api,
            self._runtime,
            self._checkpoint,
            self.context,
            self.settings,
            points,
            volumes=self._volumes(),
        )
        self._task = asyncio.create_task(self.agent.run())

    async def _open_checkpoint(self) -> Checkpoint:
        return await open_checkpoint(self.path)

    def _volumes(self) -> VolumeStore:
        return FolderVolumes(self.path.parent / "volumes", self.mounts)

    async def stop(self) -> None:
        """As the process would: nothing is said to anybody."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.clean_up()

    async def crashed(self) -> None:
        """Wait for the simulated crash."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=3)
        failure = self._task.exception()
        assert isinstance(failure, BaseExceptionGroup), "it has not crashed"
        assert failure.subgroup(SimulatedCrashError)
        await self.clean_up()

    async def clean_up(self) -> None:
        assert self._checkpoint is not None
        assert self._runtime is not None
        await self._checkpoint.close()
        await self._runtime.close()
        self._task = None

    async def checkpointed(self) -> tuple[Allocation, ...]:
        """What a new agent would find; not while one runs."""
        checkpoint = await open_checkpoint(self.path)
        entries = await checkpoint.load()
        await checkpoint.close()
        return entries

    @property
    def starts(self) -> int:
        """How many containers were started, ever."""
        return self.machine.next_pid() - self._first_pid - 1

    async def until(self, holds: Callable[[], object], what: str, seconds: float = 3.0) -> None:
        deadline = self.clock.monotonic() + seconds
        while not holds():
            if self._task is not None and self._task.done():
                self._task.result()
            assert self.clock.monotonic() < deadline, f"not in time: {what}"
            await self.clock.sleep(self.poll_seconds)

    async def running(self, name: str) -> str:
        """Wait until the pod is reported running and ready; return its uid."""
        await self.until(
            lambda: lookup(self.api.pod(name), "status", "phase") == "Running",
            f"{name} runs",
        )
        return uid_of(self.api.pod(name))

    async def phase(self, name: str, phase: str) -> None:
        await self.until(lambda: self.api.phase(name) == phase, f"{name} is {phase}")

    def quota_us(self, uid: str, container: str = "app") -> int | None:
        return self.machine.group(ContainerGroup(uid, container)).limits.cpu_quota_us

    def memory_bytes(self, uid: str, container: str = "app") -> int | None:
        return self.machine.group(ContainerGroup(uid, container)).limits.memory_limit_bytes

    def pod_quota_us(self, uid: str) -> int | None:
        return self.machine.group(PodGroup(uid)).limits.cpu_quota_us

    def pid(self, uid: str, container: str = "app") -> int:
        return self.machine.pods[uid].containers[container].pid

    def attempt(self, uid: str, container: str = "app") -> int:
        return self.machine.pods[uid].containers[container].attempt


class VirtualWorld(World):
    """The same on virtual time and in memory, with the settings of production."""

    poll_seconds = 0.001

    def __init__(self) -> None:
        super().__init__(Path("nowhere"), context=virtual_context())
        self.settings = AgentSettings(node_name=NODE)
        self._disk = MemoryDisk()

    async def until(self, holds: Callable[[], object], what: str, seconds: float = 600.0) -> None:
        await super().until(holds, what, seconds)

    async def _open_checkpoint(self) -> Checkpoint:
        return Checkpoint(self._disk.open())

    def _volumes(self) -> VolumeStore:
        return NoVolumes()
