"""A sequence: some dozens of things that users do to workloads, under faults, in a few minutes of
virtual time; then quiet, in which everything has to come to its end.

Everything is drawn from the seed: nodes, workloads, what their users do and when, what strikes. At
the end users ask for what is possible everywhere, and then there is no excuse for a pod that has
not got it, nor for a workload that is held.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TextIO

import msgspec

from livesize.api.resources import Amounts
from livesize.sim.checks import CheckFailedError
from livesize.sim.cluster import ClusterShape, Parts, SimCluster
from livesize.sim.intents import IntentLog
from livesize.sim.manifests import ManifestSizes, OwnStrategy, draw_manifest
from livesize.sim.network import QUIET, NetworkFaults
from livesize.sim.node import SimNode
from livesize.sim.scenario import FaultRates
from livesize.sim.simulation import SimulationOutcome, outcome_of, run_to_outcome
from livesize.sim.workload_checks import WorkloadChecks, is_held
from livesize.sim.workload_settling import Quiet
from livesize.sim.workload_users import Way, WorkloadUser

NODE_CPU_MILLI, NODE_MEMORY_BYTES = 4000, 8 << 30
MOST_NODES, MOST_WORKLOADS = 3, 3
OPERATIONS = (8, 16)
"""Of each user: at least, at most."""
SETTLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_STRIKE_SECONDS = 120.0
_PATIENCE_SECONDS = 60.0
_POSSIBLE = ManifestSizes(100, 64)
_LOST_SHARE, _AWAY_SHARE = 0.12, 0.2

RATES = FaultRates(
    agent_kills=60.0,
    control_plane_kills=25.0,
    watch_cuts=120.0,
    controller_kills=150.0,
    longest_downtime_seconds=20.0,
    network=NetworkFaults(
        lost_requests=0.01, lost_answers=0.02, stall_probability=0.003, stall_seconds=2.0
    ),
)


class WorkloadSequence(SimCluster):
    """``await run()`` on a VirtualLoop."""

    def __init__(self, seed: int, parts: Parts, trace_file: TextIO | None = None) -> None:
        self._random = random = Random(f"sequence {seed}")  # noqa: S311 - to be repeated
        shape = ClusterShape(random.randint(1, MOST_NODES), NODE_CPU_MILLI, NODE_MEMORY_BYTES)
        super().__init__(seed, shape, parts, trace_file)
        self._lost: set[str] = set()
        self._there = {node.name: node for node in self.nodes}
        clock = self.context.clock
        self.checks = WorkloadChecks(self.store, clock, self._there, NODE_CPU_MILLI)
        self.users = [
            self._user(f"w{number}") for number in range(1, random.randint(1, MOST_WORKLOADS) + 1)
        ]
        self.has_faults = random.random() < 0.8

    async def run(self) -> float:
        """Return after how many quiet seconds all had settled; CheckFailedError."""
        async with asyncio.TaskGroup() as tasks:
            self._working = tasks.create_task(self._work(tasks))
        if self._failure is not None:
            raise self._failure
        return float(self._working.result())

    async def _work(self, tasks: asyncio.TaskGroup) -> float:
        observers = [tasks.create_task(self._follow()), tasks.create_task(self._look_often())]
        took = 0.0
        try:
            async with self.running(tasks):
                async with asyncio.TaskGroup() as striking:
                    for user in self.users:
                        operations = self._random.randint(*OPERATIONS)
                        striking.create_task(user.run(operations))
                    if self.has_faults:
                        self.network.faults = RATES.network
                        self.strike(striking, tasks, RATES, _STRIKE_SECONDS)
                        self._take_nodes(striking, tasks)
                self.network.faults = QUIET
                self.trace.add("faults", "over")
                took = await self._settle()
                await self._ask_for_what_is_possible()
                took += await self._settle(strict=True)
        finally:
            for observer in observers:
                observer.cancel()
        return took

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for user in self.users:
            for what, count in user.counts.items():
                counts[what] = counts.get(what, 0) + count
        reasons = {f"recreated: {why}": count for why, count in self.checks.reasons.items()}
        more = {**self.kills, **self.network.counts, **self.checks.counts, **reasons}
        more["nodes lost"] = len(self._lost)
        return {**counts, **more, "operations": sum(counts.values())}

    # Nodes that are away for long, or for good

    def _take_nodes(self, striking: asyncio.TaskGroup, tasks: asyncio.TaskGroup) -> None:
        chance = self._random.random()
        if len(self.nodes) > 1 and chance < _LOST_SHARE:
            striking.create_task(self._lose(self._random.choice(self.nodes), tasks))
        elif chance < _LOST_SHARE + _AWAY_SHARE:
            striking.create_task(self._take_away(self._random.choice(self.nodes), tasks))

    async def _take_away(self, node: SimNode, tasks: asyncio.TaskGroup) -> None:
        await self.context.clock.sleep(self._random.uniform(10, 90))
        if node.is_up:
            await self.take_down(node, tasks, self._random.uniform(20, 90))

    async def _lose(self, node: SimNode, tasks: asyncio.TaskGroup) -> None:
        """Somebody takes it out of the cluster, with its pods."""
        clock = self.context.clock
        await clock.sleep(self._random.uniform(10, 90))
        while not node.is_up:
            await clock.sleep(1)
        self.trace.add(node.name, "lost")
        await self.take_down(node, tasks, None)
        self.nodes.remove(node)
        await clock.sleep(self._random.uniform(1, 30))
        del self._there[node.name]
        self._lost.add(node.name)
        await self.users[0].remove_node(node.name)
        await self._sweep()

    async def _sweep(self) -> None:
        """Also what was bound to it at its end."""
        for pod in list(self.checks.pods.values()):
            if pod.node in self._lost:
                await self.users[0].delete_pod(pod.pod, grace_seconds=0)

    # The end

    async def _settle(self, *, strict: bool = False) -> float:
        clock, allocatable = self.context.clock, Amounts(NODE_CPU_MILLI, NODE_MEMORY_BYTES)
        quiet = Quiet(self.checks, self._there, allocatable, strict)
        began = clock.monotonic()
        while found := quiet.differences():
            waited = clock.monotonic() - began
            if waited > SETTLE_SECONDS:
                check = "settled when all is possible" if strict else "settled"
                raise CheckFailedError(check, f"{len(found)} differences: {'; '.join(found[:3])}")
            await clock.sleep(_LOOK_SECONDS)
            await self._sweep()
            if strict and waited > _PATIENCE_SECONDS:
                await self._delete_what_stops_rollouts()
        self._look()
        return clock.monotonic() - began

    async def _ask_for_what_is_possible(self) -> None:
        for user in self.users:
            manifest = user.log.acknowledged
            possible = msgspec.structs.replace(
                manifest,
                sizes=_POSSIBLE,
                strategy=OwnStrategy(),
                on_deadline="Restart",  # where the QoS class would change
            )
            await user.remove_budget()
            await user.write(possible, Way.PART, "what is possible")

    async def _delete_what_stops_rollouts(self) -> None:
        """As people do with a set whose pod never becomes ready, or where all room is taken by old
        pods. Of what is held, pods that have a node are left to the resize."""
        for workload in self.checks.workloads.values():
            user = next(one for one in self.users if one.log is workload.log)
            for pod in self.checks.pods_of(workload):
                is_old = not pod.facts.is_of(workload.log.acknowledged)
                if not pod.node or (is_old and not is_held(workload.stored)):
                    await user.delete_pod(pod.pod)

    # Checks

    async def _follow(self) -> None:
        try:
            await self.checks.follow()
        except CheckFailedError as failure:
            self._fail(failure)

    async def _look_often(self) -> None:
        while True:
            await self.context.clock.sleep(_LOOK_SECONDS)
            try:
                self._look()
            except CheckFailedError as failure:
                self._fail(failure)

    def _look(self) -> None:
        self.look_at_processes()
        self.checks.look_at_machines()
        for user in self.users:
            if user.refusals:
                raise CheckFailedError("users are served", user.refusals[0])

    def _user(self, name: str) -> WorkloadUser:
        clock, random = self.context.clock, Random(self._random.random())  # noqa: S311
        log = IntentLog(draw_manifest(random, name), 0.0)
        return WorkloadUser(self.connect_user(), log, self.checks, clock, random, self.trace)


def run_sequence(seed: int, parts: Parts, *, trace_file: TextIO | None = None) -> SimulationOutcome:
    """From the seed to the outcome; nothing else decides what happens."""

    async def run() -> SimulationOutcome:
        sequence = WorkloadSequence(seed, parts, trace_file)
        return await outcome_of(seed, sequence, sequence.run(), sequence.counts)

    return run_to_outcome(seed, run())
