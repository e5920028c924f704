"""The dependencies of a node agent (API, machine, time, settings), which all its parts share."""

from __future__ import annotations

from dataclasses import dataclass

from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.cpus.pool import CpuPool
from livesize.agent.settings import AgentSettings
from livesize.api.objects import Object
from livesize.api.reasons import EventReason, event_type
from livesize.client.interface import Client
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.recorder import EventRecorder, EventSeverity
from livesize.machinery.steps import CrashPoints
from livesize.runtime.interface import ContainerConfig, ContainerView, MachineFacts, Runtime
from livesize.runtime.vm import VmRuntime
from livesize.runtime.volumes.interface import VolumeStore


@dataclass(frozen=True)
class AgentDependencies:
    client: Client
    runtime: Runtime
    checkpoint: Checkpoint
    context: Context
    settings: AgentSettings
    points: CrashPoints
    recorder: EventRecorder
    machine: MachineFacts  # as it was when the agent began: reading it takes files
    volumes: VolumeStore
    vms: VmRuntime | None = None  # the same runtime, where it runs virtual machines
    cpus: CpuPool | None = None  # under the static CPU policy

    @property
    def clock(self) -> Clock:
        return self.context.clock

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        """Start it on the CPUs it may have."""
        if self.cpus is None:
            return await self.runtime.start_container(config)
        return await self.cpus.start(config)

    def compose_event(self, pod: Object, reason: EventReason, message: str) -> Object:
        """An event about ``pod``, for a caller that sends it along with a report."""
        severity = EventSeverity(event_type(reason).value)
        return self.recorder.compose(pod, severity, reason.value, message)

    def record_event(
        self, pod: Object, reason: EventReason, message: str, patience_seconds: float = 0.0
    ) -> None:
        """Record an event about ``pod``; never waits, never fails. ``patience_seconds``: so much
        longer the recorder may hold it, so that it goes along with a report about the pod."""
        severity = EventSeverity(event_type(reason).value)
        self.recorder.record(pod, severity, reason.value, message, patience_seconds)
