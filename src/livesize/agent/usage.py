"""Measures what this machine and its containers use, with every heartbeat (ADR 0038).

``MeasuredLease`` is the node's lease that carries it: one write says both that the node lives and
what it uses. What cannot be read is left out; a heartbeat never fails for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.objects import Object, evolve, lookup
from livesize.api.times import format_time
from livesize.api.usage import USAGE_ANNOTATION, Counters, NodeUsage, Usage, format_usage, rate
from livesize.machinery.clock import Clock
from livesize.machinery.lease import LeaseRecord
from livesize.machinery.tasks import TurnTimer, next_turn
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    Runtime,
    RuntimeCallError,
)

log = get_logger("agent.usage")


class UsageMeter:
    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._machine = self._look_at_machine()
        self._seen: dict[ContainerGroup, Counters] = {}

    async def measure(self) -> NodeUsage:
        """Lets others go first now and then: reading a container takes files."""
        turn = TurnTimer(self._clock)
        seen: dict[ContainerGroup, Counters] = {}
        pods: dict[str, dict[str, Usage]] = {}
        for view in self._running():
            group = ContainerGroup(view.pod_uid, view.name)
            counters = self._look_at(group)
            if counters is not None:
                seen[group] = counters
                usage = rate(self._seen.get(group), counters, view.started_at)
                if usage is not None:
                    pods.setdefault(view.pod_uid, {})[view.name] = usage
            if turn.is_over():
                await next_turn()
        self._seen = seen
        return NodeUsage(format_time(self._clock.now()), self._whole(), pods)

    def _whole(self) -> Usage | None:
        now = self._look_at_machine()
        if now is None:
            return None
        usage = rate(self._machine, now, now.time)
        if usage is not None or self._machine is None:
            self._machine = now
        return usage

    def _running(self) -> Iterator[ContainerView]:
        for pod in self._runtime.list_pods():
            for view in pod.containers:
                if view.phase is ContainerPhase.RUNNING:
                    yield view

    def _look_at(self, group: ContainerGroup) -> Counters | None:
        try:
            reading = self._runtime.read(group)
        except RuntimeCallError:
            return None  # it ended just now
        now = self._clock.now()
        return Counters(now, reading.cpu_usage_ns, reading.memory_working_set_bytes)

    def _look_at_machine(self) -> Counters | None:
        try:
            usage = self._runtime.machine_usage()
        except RuntimeCallError as failure:
            log.warning("machine not measured", reason=str(failure))
            return None
        return Counters(self._clock.now(), usage.cpu_usage_ns, usage.memory_working_set_bytes)


class MeasuredLease:
    """A LeaseRecord that says with each write what is used."""

    def __init__(self, record: LeaseRecord, meter: UsageMeter) -> None:
        self._record = record
        self._meter = meter

    async def load(self) -> Object | None:
        return await self._record.load()

    async def create(self, lease: Object) -> Object:
        return await self._record.create(await self._measured(lease))

    async def update(self, lease: Object) -> Object:
        return await self._record.update(await self._measured(lease))

    async def _measured(self, lease: Object) -> Object:
        text = format_usage(await self._meter.measure())
        annotations = lookup(lease, "metadata", "annotations", default={})
        return evolve(lease, ("metadata", "annotations"), {**annotations, USAGE_ANNOTATION: text})
