"""Carries out a resize plan on the machine; makes no choices.

Each planned change becomes one step that writes and then reads back: a step is done when the
kernel itself says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from livesize.agent.resize.plan import PodObservation, ResizePlan, SetGroup
from livesize.api.group_changes import GroupChange, SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.steps import Step, StepFailedError
from livesize.runtime.interface import ContainerGroup, Group, PodGroup, Runtime

ChangeObserver: TypeAlias = Callable[[SetGroup, GroupChange], None]
"""Told what a step has read back."""


class HeldLimits:
    """What the groups of one pod hold: as it was observed, and as each step has read it since."""

    def __init__(self, observed: PodObservation) -> None:
        self._observed = observed

    def now(self) -> PodObservation:
        return self._observed

    def read(self, planned: SetGroup, found: GroupChange) -> None:
        pod, containers = self._observed.pod, self._observed.containers
        if planned.container is None:
            pod = _with_change(pod, found)
        else:
            limits = _with_change(containers[planned.container], found)
            containers = {**containers, planned.container: limits}
        self._observed = PodObservation(pod, containers)


def _with_change(limits: KernelLimits, found: GroupChange) -> KernelLimits:
    match found:
        case SetCpu(weight=int(weight), quota_us=quota_us):
            return KernelLimits(weight, quota_us, limits.memory_limit_bytes)
        case SetMemory(limit_bytes=limit_bytes):
            return KernelLimits(limits.cpu_weight, limits.cpu_quota_us, limit_bytes)
        case _:
            return limits


def group_steps(
    runtime: Runtime, pod_uid: str, plan: ResizePlan, heard: ChangeObserver | None = None
) -> list[Step]:
    """The plan as steps for machinery.steps."""
    return [group_step(runtime, pod_uid, planned, heard) for planned in plan.steps]


def group_step(
    runtime: Runtime, pod_uid: str, planned: SetGroup, heard: ChangeObserver | None = None
) -> Step:
    group = _group(pod_uid, planned)
    change = planned.after

    async def write() -> None:
        await runtime.write(group, change)

    async def read_back() -> None:
        found = runtime.read_back(group, change)
        if found != change:
            raise StepFailedError(
                f"{planned.name} of pod {pod_uid} was set to {change}, but the machine says {found}"
            )
        if heard is not None:
            heard(planned, found)

    return Step(planned.name, write, read_back)


def _group(pod_uid: str, planned: SetGroup) -> Group:
    if planned.container is None:
        return PodGroup(pod_uid)
    return ContainerGroup(pod_uid, planned.container)
