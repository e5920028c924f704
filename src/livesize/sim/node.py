"""A node: a machine in memory that stays, and agents that are killed and started again.

What a kill -9 leaves behind is left here: the machine as it was, and what the checkpoint had
written. What the dead agent still does while its tasks are cancelled reaches neither the machine
nor the API server.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from livesize.agent.agent import Agent
from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.memory_file import MemoryDisk
from livesize.agent.settings import AgentSettings
from livesize.api.group_changes import GroupChange
from livesize.api.roles import Role
from livesize.api.vm_changes import VmChange
from livesize.apiserver.auth.identities import NODE_USER, Identity
from livesize.machinery.context import Context
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerView,
    Group,
    PodConfig,
    RuntimeCallError,
)
from livesize.runtime.volumes.interface import MemorySize, PodVolume, VolumeError
from livesize.sim.network import Network, SimClient
from livesize.sim.processes import Process
from livesize.sim.trace import Trace


class SimNode:
    def __init__(
        self, settings: AgentSettings, machine: FakeMachine, context: Context, trace: Trace
    ) -> None:
        self.name = settings.node_name
        self.settings = settings
        self.machine = machine
        self.disk = MemoryDisk()
        self.starts = 0
        self._context = context
        self._trace = trace
        self._client: SimClient | None = None
        self._runtime: MortalRuntime | None = None
        self._process: Process | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None

    async def start(self, network: Network, tasks: asyncio.TaskGroup) -> None:
        self.starts += 1
        identity = Identity(f"{NODE_USER}{self.name}", Role.NODE, self.name)
        self._client = network.connect(self.name, identity)
        self._runtime = MortalRuntime(self.name, self._context, self.machine, self._trace)
        await self._runtime.open()
        agent = Agent(
            self._client,
            self._runtime,
            Checkpoint(self.disk.open()),
            self._context,
            self.settings,
            vms=self._runtime,
            volumes=NoVolumes(),
        )
        self._process = Process(tasks, agent.run())

    async def kill(self) -> None:
        assert self._process is not None
        assert self._client is not None
        assert self._runtime is not None
        process, self._process = self._process, None
        self._client.kill()
        self._runtime.kill()
        self.disk.kill()
        await process.kill()
        await self._runtime.close()

    def failure(self) -> BaseException | None:
        """Why the agent ended though nothing killed it."""
        return None if self._process is None else self._process.failure


class MortalRuntime(FakeRuntime):
    """A driver that traces its changes, and makes none once its process is dead."""

    def __init__(self, name: str, context: Context, machine: FakeMachine, trace: Trace) -> None:
        super().__init__(context=context, machine=machine)
        self._name = name
        self._trace = trace
        self._is_dead = False

    def kill(self) -> None:
        self._is_dead = True

    async def create_pod(self, config: PodConfig) -> None:
        self._live(f"create pod {config.name}")
        await super().create_pod(config)

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        self._live(f"start {config.pod_uid}/{config.name}")
        return await super().start_container(config)

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        self._live(f"stop {pod_uid}/{container}")
        await super().stop_container(pod_uid, container, grace_seconds)

    async def remove_pod(self, uid: str) -> None:
        self._live(f"remove pod {uid}")
        await super().remove_pod(uid)

    async def write(self, group: Group, change: GroupChange) -> None:
        self._live(f"write {group.pod_uid} {change}")
        await super().write(group, change)

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        self._live(f"change vm {pod_uid} {change}")
        await super().change_vm(pod_uid, change)

    def _live(self, what: str) -> None:
        if self._is_dead:
            raise RuntimeCallError("this process is dead")
        self._trace.add(f"{self._name}/machine", what)


class NoVolumes:
    """Satisfies livesize.runtime.volumes.interface.VolumeStore for pods that have none."""

    claims_root = "/"

    def pods(self) -> tuple[str, ...]:
        return ()

    async def prepare(self, pod_uid: str, volume: PodVolume) -> str:
        self._refuse(volume.name)

    async def prepare_part(self, pod_uid: str, part: str, source: str, inside: str) -> str:
        self._refuse(part)

    async def prepare_file(self, pod_uid: str, name: str, content: bytes, mode: int) -> str:
        return f"/{pod_uid}/{name}"

    def read_file(self, pod_uid: str, name: str, most_bytes: int) -> bytes:
        return b""

    async def remove_file(self, pod_uid: str, name: str) -> None:
        pass

    async def used_bytes(self, pod_uid: str, name: str) -> int:
        self._refuse(name)

    def memory(self, pod_uid: str, name: str) -> MemorySize | None:
        return None

    async def resize(self, pod_uid: str, name: str, size_bytes: int) -> None:
        self._refuse(name)

    async def clear(self, pod_uid: str, name: str) -> None:
        self._refuse(name)

    async def let_go(self, pod_uid: str) -> None:
        pass

    async def remove(self, pod_uid: str) -> None:
        pass

    async def remove_claim_folder(self, folder: str) -> None:
        pass

    def _refuse(self, name: str) -> NoReturn:
        raise VolumeError(f"volume {name}: simulated machines have no volumes")
