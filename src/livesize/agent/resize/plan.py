"""Decides the order in which the limits of a pod's groups change. Pure.

Given what the machine says and what is wanted, both in kernel units, ``plan_resize`` returns the
steps; apply.py carries them out and stops at the first failure. So every prefix of a plan must be
safe: as long as the plan began in a state where the container limits together did not exceed the
pod's, no step leaves that state. Hence, for each resource by itself (ARK, "Container resource
limit update ordering"):

    net growth   pod group first, then decreases, then increases
    net shrink   decreases, then increases, pod group last
    neither      decreases, then increases; the pod group is not written

No limit counts as larger than any limit. CPU comes before memory, so that a memory shrink which
has to wait for the workload holds up nothing else. Planning again from what the machine says
after any prefix gives the rest of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from livesize.api.group_changes import SetCpu, SetMemory, SizeChange, cpu_change, memory_change
from livesize.api.kernel_units import KernelLimits

_NO_LIMIT = float("inf")


class SetGroup(msgspec.Struct, frozen=True):
    """Write one resource of one group. ``container`` None is the pod's own group."""

    container: str | None
    after: SizeChange
    before: SizeChange

    @property
    def name(self) -> str:
        """For people and crash points: "pod:cpu", "container:app:memory"."""
        group = "pod" if self.container is None else f"container:{self.container}"
        resource = "cpu" if isinstance(self.after, SetCpu) else "memory"
        return f"{group}:{resource}"


class PodObservation(msgspec.Struct, frozen=True):
    """What the machine says of a pod's group and of those of its containers that have one."""

    pod: KernelLimits
    containers: Mapping[str, KernelLimits]


class ResizePlan(msgspec.Struct, frozen=True):
    steps: tuple[SetGroup, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.steps


_Reader: TypeAlias = Callable[[KernelLimits], SizeChange]


def plan_resize(
    observed: PodObservation, wanted: Mapping[str, KernelLimits], pod_wanted: KernelLimits
) -> ResizePlan:
    """Return the ordered steps from ``observed`` to ``wanted``. A container that has no group
    now is left out: it gets its limits when it starts."""
    steps: list[SetGroup] = []
    for read in (cpu_change, memory_change):
        steps.extend(_plan_resource(read, observed, wanted, pod_wanted))
    return ResizePlan(tuple(steps))


def shrinks(change: SetGroup) -> bool:
    return _size(change.after) < _size(change.before)


def _plan_resource(
    read: _Reader,
    observed: PodObservation,
    wanted: Mapping[str, KernelLimits],
    pod_wanted: KernelLimits,
) -> list[SetGroup]:
    decreases: list[SetGroup] = []
    increases: list[SetGroup] = []
    for name in sorted(observed.containers.keys() & wanted.keys()):
        change = SetGroup(name, read(wanted[name]), read(observed.containers[name]))
        if change.after != change.before:
            (decreases if shrinks(change) else increases).append(change)
    containers = [*decreases, *increases]

    pod = SetGroup(None, read(pod_wanted), read(observed.pod))
    if pod.before == pod.after:
        return containers
    return [*containers, pod] if shrinks(pod) else [pod, *containers]


def _size(change: SizeChange) -> tuple[float, int]:
    """Sizes compare by limit; the weight, which bounds nothing, only where limits are equal."""
    match change:
        case SetCpu(weight=weight, quota_us=quota_us):
            return (_NO_LIMIT if quota_us is None else quota_us, weight or 0)
        case SetMemory(limit_bytes=limit_bytes):
            return (_NO_LIMIT if limit_bytes is None else limit_bytes, 0)
