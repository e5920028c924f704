"""One simulation: puts the cluster together, lets users and faults at it, and checks it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TextIO

import msgspec

from livesize.api.resources import Amounts
from livesize.runtime.fake import FakeMachine
from livesize.sim.checks import (
    CheckFailedError,
    NoLostWrite,
    NoNeedlessRestart,
    NoOvercommit,
    until_converged,
)
from livesize.sim.cluster import ClusterShape, Parts, SimCluster, collected_bugs
from livesize.sim.loop import DeadlockError, LivelockError, run_virtual
from livesize.sim.network import QUIET, Acknowledgement
from livesize.sim.scenario import HOUR_SECONDS, Scenario
from livesize.sim.workload import Workload

_LOOK_SECONDS = 60.0


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


class Simulation(SimCluster):
    """``await run(seconds)`` on a VirtualLoop."""

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        parts: Parts,
        trace_file: TextIO | None = None,
    ) -> None:
        cpu_milli, memory_bytes = scenario.node_cpu_milli, scenario.node_memory_bytes
        super().__init__(
            seed, ClusterShape(scenario.nodes, cpu_milli, memory_bytes), parts, trace_file
        )
        self.scenario = scenario
        self.overcommit = NoOvercommit(Amounts(cpu_milli, memory_bytes))
        self.restarts = NoNeedlessRestart()
        self.writes = NoLostWrite(self.store)
        self.network.acknowledged = self._acknowledged
        self.workload = Workload(self.connect_user(), self.context, scenario, self.trace)

    async def run(
        self, seconds: float, progress: Callable[[float], None] = lambda _: None
    ) -> float:
        """Return after how many seconds without faults all had converged; CheckFailedError."""
        async with asyncio.TaskGroup() as tasks:
            self._working = tasks.create_task(self._work(tasks, seconds, progress))
        if self._failure is not None:
            raise self._failure
        return float(self._working.result())

    async def _work(
        self, tasks: asyncio.TaskGroup, seconds: float, progress: Callable[[float], None]
    ) -> float:
        observers = [
            tasks.create_task(self.writes.follow()),
            tasks.create_task(self._look_now_and_then(progress)),
        ]
        took = 0.0
        try:
            async with self.running(tasks):
                self.network.faults = self.scenario.faults.network
                async with asyncio.TaskGroup() as striking:
                    striking.create_task(self.workload.run(seconds))
                    self.strike(striking, tasks, self.scenario.faults, seconds)
                self.network.faults = QUIET
                self.trace.add("faults", "over")
                took = await self._settle()
        finally:
            for observer in observers:
                observer.cancel()
        return took

    async def _settle(self) -> float:
        client = self.connect_checker()
        limit_seconds = self.scenario.settle_seconds
        took = await until_converged(
            client, self.nodes, self.workload.pods, self.context.clock, limit_seconds
        )
        self._look()
        await self.writes.look()
        return took

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
        self.look_at_processes()
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

    def counts(self) -> dict[str, int]:
        return {
            **{f"pods {key}": count for key, count in self.workload.counts.items()},
            **self.kills,
            **self.network.counts,
            "writes checked": self.writes.writes,
            "machine changes checked": self.overcommit.looks,
        }


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
        work = simulation.run(hours * HOUR_SECONDS, progress)
        return await outcome_of(seed, simulation, work, simulation.counts)

    return run_to_outcome(seed, run())


async def outcome_of(
    seed: int,
    cluster: SimCluster,
    work: Coroutine[Any, Any, float],
    counts: Callable[[], dict[str, int]],
) -> SimulationOutcome:
    failed, message, took = "", "", None
    with collected_bugs(cluster.component_failed):
        try:
            took = await work
        except CheckFailedError as failure:
            failed, message = failure.check, failure.what
    return SimulationOutcome(
        seed=seed,
        virtual_seconds=asyncio.get_running_loop().time(),
        trace_lines=cluster.trace.lines,
        trace_digest=cluster.trace.digest,
        failed_check=failed,
        message=message,
        converged_seconds=took,
        counts=counts(),
    )


def run_to_outcome(seed: int, work: Coroutine[Any, Any, SimulationOutcome]) -> SimulationOutcome:
    """On a loop of its own. The garbage collector runs when virtual time says so."""
    gc.collect()
    gc.disable()
    try:
        return run_virtual(work)
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
