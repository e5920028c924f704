"""The real API service, a fake machine, and an agent between them, for the agent's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livesize.agent.agent import Agent
from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.allocation.memory_file import MemoryDisk
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.settings import AgentSettings
from livesize.api.kernel_units import CgroupVersion
from livesize.api.objects import Object, lookup, uid_of
from livesize.machinery.clock import Clock
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.runtime.fake import FAKE_IMAGE, FakeMachine, FakeRuntime
from livesize.runtime.interface import ContainerGroup, PodGroup
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.runtime.volumes.interface import VolumeStore
from livesize.sim.node import NoVolumes
from unit.agent.world_api import NODE, WorldApi
from virtual_time import virtual_context


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
    """One machine, one API server; agents come and go. ``disk`` has the checkpoint, ``directory``
    the volumes."""

    poll_seconds = 0.001
    has_vms = False

    def __init__(self, directory: Path, version: CgroupVersion = CgroupVersion.V1) -> None:
        self.context = virtual_context()
        self.api = WorldApi(self.context)
        self.client = self.api.node_client
        self.machine = FakeMachine(self.context, version=version, memory_bytes=4 * 1024**3)
        self.mounts = FakeMounts()
        self.directory = directory
        self.disk = MemoryDisk()
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
        await self.api.start()
        runtime = self._runtime = self._make_runtime()
        await runtime.open()
        self._checkpoint = await self._open_checkpoint()
        self.agent = Agent(
            self.client,
            runtime,
            self._checkpoint,
            self.context,
            self.settings,
            points,
            vms=runtime if self.has_vms else None,
            volumes=self._volumes(),
        )
        self._task = asyncio.create_task(self.agent.run())

    def _make_runtime(self) -> FakeRuntime:
        return FakeRuntime(context=self.context, machine=self.machine)

    async def _open_checkpoint(self) -> Checkpoint:
        return Checkpoint(self.disk.open())

    def _volumes(self) -> VolumeStore:
        return FolderVolumes(self.directory / "volumes", self.mounts)

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
        await asyncio.wait([self._task], timeout=60)
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
        checkpoint = await self._open_checkpoint()
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


class FileWorld(World):
    """The same with the checkpoint in a file of the real disk."""

    @property
    def path(self) -> Path:
        return self.directory / "checkpoint.db"

    async def _open_checkpoint(self) -> Checkpoint:
        return await open_checkpoint(self.path)


class PatientWorld(World):
    """The same with the settings of production, and without volumes."""

    poll_seconds = 0.05

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.settings = AgentSettings(node_name=NODE)

    async def until(self, holds: Callable[[], object], what: str, seconds: float = 600.0) -> None:
        await super().until(holds, what, seconds)

    def _volumes(self) -> VolumeStore:
        return NoVolumes()
