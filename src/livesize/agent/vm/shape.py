"""A virtual machine: its size stands in the groups, the domain and the guest."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from msgspec.structs import replace

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.cpus.plan import BindingStep
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.observation import PodSnapshot
from livesize.agent.pods.config import smaller_limits
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.resize.apply import group_steps
from livesize.agent.resize.plan import PodObservation, plan_resize
from livesize.agent.shape import MachineWork, ProgressObserver, StartSize
from livesize.agent.vm.apply import VmStepContext, unread_step, vm_steps
from livesize.agent.vm.messages import NOT_HEARD, keeps_memory
from livesize.agent.vm.plan import VmPlan, VmTarget, plan_vm_resize
from livesize.agent.vm.sizes import (
    memory_facts,
    smaller_size,
    start_limits,
    tune_of,
    vm_config,
    vm_facts,
    vm_limits,
    vm_target,
)
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object
from livesize.api.reasons import EventReason
from livesize.api.resize_phase import MESSAGES, ResizePhase
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import OnlineMemory, PinVcpus, VmTune
from livesize.api.vm_pins import UNPINNED
from livesize.machinery.steps import Step
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.vm import VmRuntime, VmView
from livesize.runtime.vm_config import VmConfig

QUICK_SECONDS = 0.25
"""A guest takes longer than files do, and all the CPU it can get: by then it has what it was given,
where nothing else keeps the machine busy, and telling the API does not stand in the way of that."""


class VmShape:
    def __init__(
        self, runtime: VmRuntime, record: PodRecord, dependencies: AgentDependencies
    ) -> None:
        self._runtime = runtime
        self._record = record
        self._dependencies = dependencies
        self._vcpus_failed = False
        self._onlined_boot = ""  # of the guest: when it was asked to use what it keeps offline

    def pod_limits(self, entry: Allocation) -> KernelLimits:
        """While it does not run: what it takes to start it."""
        return self._start_limits(entry.size(VM_NAME))

    def start_size(self, entry: Allocation, name: str, *, in_full: bool) -> StartSize:
        new = entry.size(name)
        if in_full or entry.settled:
            tune = tune_of(self._limits(new))
            return StartSize(self._start_limits(new), self._config(new, tune))
        old = entry.size_before(name)
        limits = smaller_limits(self._start_limits(old), self._start_limits(new))
        tune = tune_of(smaller_limits(self._limits(old), self._limits(new)))
        return StartSize(limits, self._config(smaller_size(old, new), tune))

    async def plan(
        self,
        entry: Allocation,
        snapshot: PodSnapshot,
        leaving: AbstractSet[str],
        observer: ProgressObserver,
    ) -> MachineWork:
        assert snapshot.groups is not None
        if VM_NAME in leaving or VM_NAME not in snapshot.groups.containers:
            return self._pod_group_only(entry, snapshot.groups)
        target = vm_target(self._record.pod, entry, self._runtime.cgroup_version)
        try:
            view = await self._fresh_for(target, snapshot.vm, entry.uid)
            target = replace(target, technology=view.technology, **self._cpus(entry, view))
            binding = self._binding(entry)
        except RuntimeCallError as failure:
            return MachineWork((unread_step(failure),), ("vm:read",))
        may_be_booting = self._may_be_booting(snapshot)
        if view.guest is None and may_be_booting:
            return MachineWork(waits_for=NOT_HEARD)
        plan = plan_vm_resize(
            vm_facts(view, agent_may_come=may_be_booting),
            snapshot.groups,
            target,
            binding=binding,
            memory_first=self._vcpus_failed,
            may_online=self._may_online(view),
        )
        context = VmStepContext(
            runtime=self._runtime,
            uid=entry.uid,
            target=target,
            guest_seconds=self._dependencies.settings.guest_seconds,
            look_seconds=self._dependencies.settings.progress_seconds,
            observer=observer,
            failed=self._failed,
            marked=_not_reported if entry.settled else partial(self._marked, entry.generation),
            bind=lambda planned: self._bind(entry.uid, planned),
            online_requested=lambda: self._online_requested(view),
        )
        names = tuple(step.name for step in plan.changing)
        follows = _followed(plan, target)
        steps = tuple(vm_steps(context, plan))
        return MachineWork(
            steps,
            names,
            cpu_steps=plan.cpu_steps,
            quick_seconds=QUICK_SECONDS,
            follows=follows,
            remark=lambda: self._remark(entry.uid),
        )

    def _may_online(self, view: VmView) -> bool:
        guest = view.guest
        return guest is not None and guest.agent and guest.boot_id != self._onlined_boot

    def _online_requested(self, view: VmView) -> None:
        self._onlined_boot = "" if view.guest is None else view.guest.boot_id

    def _remark(self, uid: str) -> str:
        view = self._runtime.vm(uid)
        kept = "" if view is None else keeps_memory(view)
        return f"{MESSAGES[ResizePhase.DONE]} But {kept}." if kept else ""

    def _cpus(self, entry: Allocation, view: VmView) -> dict[str, Any]:
        """What the target says of CPUs. Without the static policy there are none; pins that an
        agent with it has left are widened to all."""
        cpus, alone = self._dependencies.cpus, entry.cpus.get(VM_NAME, ())
        if cpus is not None:
            return {"cpus": alone or cpus.pool(), "alone": bool(alone)}
        return {} if view.pins == UNPINNED else {"cpus": self._runtime.cpus()}

    def _binding(self, entry: Allocation) -> tuple[BindingStep, ...]:
        cpus = self._dependencies.cpus
        return () if cpus is None or not entry.cpus else cpus.plan(entry, (VM_NAME,))

    def _bind(self, uid: str, planned: BindingStep) -> Step:
        assert self._dependencies.cpus is not None, "it planned the step"
        return self._dependencies.cpus.step(uid, planned)

    def _may_be_booting(self, snapshot: PodSnapshot) -> bool:
        """What a guest can spare, and whether it follows, only it can say: a resize waits for its
        first word as long as one can be expected."""
        started_at = snapshot.containers[VM_NAME].started_at
        settings, now = self._dependencies.settings, self._dependencies.clock.now()
        return 0 <= now - started_at < settings.boot_seconds

    async def _fresh_for(self, target: VmTarget, view: VmView | None, uid: str) -> VmView:
        """Before memory moves the guest is asked what it has and can spare, now: the change is
        counted from that, and what it said unasked may be older than its last shrink."""
        if view is not None:
            held = {view.plugged_memory_bytes, view.requested_memory_bytes}
            cells = {cell.id: cell.memory_bytes for cell in target.cells}
            if held == {target.memory_bytes} and memory_facts(view).plugged_by_cell == cells:
                return view
        return await self._runtime.refresh_vm(uid)

    def _pod_group_only(self, entry: Allocation, groups: PodObservation) -> MachineWork:
        """It does not run: it gets its size when it starts."""
        plan = plan_resize(PodObservation(groups.pod, {}), {}, self.pod_limits(entry))
        names = tuple(step.name for step in plan.steps)
        return MachineWork(tuple(group_steps(self._runtime, entry.uid, plan)), names)

    def _limits(self, size: Object) -> KernelLimits:
        return vm_limits(self._record.pod, size, self._runtime.cgroup_version)

    def _start_limits(self, size: Object) -> KernelLimits:
        default = self._dependencies.settings.memory_technology
        return start_limits(self._record.pod, size, self._runtime.cgroup_version, default)

    def _config(self, size: Object, tune: VmTune) -> VmConfig:
        default = self._dependencies.settings.memory_technology
        return vm_config(self._record.pod, size, default, tune)

    def _failed(self, resource: str) -> None:
        """What failed goes last the next time, so that it holds up nothing else."""
        self._vcpus_failed = resource == "vcpus"

    def _marked(self, generation: int, resource: str) -> None:
        """With the generation it is an event of its own, which goes with the answer; one more of
        the same would be a request by itself, while the guest is at work."""
        pod = self._record.pod
        message = (
            f"{resource}: the pod's groups hold what generation {generation} needs;"
            " the domain is next"
        )
        self._dependencies.record_event(pod, EventReason.SAFE_TO_HOTPLUG, message, QUICK_SECONDS)


def _followed(plan: VmPlan, target: VmTarget) -> str:
    """What a plan only follows: then no user asked for it."""
    if all(isinstance(step, OnlineMemory) for step in plan.changing):
        return "a boot of the guest"
    only_pins = all(isinstance(step, PinVcpus) for step in plan.changing)
    return "the shared CPUs" if only_pins and not target.alone else ""


def _not_reported(_resource: str) -> None:
    """What was changed by hand is driven back without an event."""
