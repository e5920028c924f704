"""One simulation: puts the cluster together, lets users and faults at it, and checks it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any, TextIO, TypeAlias

import msgspec

from livesize.agent.settings import AgentSettings
from livesize.api.errors import StatusError
from livesize.api.group_changes import GroupChange
from livesize.api.resources import Amounts
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.machinery.context import Context, seeded_context
from livesize.runtime.fake import FakeMachine
from livesize.runtime.interface import Group
from livesize.sim.checks import (
    CheckFailedError,
    NoLostWrite,
    NoNeedlessRestart,
    NoOvercommit,
    until_converged,
)
from livesize.sim.control_plane import CONTROLLERS, SCHEDULER, ControlPlane, SimulatedPart
from livesize.sim.loop import DeadlockError, LivelockError, VirtualClock, run_virtual
from livesize.sim.network import QUIET, Acknowledgement, Network, NetworkFaults
from livesize.sim.node import SimNode
from livesize.sim.scenario import HOUR_SECONDS, Scenario
from livesize.sim.trace import Trace
from livesize.sim.workload import Workload
from livesize.store.memory import MemoryStore

_LOOK_SECONDS = 60.0
Strike: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_USER = Identity("user", Role.ADMIN)
_CHECKER = Identity("checker", Role.ADMIN)


class Parts(msgspec.Struct, frozen=True):
    """What main puts together, and this simulation runs."""

    schedule: SimulatedPart
    control: SimulatedPart


class SimulationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """``failed_check`` empty: all is well."""

    seed: int
    virtual_seconds: float
    trace_lines: int
    trace_digest: str
    failed_check: str = ""
    message: str = ""
    converged_seconds: float | None = None
    counts: dict[str, int]


class Simulation:
    """``await run(seconds)`` on a VirtualLoop."""

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        parts: Parts,
        trace_file: TextIO | None = None,
    ) -> None:
        self.context: Context = seeded_context(seed, VirtualClock())
        self.scenario = scenario
        self.trace = Trace(trace_file)
        self.store = MemoryStore()
        self._faults = Random(f"faults {seed}")  # noqa: S311 - to be repeated
        self.control_plane = ControlPlane(
            self.store,
            self.context,
            {
                "scheduler": (parts.schedule, SCHEDULER),
                "controllers": (parts.control, CONTROLLERS),
            },
        )
        self.network = self._network(QUIET)
        self._quiet_network = self._network(QUIET)  # nothing ever happens to the checkers
        allocatable = Amounts(scenario.node_cpu_milli, scenario.node_memory_bytes)
        self.overcommit = NoOvercommit(allocatable)
        self.restarts = NoNeedlessRestart()
        self.writes = NoLostWrite(self.store)
        self.network.acknowledged = self._acknowledged
        self.nodes = [self._node(f"node-{number:03}") for number in range(1, scenario.nodes + 1)]
        user = self.network.connect("user", _USER)
        self.workload = Workload(user, self.context, scenario, self.trace)
        self.kills = {"agents killed": 0, "control plane killed": 0}
        self._failure: CheckFailedError | None = None
        self._working: asyncio.Task[float]

    async def run(
        self, seconds: float, progress: Callable[[float], None] = lambda _: None
    ) -> float:
        """Return after how many seconds without faults all had converged; CheckFailedError."""
        async with asyncio.TaskGroup() as tasks:
            self._working = tasks.create_task(self._work(tasks, seconds, progress))
        if self._failure is not None:
            raise self._failure
        return self._working.result()

    async def _work(
        self, tasks: asyncio.TaskGroup, seconds: float, progress: Callable[[float], None]
    ) -> float:
        observers = [
            tasks.create_task(self.writes.follow()),
            tasks.create_task(self._look_now_and_then(progress)),
        ]
        try:
            await self.control_plane.start(self.network, tasks)
            for node in self.nodes:
                await node.start(self.network, tasks)
            self.network.faults = self.scenario.faults.network
            async with asyncio.TaskGroup() as striking:
                striking.create_task(self.workload.run(seconds))
                self._strike(striking, tasks, seconds)
            self.network.faults = QUIET
            self.trace.add("faults", "over")
            return await self._settle()
        except CheckFailedError as failure:
            self._note(failure)
            return 0.0
        finally:
            for observer in observers:
                observer.cancel()
            for node in self.nodes:
                if node.is_up:
                    await node.kill()
            if self.control_plane.starts:
                await self.control_plane.kill()

    async def _settle(self) -> float:
        client = self._quiet_network.connect("checker", _CHECKER)
        limit_seconds = self.scenario.settle_seconds
        took = await until_converged(
            client, self.nodes, self.workload.pods, self.context.clock, limit_seconds
        )
        self._look()
        await self.writes.look()
        return took

    # Faults

    def _strike(
        self, striking: asyncio.TaskGroup, tasks: asyncio.TaskGroup, seconds: float
    ) -> None:
        """``striking`` ends when all faults are over and every process is up again."""
        rates, end = self.scenario.faults, self.context.clock.monotonic() + seconds
        for an_hour, strike in (
            (rates.agent_kills, functools.partial(self._kill_agent, tasks)),
            (rates.control_plane_kills, functools.partial(self._kill_control_plane, tasks)),
            (rates.watch_cuts, self._cut_watches),
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

    async def _kill_agent(self, tasks: asyncio.TaskGroup) -> None:
        living = [node for node in self.nodes if node.is_up]
        if not living:
            return
        node = self._faults.choice(living)
        self.kills["agents killed"] += 1
        self.trace.add(node.name, "killed")
        await node.kill()
        await self.context.clock.sleep(self._downtime())
        self.trace.add(node.name, "started")
        await node.start(self.network, tasks)

    async def _kill_control_plane(self, tasks: asyncio.TaskGroup) -> None:
        if not self.control_plane.is_up:
            return
        self.kills["control plane killed"] += 1
        self.trace.add("control-plane", "killed")
        await self.control_plane.kill()
        await self.context.clock.sleep(self._downtime())
        self.trace.add("control-plane", "started")
        await self.control_plane.start(self.network, tasks)

    async def _cut_watches(self) -> None:
        self.network.cut_watches()

    def _downtime(self) -> float:
        """Mostly short, as a restart is."""
        longest = self.scenario.faults.longest_downtime_seconds
        return longest * self._faults.random() ** 3

    # Checks

    async def _look_now_and_then(self, progress: Callable[[float], None]) -> None:
        while True:
            await self.context.clock.sleep(_LOOK_SECONDS)
            progress(self.context.clock.monotonic())
            try:
                self._look()
            except CheckFailedError as failure:
                self._fail(failure)

    def _look(self) -> None:
        for node in self.nodes:
            self.restarts.look(node.name, node.machine, self.workload.pods)
            ended = node.failure()
            if ended is not None:
                raise CheckFailedError("no component ends", f"{node.name}: {ended!r}")
        for failure in self.control_plane.failures():
            raise CheckFailedError("no component ends", f"control plane: {failure!r}")
        if self.workload.refusals:
            raise CheckFailedError("users are served", self.workload.refusals[0])

    def _acknowledged(self, write: Acknowledgement) -> None:
        try:
            self.writes.acknowledged(write)
        except CheckFailedError as failure:
            self._fail(failure)

    def machine_changed(self, name: str, machine: FakeMachine) -> None:
        try:
            self.overcommit.look(name, machine)
        except CheckFailedError as failure:
            self._fail(failure)

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
        scenario = self.scenario
        settings = AgentSettings(
            node_name=name,
            allocatable_cpu_milli=scenario.node_cpu_milli,
            allocatable_memory_bytes=scenario.node_memory_bytes,
        )
        return SimNode(settings, WatchedMachine(name, self), self.context, self.trace)

    def counts(self) -> dict[str, int]:
        return {
            **{f"pods {key}": count for key, count in self.workload.counts.items()},
            **self.kills,
            **self.network.counts,
            "writes checked": self.writes.writes,
            "machine changes checked": self.overcommit.looks,
        }


class WatchedMachine(FakeMachine):
    def __init__(self, name: str, simulation: Simulation) -> None:
        scenario = simulation.scenario
        super().__init__(
            simulation.context,
            cpu_milli=scenario.node_cpu_milli,
            memory_bytes=scenario.node_memory_bytes,
        )
        self._name = name
        self._simulation = simulation

    def apply(self, group: Group, change: GroupChange) -> None:
        super().apply(group, change)
        self._simulation.machine_changed(self._name, self)


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
def _collected_bugs(report: Callable[[str], None]) -> Iterator[None]:
    handler, logger = _BugHandler(report), logging.getLogger("livesize")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def run_simulation(
    seed: int,
    hours: float,
    scenario: Scenario,
    parts: Parts,
    *,
    trace_file: TextIO | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> SimulationOutcome:
    """From the seed to the outcome; nothing else decides what happens."""

    async def run() -> SimulationOutcome:
        simulation = Simulation(seed, scenario, parts, trace_file)
        failed, message, took = "", "", None
        with _collected_bugs(simulation.component_failed):
            try:
                took = await simulation.run(hours * HOUR_SECONDS, progress)
            except CheckFailedError as failure:
                failed, message = failure.check, failure.what
        return SimulationOutcome(
            seed=seed,
            virtual_seconds=asyncio.get_running_loop().time(),
            trace_lines=simulation.trace.lines,
            trace_digest=simulation.trace.digest,
            failed_check=failed,
            message=message,
            converged_seconds=took,
            counts=simulation.counts(),
        )

    gc.collect()
    gc.disable()
    try:
        return run_virtual(run())
    except (DeadlockError, LivelockError) as failure:
        return SimulationOutcome(
            seed=seed,
            virtual_seconds=0.0,
            trace_lines=0,
            trace_digest="",
            failed_check=type(failure).__name__,
            message=str(failure),
            counts={},
        )
    finally:
        gc.enable()
