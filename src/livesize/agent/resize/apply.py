"""Carries out a resize plan on the machine; makes no choices.

Each planned change becomes one step that writes and then reads back: a step is done when the
kernel itself says so.
"""

from __future__ import annotations

from livesize.agent.resize.plan import (
    CpuSetting,
    MemorySetting,
    ResizePlan,
    SetGroup,
)
from livesize.machinery.steps import Step, StepFailedError
from livesize.runtime.interface import (
    Change,
    ContainerGroup,
    Group,
    PodGroup,
    Runtime,
    SetCpu,
    SetMemory,
)


def group_steps(runtime: Runtime, pod_uid: str, plan: ResizePlan) -> list[Step]:
    """The plan as steps for machinery.steps."""
    return [group_step(runtime, pod_uid, planned) for planned in plan.steps]


def group_step(runtime: Runtime, pod_uid: str, planned: SetGroup) -> Step:
    group = _group(pod_uid, planned)
    change = _change(planned)

    async def write() -> None:
        await runtime.write(group, change)

    async def read_back() -> None:
        found = runtime.read_back(group, change)
        if found != change:
            raise StepFailedError(
                f"{planned.name} of pod {pod_uid} was set to {change}, but the machine says {found}"
            )

    return Step(planned.name, write, read_back)


def _group(pod_uid: str, planned: SetGroup) -> Group:
    if planned.container is None:
        return PodGroup(pod_uid)
    return ContainerGroup(pod_uid, planned.container)


def _change(planned: SetGroup) -> Change:
    match planned.after:
        case CpuSetting(weight=weight, quota_us=quota_us):
            return SetCpu(weight, quota_us)
        case MemorySetting(limit_bytes=limit_bytes):
            return SetMemory(limit_bytes)
