"""A pod of containers: every size is a limit of a group."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.cpus.pool import CpuPool
from livesize.agent.observation import PodSnapshot
from livesize.agent.pods.config import (
    oom_score_adj,
    scored_size,
    start_limits,
    wanted_limits,
    wanted_pod_limits,
)
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.resize.apply import HeldLimits, group_steps
from livesize.agent.resize.hooks import ResizeHooks
from livesize.agent.resize.plan import PodObservation, plan_resize
from livesize.agent.shape import MachineWork, ProgressObserver, StartSize
from livesize.agent.volumes.sizes import volume_steps
from livesize.api.group_changes import SetCpu
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object, lookup
from livesize.api.qos import qos_class
from livesize.machinery.steps import Step
from livesize.runtime.interface import ContainerGroup, Runtime
from livesize.runtime.volumes.interface import VolumeStore


@dataclass(frozen=True)
class ContainersShape:
    runtime: Runtime
    record: PodRecord
    node_memory_bytes: int
    volumes: VolumeStore
    hooks: ResizeHooks
    cpus: CpuPool | None = None

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
        observer: ProgressObserver,
    ) -> MachineWork:
        assert snapshot.groups is not None
        staying = {
            name: limits
            for name, limits in snapshot.groups.containers.items()
            if name not in leaving
        }
        pod_limits = self.pod_limits(entry)
        held = HeldLimits(PodObservation(snapshot.groups.pod, staying))
        plan = plan_resize(
            held.now(),
            wanted_limits(entry, self.runtime.cgroup_version),
            pod_limits,
        )
        binding = self._binding_steps(entry, staying)
        groups = group_steps(self.runtime, entry.uid, plan, held.read)
        grow, shrink = volume_steps(
            self.volumes, self.record.pod, pod_limits.memory_limit_bytes, self.node_memory_bytes
        )
        changing = tuple(step.name for step in (*binding, *grow, *groups, *shrink))
        steps = [*binding, *grow, *groups, *self._score_steps(entry, staying), *shrink]
        before = self.hooks.before(entry, staying, observer.is_overtaken)
        after = self.hooks.after(entry, staying, observer.is_overtaken)
        of_cpu = sum(isinstance(step.after, SetCpu) for step in plan.steps)  # they come first
        cpu_steps = len(before) + len(binding) + len(grow) + of_cpu
        return MachineWork(
            (*before, *steps, *after), changing, cpu_steps=cpu_steps, groups=held.now
        )

    def _binding_steps(self, entry: Allocation, names: Iterable[str]) -> list[Step]:
        """CPUs come first: what waits for memory then holds up no other pod's CPUs."""
        if self.cpus is None or not entry.cpus:
            return []
        return self.cpus.steps(entry, names)

    def _score_steps(self, entry: Allocation, names: Iterable[str]) -> list[Step]:
        """Where the request decides who is killed first, it does so from now on (IBM)."""
        pod, node_bytes = self.record.pod, self.node_memory_bytes
        if qos_class(pod) != "Burstable":
            return []  # then it is the same for every size
        steps = []
        for name in sorted(names):
            old, new = (scored_size(pod, name, of) for of in (entry.size_before, entry.size))
            if _requested(old) == _requested(new):
                continue
            before = oom_score_adj(pod, old, node_bytes)
            after = oom_score_adj(pod, new, node_bytes)
            if before != after:
                steps.append(self._score_step(ContainerGroup(entry.uid, name), after))
        return steps

    def _score_step(self, group: ContainerGroup, score: int) -> Step:
        async def set_score() -> None:
            self.runtime.set_oom_score(group, score)

        return Step(f"container:{group.container}:oom-score", set_score)


def _requested(size: Object) -> str:
    return str(lookup(size, "requests", "memory", default=""))
