"""One node for random operations: an API server on a memory store, the fake machine, and agents
that come and go, all in one event loop on virtual time that runs only while a test waits for it.

The machine looks at the pod after every write (design 5.2): containers within their pod, promises
within what the node has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from livesize.agent.agent import Agent
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.api.group_changes import GroupChange
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.resources import Amounts
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity, node_identity
from livesize.apiserver.direct_client import DirectClient
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.interface import ContainerGroup, Group, PodGroup
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from memory_service import MemoryService
from unit.agent.world import NODE, quick_settings
from virtual_time import ThreadlessLoop, virtual_context

NAMESPACE = "default"
WAIT_SECONDS = 10.0
GIB = 1 << 30

T = TypeVar("T")


class WatchedMachine(FakeMachine):
    """``broken``: what was not as it must be, at any instant."""

    def __init__(self, node: LivingNode) -> None:
        super().__init__(node.context, memory_bytes=64 * GIB, cpu_milli=64_000)
        self._node = node
        self.broken: list[str] = []

    def apply(self, group: Group, change: GroupChange) -> None:
        super().apply(group, change)
        self._look_at(group.pod_uid, f"after {change} of {group}")
        self._node.look_at_promises(f"after {change} of {group}")

    def _look_at(self, uid: str, when: str) -> None:
        pod = self.groups[PodGroup(uid)].limits
        inside = [one.limits for one in self.containers_of(uid)]
        for name, outer, inner in (
            ("cpu", pod.cpu_quota_us, [one.cpu_quota_us for one in inside]),
            ("memory", pod.memory_limit_bytes, [one.memory_limit_bytes for one in inside]),
        ):
            together = sum(one for one in inner if one is not None)
            if outer is not None and together > outer:
                self.broken.append(f"{name} of containers {together} > {outer} of pod, {when}")


class LivingNode:
    def __init__(self, folder: Path, cpu_milli: int) -> None:
        self.context = virtual_context()
        self.machine = WatchedMachine(self)
        self.cpu_milli = cpu_milli
        self.bound = Amounts(cpu_milli, 4 * GIB)
        self.agent: Agent | None = None
        self._runner = asyncio.Runner(loop_factory=ThreadlessLoop)
        self._checkpoint_path = folder / "checkpoint.db"
        self._server = MemoryService(self.context)
        self.user = DirectClient(self._server.service, Identity("user", Role.ADMIN))
        self.wait(self._begin())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The only time in which anything happens here."""
        return self._runner.run(work)

    def end(self) -> None:
        self.wait(self._end())
        self._runner.close()

    # What users do

    async def create(self, name: str, containers: list[Object]) -> Object:
        spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": containers}
        return await self.user.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)

    async def resize(self, name: str, resources: dict[str, Object]) -> Object:
        containers = [{"name": key, "resources": value} for key, value in resources.items()]
        patch = {"spec": {"containers": containers}}
        return await self.user.patch(
            PODS,
            name,
            patch,
            namespace=NAMESPACE,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )

    async def delete(self, name: str) -> None:
        await self.user.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    async def pods(self) -> dict[str, Object]:
        listed = await self.user.list(PODS, Selection(NAMESPACE))
        return {pod["metadata"]["name"]: pod for pod in listed.items}

    # What happens to containers, and to the agent

    async def end_container(self, uid: str, name: str) -> None:
        self.machine.exit(uid, name, exit_code=1)

    async def restart_agent(self, cpu_milli: int) -> None:
        """As if it had been killed. It may find that the node has more, or less, than before."""
        await self._stop_agent()
        assert self.agent is not None
        used = self.agent._admission.ledger.used
        self.cpu_milli = cpu_milli
        self.bound = Amounts(max(cpu_milli, used.cpu_milli or 0), self.bound.memory_bytes)
        await self._start_agent()

    def look_at_promises(self, when: str) -> None:
        """What was promised fits the node; where the node got smaller, nothing more is promised
        until it does."""
        agent = self.agent
        if agent is None:
            return
        used = agent._admission.ledger.used
        for name, amount, bound in (
            ("cpu", used.cpu_milli or 0, self.bound.cpu_milli or 0),
            ("memory", used.memory_bytes or 0, self.bound.memory_bytes or 0),
        ):
            if amount > bound:
                self.machine.broken.append(f"{name}: {amount} promised, {bound} there, {when}")
        lower = max(self.cpu_milli, min(self.bound.cpu_milli or 0, used.cpu_milli or 0))
        self.bound = Amounts(lower, self.bound.memory_bytes)

    def attempts(self, uid: str) -> dict[str, int]:
        """How often each container was started again."""
        return {name: view.attempt for name, view in self.machine.pods[uid].containers.items()}

    def held_bytes(self, uid: str, container: str) -> int:
        group = self.machine.groups.get(ContainerGroup(uid, container))
        return 0 if group is None else group.memory_usage_bytes

    # Within

    async def _begin(self) -> None:
        await self._server.start()
        await self._start_agent()

    async def _end(self) -> None:
        await self._stop_agent()
        await self._server.stop()

    async def _start_agent(self) -> None:
        self._runtime = FakeRuntime(context=self.context, machine=self.machine)
        await self._runtime.open()
        self._checkpoint = await open_checkpoint(self._checkpoint_path)
        settings = quick_settings(
            0.004,
            allocatable_cpu_milli=self.cpu_milli,
            allocatable_memory_bytes=4 * GIB,
            recheck_seconds=0.5,
            crash_backoff_maximum_seconds=0.01,
        )
        node = DirectClient(self._server.service, node_identity(NODE))
        self.agent = Agent(
            node,
            self._runtime,
            self._checkpoint,
            self.context,
            settings,
            volumes=FolderVolumes(self._checkpoint_path.parent / "volumes", FakeMounts()),
        )
        self._running = asyncio.create_task(self.agent.run())
        while not hasattr(self.agent, "_admission"):  # it reads what the last one has promised
            await asyncio.sleep(0)

    async def _stop_agent(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._checkpoint.close()
        await self._runtime.close()
