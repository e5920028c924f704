"""The users: they create, resize and replace pods, and try again until the API server has agreed.

Pods come in four kinds, which the name of their container tells: ``steady`` (requests are limits),
``bursting`` (limits are twice the requests), ``restarting`` (a change of memory restarts them) and
``vm``. Users remember what they were told: ``pods`` has each pod with the size last acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup, uid_of
from livesize.api.patch import PatchType
from livesize.api.quantity import format_cpu, format_memory
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.runtime.fake import FAKE_IMAGE
from livesize.sim.scenario import HOUR_SECONDS, Scenario
from livesize.sim.trace import Trace

NAMESPACE = "default"
BURSTING_FACTOR = 2
_MIB = 1 << 20
_RETRY_SECONDS = 1.0
_KINDS = ("steady",) * 7 + ("bursting",) * 2 + ("restarting",)
_VM_SHARE = 0.04
_AWAY = (404, 409, 410, 429, 500, 503, 504)

T = TypeVar("T")


class WorkloadSize(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_bytes: int

    def amounts(self, factor: int = 1) -> Object:
        return {
            "cpu": format_cpu(self.cpu_milli * factor),
            "memory": format_memory(self.memory_bytes * factor),
        }


class UserPod(msgspec.Struct):
    """``memory_requests``: how often a user asked for other memory, answered or not."""

    name: str
    kind: str
    size: WorkloadSize
    uid: str = ""
    memory_requests: int = 0
    is_busy: bool = False


class Workload:
    def __init__(self, client: Client, context: Context, scenario: Scenario, trace: Trace) -> None:
        self.pods: dict[str, UserPod] = {}
        self.refusals: list[str] = []
        self.counts = {"created": 0, "resized": 0, "replaced": 0}
        self._client = client
        self._clock = context.clock
        self._random = context.random
        self._scenario = scenario
        self._trace = trace
        self._made = 0
        self._is_over = False

    async def run(self, seconds: float) -> None:
        """Return when every request that was begun within ``seconds`` has been answered."""
        scenario = self._scenario
        async with asyncio.TaskGroup() as tasks:
            for _ in range(scenario.pods):
                tasks.create_task(self._create_within(scenario.creation_seconds))
            end = self._clock.monotonic() + seconds
            await self._clock.sleep(min(seconds, scenario.creation_seconds))
            tasks.create_task(self._repeat(tasks, scenario.resizes_an_hour, self._resize, end))
            tasks.create_task(
                self._repeat(tasks, scenario.replacements_an_hour, self._replace, end)
            )

    async def _repeat(
        self,
        tasks: asyncio.TaskGroup,
        an_hour: float,
        work: Callable[[], Awaitable[None]],
        end: float,
    ) -> None:
        while an_hour:
            await self._clock.sleep(self._random.expovariate(an_hour / HOUR_SECONDS))
            if self._clock.monotonic() > end:
                return
            tasks.create_task(work())  # type: ignore[arg-type]  # a coroutine

    async def _create_within(self, seconds: float) -> None:
        await self._clock.sleep(self._random.uniform(0, seconds))
        await self._create()

    async def _create(self) -> None:
        self._made += 1
        name = f"pod-{self._made:05}"
        kind = "vm" if self._random.random() < _VM_SHARE else self._random.choice(_KINDS)
        pod = UserPod(name, kind, draw_size(kind, self._random), is_busy=True)
        body = pod_body(pod)

        async def create() -> Object:
            try:
                return await self._client.create(PODS, body, NAMESPACE)
            except StatusError as refusal:
                if refusal.reason != "AlreadyExists":  # else an earlier try got through
                    raise
                return await self._client.get(PODS, name, NAMESPACE)

        made = await self._until_answered(f"create {name}", create)
        if made is not None:
            pod.uid = uid_of(made)
            self.pods[name] = pod
            self.counts["created"] += 1
        pod.is_busy = False

    async def _resize(self) -> None:
        pod = self._pick()
        if pod is None:
            return
        size = draw_size(pod.kind, self._random)
        pod.memory_requests += size.memory_bytes != pod.size.memory_bytes
        patch = {"spec": sized(pod.kind, size)}

        async def resize() -> Object:
            return await self._client.patch(
                PODS,
                pod.name,
                patch,
                namespace=NAMESPACE,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
            )

        if await self._until_answered(f"resize {pod.name}", resize) is not None:
            pod.size = size
            self.counts["resized"] += 1
        pod.is_busy = False

    async def _replace(self) -> None:
        """Also those whose node turned them away, as a ReplicaSet does."""
        pod = self._pick()
        if pod is None:
            return

        async def delete() -> Object:
            try:
                return await self._client.delete(
                    PODS, pod.name, NAMESPACE, grace_period_seconds=1, uid=pod.uid
                )
            except StatusError as refusal:
                if refusal.code not in (404, 409):
                    raise
                return {}

        await self._until_answered(f"delete {pod.name}", delete)
        del self.pods[pod.name]
        self.counts["replaced"] += 1
        await self._create()

    def _pick(self) -> UserPod | None:
        free = [pod for pod in self.pods.values() if not pod.is_busy]
        if not free:
            return None
        pod = self._random.choice(free)
        pod.is_busy = True
        return pod

    async def _until_answered(self, what: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """None: refused for good, which is remembered."""
        while True:
            try:
                return await work()
            except ConnectionError:
                await self._clock.sleep(_RETRY_SECONDS)
            except StatusError as refusal:
                if refusal.code not in _AWAY:
                    self._trace.add("user", f"{what} refused {refusal.code}")
                    self.refusals.append(f"{what}: {refusal.message}")
                    return None
                await self._clock.sleep(_RETRY_SECONDS)


def draw_size(kind: str, random: Random) -> WorkloadSize:
    if kind == "vm":
        return WorkloadSize(1000 * random.randint(1, 4), 256 * _MIB * random.randint(1, 8))
    return WorkloadSize(50 * random.randint(2, 16), 32 * _MIB * random.randint(2, 16))


def sized(kind: str, size: WorkloadSize) -> Object:
    """The part of a spec that says the size."""
    factor = BURSTING_FACTOR if kind == "bursting" else 1
    resources = {"requests": size.amounts(), "limits": size.amounts(factor)}
    if kind == "vm":
        return {"virtualMachine": {"resources": resources}}
    return {"containers": [{"name": kind, "resources": resources}]}


def pod_body(pod: UserPod) -> Object:
    spec = sized(pod.kind, pod.size)
    if pod.kind == "vm":
        spec["virtualMachine"] |= {
            "kernel": {"image": "guest.vmlinuz", "initrd": "guest.initrd"},
            "cpu": {"max": "6"},
            "memory": {"max": "4Gi", "boot": "256Mi"},
        }
    else:
        container = spec["containers"][0]
        container |= {"image": FAKE_IMAGE, "command": ["serve"]}
        if pod.kind == "restarting":
            container["resizePolicy"] = [
                {"resourceName": "memory", "restartPolicy": "RestartContainer"}
            ]
    spec["terminationGracePeriodSeconds"] = 1
    return {"metadata": {"name": pod.name}, "spec": spec}


def size_in_spec(pod: Object) -> Object:
    """The requests of a pod, as they are stored."""
    vm = lookup(pod, "spec", "virtualMachine")
    first = vm or lookup(pod, "spec", "containers", default=[{}])[0]
    requests: Object = lookup(first, "resources", "requests", default={})
    return requests
