"""Follows the probes of one pod's containers, and tells its worker when a verdict changes.

One task for each running start of a container that has probes. It waits by the clock alone, and
ends with that start; the next one begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from livesize.agent.dependencies import AgentDependencies
from livesize.agent.probes.checks import Prober
from livesize.agent.probes.plan import (
    WELL,
    ContainerHealth,
    ProbeConfig,
    ProbeKind,
    ProbeState,
    count,
    parse_probe,
)
from livesize.api.objects import Object
from livesize.api.reasons import EventReason
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import ContainerPhase, ContainerView

log = get_logger("agent.probes")


class PodProbes:
    """``tell``: records an event about the pod; ``wake``: something has changed."""

    def __init__(
        self,
        dependencies: AgentDependencies,
        record_event: Callable[[EventReason, str], None],
        wake: Callable[[], None],
    ) -> None:
        self._dependencies = dependencies
        self._record_event = record_event
        self._wake = wake
        self._tasks: asyncio.TaskGroup | None = None
        self._followed: dict[str, tuple[_Follower, asyncio.Task[None]]] = {}  # by container id

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def end(self) -> None:
        for _, task in self._followed.values():
            task.cancel()
        self._followed.clear()

    @property
    def any(self) -> bool:
        """Whether any container is asked."""
        return bool(self._followed)

    def health(self, view: ContainerView | None) -> ContainerHealth:
        """Of a start that has no probes: well."""
        followed = None if view is None else self._followed.get(view.id)
        return WELL if followed is None else followed[0].health

    def follow(self, container: Object, view: ContainerView | None, reported: Object) -> None:
        """Probe this start from now on, if it runs and is not probed yet. ``reported``: what the
        status last said of the container: a new agent goes on from there."""
        if view is None or self._tasks is None or view.id in self._followed:
            return
        probes = {kind: probe for kind in ProbeKind if (probe := parse_probe(container, kind))}
        if view.phase is not ContainerPhase.RUNNING or not probes:
            return
        address = self._address(view.pod_uid)
        prober = Prober(
            self._dependencies.runtime, self._dependencies.clock, view.pod_uid, view.name, address
        )
        same = str(reported.get("containerID", "")).endswith(view.id)
        health = ContainerHealth(
            started=ProbeKind.STARTUP not in probes or (same and bool(reported.get("started"))),
            ready=not probes.keys() & {ProbeKind.STARTUP, ProbeKind.READINESS}
            or (same and bool(reported.get("ready"))),
        )
        follower = _Follower(
            prober, view.started_at, probes, health, self._record_event, self._wake
        )
        self._followed[view.id] = follower, self._tasks.create_task(follower.run())

    def forget_others(self, ids: set[str]) -> None:
        """Starts that do not run any more are asked nothing."""
        for gone in self._followed.keys() - ids:
            _, task = self._followed.pop(gone)
            task.cancel()

    def _address(self, pod_uid: str) -> str:
        view = self._dependencies.runtime.pod(pod_uid)
        return (view.address if view is not None else "") or self._dependencies.settings.host_ip


@dataclass
class _Follower:
    prober: Prober
    started_at: float
    probes: dict[ProbeKind, ProbeConfig]
    health: ContainerHealth
    record_event: Callable[[EventReason, str], None]
    wake: Callable[[], None]
    _states: dict[ProbeKind, ProbeState] = field(default_factory=dict)

    async def run(self) -> None:
        startup = self.probes.get(ProbeKind.STARTUP)
        if startup is not None and not self.health.started:
            await self._ask_on(startup)
            if self.health.unhealthy:
                return
            if ProbeKind.READINESS not in self.probes:
                self._know(ready=True)
        async with asyncio.TaskGroup() as tasks:
            for kind in (ProbeKind.LIVENESS, ProbeKind.READINESS):
                if kind in self.probes:
                    tasks.create_task(self._ask_on(self.probes[kind]))

    async def _ask_on(self, probe: ProbeConfig) -> None:
        """Until the probe has nothing more to say."""
        clock = self.prober.clock
        await clock.sleep(max(0.0, self.started_at + probe.initial_delay_seconds - clock.now()))
        while not self.health.unhealthy:
            problem = await self._ask(probe)
            before = self._states.get(probe.kind, ProbeState())
            state = self._states[probe.kind] = count(probe, before, not problem)
            if problem and before.last is not False:
                self.record_event(EventReason.UNHEALTHY, f"{probe.kind} probe failed: {problem}")
            if state.verdict is not before.verdict:
                self._judge(probe.kind, state.verdict, problem)
            if probe.kind is ProbeKind.STARTUP and state.verdict is not None:
                return
            await clock.sleep(probe.period_seconds)

    async def _ask(self, probe: ProbeConfig) -> str:
        """A bug here is a probe that fails, and never ends the pod's worker."""
        try:
            return await self.prober.ask(probe.handler, probe.timeout_seconds)
        except Exception as failure:
            log.exception("a probe cannot be asked", pod=self.prober.pod_uid)
            return f"it cannot be asked: {failure}"

    def _judge(self, kind: ProbeKind, verdict: bool | None, problem: str) -> None:
        match kind, verdict:
            case ProbeKind.READINESS, _:
                self._know(ready=bool(verdict))
            case _, False:
                why = f"its {kind.lower()} probe failed: {problem}"
                grace_seconds = self.probes[kind].grace_seconds
                self._know(ready=False, unhealthy=why, grace_seconds=grace_seconds)
            case ProbeKind.STARTUP, _:
                self._know(started=True)
            case _:
                pass

    def _know(self, **news: object) -> None:
        health = msgspec.structs.replace(self.health, **news)
        if health != self.health:
            self.health = health
            self.wake()
