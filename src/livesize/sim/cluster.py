"""The cluster of a simulation: its control plane, network and nodes, and the faults that strike it.

What users do on it, and what is checked, is said by those who build on it: a simulation of pods
(simulation.py), and sequences of what is done to workloads (sequence.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from random import Random
from typing import Any, TextIO, TypeAlias

import msgspec

from livesize.agent.settings import AgentSettings
from livesize.api.errors import StatusError
from livesize.api.group_changes import GroupChange
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.machinery.context import Context, seeded_context
from livesize.runtime.fake import FakeMachine
from livesize.runtime.interface import Group
from livesize.sim.checks import CheckFailedError
from livesize.sim.control_plane import CONTROLLERS, SCHEDULER, ControlPlane, SimulatedPart
from livesize.sim.loop import VirtualClock
from livesize.sim.network import QUIET, Network, NetworkFaults, SimClient
from livesize.sim.node import SimNode
from livesize.sim.scenario import HOUR_SECONDS, FaultRates
from livesize.sim.trace import Trace
from livesize.store.memory import MemoryStore

CONTROLLERS_PART = "controllers"
_MOST_WRITES = 12
Strike: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_USER = Identity("user", Role.ADMIN)
_CHECKER = Identity("checker", Role.ADMIN)


class Parts(msgspec.Struct, frozen=True):
    """What main puts together, and a simulation runs."""

    schedule: SimulatedPart
    control: SimulatedPart


class ClusterShape(msgspec.Struct, frozen=True):
    nodes: int
    node_cpu_milli: int
    node_memory_bytes: int


class SimCluster:
    """On a VirtualLoop. The first check that fails ends ``self._working``."""

    def __init__(
        self, seed: int, shape: ClusterShape, parts: Parts, trace_file: TextIO | None = None
    ) -> None:
        self.context: Context = seeded_context(seed, VirtualClock())
        self.shape = shape
        self.trace = Trace(trace_file)
        self.store = MemoryStore()
        self._faults = Random(f"faults {seed}")  # noqa: S311 - to be repeated
        self.control_plane = ControlPlane(
            self.store,
            self.context,
            {
                "scheduler": (parts.schedule, SCHEDULER),
                CONTROLLERS_PART: (parts.control, CONTROLLERS),
            },
        )
        self.network = self._network(QUIET)
        self._quiet_network = self._network(QUIET)  # nothing ever happens to the checkers
        self.nodes = [self._node(f"node-{number:03}") for number in range(1, shape.nodes + 1)]
        self.kills = {"agents killed": 0, "control plane killed": 0, "controllers killed": 0}
        self._failure: CheckFailedError | None = None
        self._working: asyncio.Task[Any]

    def connect_user(self) -> SimClient:
        return self.network.connect("user", _USER)

    def connect_checker(self) -> SimClient:
        return self._quiet_network.connect("checker", _CHECKER)

    @contextlib.asynccontextmanager
    async def running(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Started, until the end of the block; a check that fails in it is noted."""
        try:
            await self.control_plane.start(self.network, tasks)
            for node in self.nodes:
                await node.start(self.network, tasks)
            yield
        except CheckFailedError as failure:
            self._note(failure)
        finally:
            for node in self.nodes:
                if node.is_up:
                    await node.kill()
            if self.control_plane.starts:
                await self.control_plane.kill()

    # Faults

    def strike(
        self,
        striking: asyncio.TaskGroup,
        tasks: asyncio.TaskGroup,
        rates: FaultRates,
        seconds: float,
    ) -> None:
        """``striking`` ends when all faults are over and every process is up again."""
        end = self.context.clock.monotonic() + seconds
        for an_hour, strike in (
            (rates.agent_kills, functools.partial(self._kill_agent, tasks, rates)),
            (rates.control_plane_kills, functools.partial(self._kill_control_plane, tasks, rates)),
            (rates.watch_cuts, self._cut_watches),
            (rates.controller_kills, self._kill_controllers),
        ):
            if an_hour:
                striking.create_task(self._repeat(striking, an_hour, strike, end))

    async def _repeat(
        self, striking: asyncio.TaskGroup, an_hour: float, strike: Strike, end: float
    ) -> None:
        clock = self.context.clock
        while True:
            pause = self._faults.expovariate(an_hour / HOUR_SECONDS)
            if clock.monotonic() + pause > end:
                return
            await clock.sleep(pause)
            striking.create_task(strike())

    async def _kill_agent(self, tasks: asyncio.TaskGroup, rates: FaultRates) -> None:
        living = [node for node in self.nodes if node.is_up]
        if living:
            await self.take_down(self._faults.choice(living), tasks, self._downtime(rates))

    async def take_down(
        self, node: SimNode, tasks: asyncio.TaskGroup, seconds: float | None
    ) -> None:
        """Its agent is killed, and is away for so long; None: for good."""
        self.kills["agents killed"] += 1
        self.trace.add(node.name, "killed")
        await node.kill()
        if seconds is not None:
            await self.context.clock.sleep(seconds)
            self.trace.add(node.name, "started")
            await node.start(self.network, tasks)

    async def _kill_control_plane(self, tasks: asyncio.TaskGroup, rates: FaultRates) -> None:
        if not self.control_plane.is_up:
            return
        self.kills["control plane killed"] += 1
        self.trace.add("control-plane", "killed")
        await self.control_plane.kill()
        await self.context.clock.sleep(self._downtime(rates))
        self.trace.add("control-plane", "started")
        await self.control_plane.start(self.network, tasks)

    async def _kill_controllers(self) -> None:
        """At one of the next writes, before it or after it was done."""
        writes, after = self._faults.randint(1, _MOST_WRITES), self._faults.random() < 0.5
        client = self.control_plane.client(CONTROLLERS_PART)
        if client is not None:
            self.kills["controllers killed"] += 1
            self.trace.add(CONTROLLERS_PART, f"dies {'after' if after else 'before'} {writes}")
            client.die_at(writes, after=after)

    async def _cut_watches(self) -> None:
        self.network.cut_watches()

    def _downtime(self, rates: FaultRates) -> float:
        """Mostly short, as a restart is."""
        longest = rates.longest_downtime_seconds
        return longest * self._faults.random() ** 3

    # Checks

    def look_at_processes(self) -> None:
        for node in self.nodes:
            ended = node.failure()
            if ended is not None:
                raise CheckFailedError("no component ends", f"{node.name}: {ended!r}")
        for failure in self.control_plane.failures():
            raise CheckFailedError("no component ends", f"control plane: {failure!r}")

    def machine_changed(self, name: str, machine: FakeMachine) -> None:
        """Called after each write of a machine's groups."""

    def component_failed(self, message: str) -> None:
        """A component met a bug of its own and went on."""
        self._fail(CheckFailedError("no bug was met", message))

    def _fail(self, failure: CheckFailedError) -> None:
        self._note(failure)
        self._working.cancel()

    def _note(self, failure: CheckFailedError) -> None:
        """The first one counts; what it leads to is no news."""
        if self._failure is None:
            self._failure = failure
            self.trace.add("check", str(failure))

    # Making

    def _network(self, faults: NetworkFaults) -> Network:
        clock = self.context.clock
        return Network(self.control_plane, clock, self.context.random, self.trace, faults)

    def _node(self, name: str) -> SimNode:
        settings = AgentSettings(
            node_name=name,
            allocatable_cpu_milli=self.shape.node_cpu_milli,
            allocatable_memory_bytes=self.shape.node_memory_bytes,
        )
        return SimNode(settings, WatchedMachine(name, self), self.context, self.trace)


class WatchedMachine(FakeMachine):
    def __init__(self, name: str, cluster: SimCluster) -> None:
        super().__init__(
            cluster.context,
            cpu_milli=cluster.shape.node_cpu_milli,
            memory_bytes=cluster.shape.node_memory_bytes,
        )
        self._name = name
        self._cluster = cluster

    def apply(self, group: Group, change: GroupChange) -> None:
        super().apply(group, change)
        self._cluster.machine_changed(self._name, self)


class _BugHandler(logging.Handler):
    """Components log a bug with its traceback and go on; here it ends the simulation."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ConnectionError | StatusError):
            self._report(f"{record.name}: {record.getMessage()}: {error!r}")


@contextlib.contextmanager
def collected_bugs(report: Callable[[str], None]) -> Iterator[None]:
    handler, logger = _BugHandler(report), logging.getLogger("livesize")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
