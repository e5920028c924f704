"""Inside the guest, which has six CPUs: the static CPU policy, from the pod to the process.

The whole agent with the process runtime on real control groups of version 2, and the real API
service on a memory store. What is looked at are the kernel's files and the processes themselves.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from livesize.agent.agent import Agent
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.cpus.plan import make_supply
from livesize.agent.settings import AgentSettings
from livesize.api.cpu_list import parse_cpu_list
from livesize.api.objects import Object, lookup, uid_of
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import seeded_context
from livesize.machinery.steps import CrashPoints
from livesize.runtime.oci import BUILT_IN_IMAGE
from livesize.runtime.process.runtime import ProcessRuntime
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from unit.agent.world_api import NODE, WorldApi

pytestmark = pytest.mark.containers

CGROUPS = Path("/sys/fs/cgroup")
ALL = (0, 1, 2, 3, 4, 5)


class Watched(CrashPoints):
    """At every boundary between two steps: what one has alone nobody else may run on."""

    def __init__(self, system: System) -> None:
        super().__init__()
        self._system = system
        self.boundaries = 0
        self.broken: list[str] = []

    def reach(self, name: str) -> None:
        groups = self._system.groups()
        pool = groups.get("shared")
        if pool is not None and "db" in groups:
            if not pool or set(pool).intersection(groups["db"]):
                self.broken.append(f"{name}: {groups}")
            self.boundaries += 1


class System:
    """Agents come and go; machine and API stay."""

    def __init__(self, folder: Path, root: str) -> None:
        self._folder = folder
        self._root = root
        self._context = seeded_context(1, SystemClock())
        self.api = WorldApi(self._context)
        self.points = Watched(self)
        self._stop: Callable[[], None] = lambda: None
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.api.start()
        began = asyncio.Event()
        self._running = asyncio.create_task(self._run(began))
        await self.until(began.is_set, "the agent has begun")

    async def stop(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self, began: asyncio.Event) -> None:
        runtime = ProcessRuntime(self._folder / "state", self._root, self._context)
        await runtime.open()
        checkpoint = await open_checkpoint(self._folder / "checkpoint.db")
        supply = make_supply(runtime.cpus(), ())
        settings = AgentSettings(node_name=NODE, cpus=supply, recheck_seconds=1.0)
        agent = Agent(
            self.api.node_client,
            runtime,
            checkpoint,
            self._context,
            settings,
            self.points,
            volumes=FolderVolumes(self._folder / "volumes", FakeMounts()),
        )
        began.set()
        try:
            await agent.run()
        finally:
            await checkpoint.close()
            await runtime.close()

    async def run_pod(self, name: str, cpu: str) -> None:
        size = {"cpu": cpu, "memory": "32Mi"}
        sleeper: Object = {
            "name": "app",
            "image": BUILT_IN_IMAGE,
            "command": ["sleep", "1000"],
            "resources": {"requests": size, "limits": size},
        }
        await self.api.run_pod(name, sleeper, terminationGracePeriodSeconds=0)
        await self.until(
            lambda: lookup(self.api.pod(name), "status", "phase") == "Running", f"{name} runs"
        )

    async def resize(self, name: str, cpu: str) -> str:
        await self.api.resize(name, "app", cpu=cpu)
        judged = ("Done", "Infeasible", "Deferred")
        await self.until(lambda: self.api.phase(name) in judged, f"{name} is judged and done")
        return self.api.phase(name)

    async def remove(self, name: str) -> None:
        group = self.group(name).parent
        await self.api.mark_deleted(name)
        await self.until(lambda: not self.api.has(name), f"{name} is gone")
        await self.until(lambda: not group.exists(), f"the group of {name} is gone")

    async def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 20
        while not holds():
            if self._running is not None and self._running.done():
                self._running.result()
            assert time.monotonic() < deadline, f"not in time: {what}"
            await asyncio.sleep(0.01)

    def group(self, name: str) -> Path:
        return CGROUPS / self._root / f"pod-{uid_of(self.api.pod(name))}" / "c-app"

    def pids(self, name: str) -> list[int]:
        return [int(pid) for pid in (self.group(name) / "cgroup.procs").read_text().split()]

    def groups(self) -> dict[str, tuple[int, ...]]:
        """What the kernel's files say, of each pod that has a group."""
        named = [key[2] for key in self.api.objects if key[0] == "pods"]
        return {
            name: parse_cpu_list((self.group(name) / "cpuset.cpus").read_text())
            for name in named
            if (self.group(name) / "cpuset.cpus").exists()
        }

    def runs_on(self, name: str) -> tuple[int, ...]:
        """The group and every process in it agree."""
        cpus = self.groups()[name]
        effective = (self.group(name) / "cpuset.cpus.effective").read_text()
        assert parse_cpu_list(effective) == cpus
        for pid in self.pids(name):
            assert os.sched_getaffinity(pid) == set(cpus), f"process {pid} of {name}"
        return cpus


@pytest.fixture
async def system(tmp_path: Path, root_group: str) -> AsyncIterator[System]:
    system = System(tmp_path, root_group)
    await system.start()
    yield system
    for name in [key[2] for key in system.api.objects if key[0] == "pods"]:
        await system.remove(name)
    await system.stop()


async def test_exclusive_cpus_one_three_two(system: System) -> None:
    """ARK: "If CPU Manager policy for a Node is set to 'static', then only integral values of
    CPU resize are allowed"."""
    await system.run_pod("shared", "200m")
    assert system.runs_on("shared") == ALL
    await system.run_pod("db", "1")
    assert (system.runs_on("db"), system.runs_on("shared")) == ((1,), (0, 2, 3, 4, 5))
    pids = system.pids("db")

    assert await system.resize("db", "3") == "Done"
    assert (system.runs_on("db"), system.runs_on("shared")) == ((1, 2, 3), (0, 4, 5))

    for cpu in ("2500m", "6"):
        assert await system.resize("db", cpu) == "Infeasible"
    assert system.runs_on("db") == (1, 2, 3)

    await system.stop()
    assert system.runs_on("db") == (1, 2, 3), "an agent that is away changes nothing"
    await system.start()
    assert await system.resize("db", "2") == "Done"
    assert system.runs_on("db") == (1, 2)
    await system.until(lambda: system.runs_on("shared") == (0, 3, 4, 5), "what came free is shared")
    assert system.pids("db") == pids, "nothing restarted"
    assert system.points.broken == []
    assert system.points.boundaries > 20
