"""A pod of containers: every size is a limit of a group."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observe import PodSnapshot
from livesize.agent.pods.config import start_limits, wanted_limits, wanted_pod_limits
from livesize.agent.resize.apply import group_steps
from livesize.agent.resize.plan import PodObservation, plan_resize
from livesize.agent.shape import MachineWork, Onlookers, StartSize
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import Runtime


@dataclass(frozen=True)
class ContainersShape:
    runtime: Runtime

    def pod_limits(self, entry: Allocation) -> KernelLimits:
        return wanted_pod_limits(entry, self.runtime.cgroup_version)

    def start_size(self, entry: Allocation, name: str, *, in_full: bool) -> StartSize:
        version = self.runtime.cgroup_version
        if in_full:
            return StartSize(wanted_limits(entry, version)[name])
        return StartSize(start_limits(entry, name, version))

    async def plan(
        self,
        entry: Allocation,
        snapshot: PodSnapshot,
        leaving: AbstractSet[str],
        onlookers: Onlookers,  # noqa: ARG002 — groups change at once
    ) -> MachineWork:
        assert snapshot.groups is not None
        staying = {
            name: limits
            for name, limits in snapshot.groups.containers.items()
            if name not in leaving
        }
        plan = plan_resize(
            PodObservation(snapshot.groups.pod, staying),
            wanted_limits(entry, self.runtime.cgroup_version),
            self.pod_limits(entry),
        )
        names = tuple(step.name for step in plan.steps)
        return MachineWork(tuple(group_steps(self.runtime, entry.uid, plan)), names)

    async def tidy(self, snapshot: PodSnapshot) -> None:
        """Nothing of a container's grows beside its limits."""
