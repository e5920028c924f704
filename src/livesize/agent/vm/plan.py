"""Decides the order in which a virtual machine and its groups change. Pure.

A VM's size stands in several places: the groups of the pod and of QEMU, the running domain, the
guest, the persistent definition. For each resource by itself (decisions 21):

    grow     pod group, VM group → marked safe → note → domain → the guest confirms → persistent
             → note cleared
    shrink   marked safe → note → the guest gives back → it confirms → persistent → note cleared
             → VM group, pod group

Under the static CPU policy CPUs that are gained are the VM's before its vCPUs come, those it loses
are left when its vCPUs have gone; threads are pinned last, when each vCPU is there (``binding``).

Every prefix is safe: as long as the plan began so, the groups hold all the memory the domain has
or was asked to take and the overhead, and CPU time for every vCPU the guest has online. Planning
again from what the machine says after any prefix gives the rest of the plan.

Which memory devices change, and by how much, the VM's memory technology decides (memory/), and
whether that takes several stages, each confirmed by the guest. A shrink goes as far as the guest
can spare, and ends in a step that says how much is left. CPU comes before
memory, so that memory which has to wait holds up nothing, unless it was CPU that failed the last
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from livesize.agent.cpus.plan import Bind, BindingStep, Cpus, plan_pins
from livesize.agent.resize.plan import PodObservation, SetGroup, shrinks
from livesize.agent.vm.memory.facts import MemoryFacts, base_of, is_seen, unseen_bytes
from livesize.agent.vm.memory.interface import (
    MemoryPlan,
    MemoryRefusal,
    MemoryTarget,
    MemoryWait,
)
from livesize.agent.vm.memory.technologies import DEFAULT_TECHNOLOGY, TECHNOLOGIES
from livesize.api.group_changes import SetCpu, SetMemory, SizeChange, cpu_change, memory_change
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import (
    OnlineMemory,
    OnlineVcpus,
    PersistVcpus,
    PinVcpus,
    PlugVcpus,
    TuneCpu,
    UnplugDevice,
    UnplugVcpus,
    VmChange,
    VmNote,
    VmTune,
    WriteNote,
)
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import MEMORY_BLOCK_BYTES, CellSize, MemoryBase, VmTopology


class VmFacts(msgspec.Struct, frozen=True):
    """A running VM as it was read. ``online_vcpus`` is the guest's own word: None, where it was not
    heard. ``created_vcpus``: all there were since it was started, of which an emulator gives no
    more than ``max_vcpus``; 0: not known, and as many as are plugged in."""

    unplugs_vcpus: bool  # really; without, the guest takes them offline
    plugged_vcpus: int
    persistent_vcpus: int
    online_vcpus: int | None
    memory: MemoryFacts
    pins: VmPins = UNPINNED
    persistent_pins: VmPins = UNPINNED
    has_agent: bool = True  # which can take vCPUs offline
    created_vcpus: int = 0
    max_vcpus: int = 0
    topology: VmTopology | None = None
    tune: VmTune = VmTune()
    persistent_tune: VmTune = VmTune()

    @property
    def is_tuned(self) -> bool:
        """A domain that was made without <cputune> is left so."""
        return not VmTune() == self.tune == self.persistent_tune


class VmTarget(msgspec.Struct, frozen=True):
    """``limits`` are what both groups are to hold, the overhead included. ``cpus``: what it may run
    on, ``alone`` in the order in which it got them; empty: all. ``technology``: how its memory
    changes (memory/technologies.py). ``cells``: what each NUMA cell is to have; empty: it has one.
    ``max_memory_bytes`` 0: as much as its devices hold. ``tune`` None: <cputune> is left as it is.
    """

    vcpus: int
    memory_bytes: int
    overhead_bytes: int
    limits: KernelLimits
    cpus: Cpus = ()
    alone: bool = False
    technology: str = DEFAULT_TECHNOLOGY
    cells: tuple[CellSize, ...] = ()
    min_memory_bytes: int = 0
    max_memory_bytes: int = 0
    tune: VmTune | None = None


class ConfirmVcpus(msgspec.Struct, frozen=True, tag=True):
    """The guest itself says that it uses that many."""

    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:guest"


class ConfirmMemory(msgspec.Struct, frozen=True, tag=True):
    """The guest has taken or given back memory until it holds ``requested_bytes``, and sees the
    difference. Where that is more than ``wanted_bytes`` in the last stage, it cannot give the rest
    now. ``leaving``: the devices that it was asked to let go of."""

    wanted_bytes: int
    requested_bytes: int
    plugged_before_bytes: int
    base: MemoryBase | None
    leaving: tuple[str, ...] = ()
    is_last: bool = True
    is_short: bool = False  # a NUMA cell waits for what another cannot give yet

    @property
    def name(self) -> str:
        return "vm:memory:guest"


class HoldMemory(msgspec.Struct, frozen=True, tag=True):
    """Memory stays as it is until a change under way has ended."""

    why: str

    @property
    def name(self) -> str:
        return "vm:memory:hold"


class RefuseMemory(msgspec.Struct, frozen=True, tag=True):
    """This VM cannot have that size."""

    refusal: MemoryRefusal

    @property
    def name(self) -> str:
        return "vm:memory:refuse"


class RefuseVcpus(msgspec.Struct, frozen=True, tag=True):
    """This VM cannot have that many vCPUs."""

    why: str

    @property
    def name(self) -> str:
        return "vm:vcpus:refuse"


class MarkSafe(msgspec.Struct, frozen=True, tag=True):
    """The groups, read once more, hold all that the domain is about to be asked for: from here on
    it may be changed (F66). One of the two is given."""

    resource: str  # vcpus or memory, as in the names of other steps
    quota_us: int | None = None
    limit_bytes: int | None = None

    @property
    def name(self) -> str:
        return f"vm:{self.resource}:safe"


VmStep: TypeAlias = (
    SetGroup
    | BindingStep
    | MarkSafe
    | VmChange
    | ConfirmVcpus
    | ConfirmMemory
    | HoldMemory
    | RefuseMemory
    | RefuseVcpus
)


class VmPlan(msgspec.Struct, frozen=True):
    """``cpu_steps``: after so many the VM has no more CPU than it is to have; None: after all."""

    steps: tuple[VmStep, ...] = ()
    cpu_steps: int | None = None

    @property
    def changing(self) -> tuple[VmStep, ...]:
        """Without what only looks, or waits for the guest."""
        looking = (MarkSafe, ConfirmVcpus, ConfirmMemory, HoldMemory)
        return tuple(step for step in self.steps if not isinstance(step, looking))


def plan_vm_resize(
    facts: VmFacts,
    groups: PodObservation,
    target: VmTarget,
    *,
    binding: tuple[BindingStep, ...] = (),
    memory_first: bool = False,
    may_online: bool = False,
) -> VmPlan:
    """Return the ordered steps from what is to ``target``; the VM's own group is there.
    ``may_online``: the guest has an agent that was not asked yet to use what it keeps offline.
    ``binding``: those from the CPUs its group is bound to, to those it is to have alone."""
    vcpus = _vcpu_steps(facts, target.vcpus)
    if any(isinstance(step, RefuseVcpus) for step in vcpus):
        binding, cpu = (), vcpus
    else:
        cpu = _within(cpu_change, groups, target, _tuned(facts, target, vcpus))
    gains = bool(binding) and isinstance(binding[-1], Bind)
    cpu = [*binding, *cpu] if gains else [*cpu, *binding]
    cpu += _pin_steps(facts, target)
    memory = _memory_steps(facts.memory, groups, target, may_online=may_online)
    if any(isinstance(step, HoldMemory | RefuseMemory) for step in memory):
        memory_first = False  # it ends there
    return VmPlan((*memory, *cpu)) if memory_first else VmPlan((*cpu, *memory), len(cpu))


def plan_roll_back(
    grown: Iterable[SetGroup], facts: VmFacts, overhead_bytes: int
) -> tuple[SetGroup, ...]:
    """Groups that were widened for a domain which then refused: back to what they had, or to what
    the domain still holds where that is more. The inner one first (F49)."""
    undone = [
        SetGroup(
            change.container, _restored_size(change.before, facts, overhead_bytes), change.after
        )
        for change in grown
    ]
    return tuple(change for change in reversed(undone) if shrinks(change))


def _within(
    read: Callable[[KernelLimits], SizeChange],
    groups: PodObservation,
    target: VmTarget,
    inner: list[VmStep],
) -> list[VmStep]:
    after = read(target.limits)
    observed = ((None, groups.pod), (VM_NAME, groups.containers[VM_NAME]))
    changes = [
        SetGroup(name, after, read(limits)) for name, limits in observed if read(limits) != after
    ]
    widened = [change for change in changes if not shrinks(change)]
    narrowed = [change for change in reversed(changes) if shrinks(change)]
    return [*widened, *inner, *narrowed]


def _tuned(facts: VmFacts, target: VmTarget, vcpus: list[VmStep]) -> list[VmStep]:
    """CPU time comes before the vCPUs that need it, and goes after them."""
    if target.tune is None or not facts.is_tuned:
        return vcpus
    if facts.tune == facts.persistent_tune == target.tune:
        return vcpus
    before, after = facts.tune.quota_us, target.tune.quota_us
    shrinks_time = after is not None and (before is None or after < before)
    step = TuneCpu(target.tune)
    return [*vcpus, step] if shrinks_time else [step, *vcpus]


def _vcpu_steps(facts: VmFacts, count: int) -> list[VmStep]:
    refusal = _vcpu_refusal(facts, count)
    if refusal:
        return [RefuseVcpus(refusal)]
    steps: list[VmStep] = []
    online, plugged = facts.online_vcpus, facts.plugged_vcpus
    unplugs = facts.unplugs_vcpus or (online is not None and not facts.has_agent)
    if plugged > count and unplugs:
        steps.append(UnplugVcpus(count))
    usable = min(count, plugged)
    if online is not None and (online < usable or (online > count and not unplugs)):
        steps.append(OnlineVcpus(usable))
    if plugged < count:
        steps.append(PlugVcpus(count))
    if steps or online != count:
        steps.append(ConfirmVcpus(count))
    if any(not isinstance(step, ConfirmVcpus) for step in steps):
        steps.insert(0, MarkSafe("vcpus", quota_us=count * CPU_PERIOD_US))
    if facts.persistent_vcpus != count:
        steps.append(PersistVcpus(count))
    return steps


def _vcpu_refusal(facts: VmFacts, count: int) -> str:
    """Why it cannot have so many; empty: it can. An emulator ends with the VM when more vCPUs are
    created in it than its maximum: what is unplugged must be able to come back (decisions 24)."""
    socket = 1 if facts.topology is None else facts.topology.vcpus
    if count % socket:
        below = count // socket * socket
        nearest = " and ".join(str(one) for one in (below, below + socket) if one)
        return f"cpu: its sockets have {socket} CPUs each, not {count}; the nearest are {nearest}"
    if facts.unplugs_vcpus:
        return ""
    plugged, created = facts.plugged_vcpus, max(facts.created_vcpus, facts.plugged_vcpus)
    left = facts.max_vcpus - created if facts.max_vcpus else count
    if count > plugged and count - plugged > left:
        return (
            f"cpu: {created} CPUs were created since this emulated VM was started, of"
            f" {facts.max_vcpus} that it can have: {count - plugged} more need a restart of it"
        )
    needs_unplug = plugged > count and facts.online_vcpus is not None and not facts.has_agent
    if needs_unplug and plugged - count > left:
        return (
            "cpu: the guest has no qemu-guest-agent that could take CPUs offline: install it there."
            f" Emulated, {plugged - count} CPUs that are unplugged could not come back: {created}"
            f" of {facts.max_vcpus} were created since it was started"
        )
    return ""


def _pin_steps(facts: VmFacts, target: VmTarget) -> list[VmStep]:
    if not target.cpus:
        return []
    kept = target.vcpus if facts.unplugs_vcpus else facts.plugged_vcpus
    pins = plan_pins(target.cpus, max(kept, target.vcpus), alone=target.alone)
    return [] if facts.pins == facts.persistent_pins == pins else [PinVcpus(pins)]


def _memory_steps(
    facts: MemoryFacts, groups: PodObservation, target: VmTarget, *, may_online: bool
) -> list[VmStep]:
    most_bytes = _covered_bytes(groups, target.overhead_bytes)
    technology = TECHNOLOGIES[target.technology]
    wanted = MemoryTarget(
        target.memory_bytes,
        most_bytes,
        cells=target.cells,
        min_bytes=target.min_memory_bytes,
        max_bytes=target.max_memory_bytes,
    )
    decision = technology.plan(facts, wanted)
    match decision:
        case MemoryWait(why=why):
            return [HoldMemory(why)]
        case MemoryRefusal():
            return [RefuseMemory(decision)]
        case MemoryPlan():
            steps = _domain_memory_steps(facts, target, decision)
            if may_online and not steps and unseen_bytes(facts, None):
                steps = [OnlineMemory()]
            return _within(memory_change, groups, target, steps)


def _domain_memory_steps(
    facts: MemoryFacts, target: VmTarget, decision: MemoryPlan
) -> list[VmStep]:
    wanted_bytes = target.memory_bytes
    steps: list[VmStep] = []
    base = base_of(facts)
    is_under_way = facts.noted_bytes is not None
    is_settled = is_seen(facts, base) if is_under_way else True
    is_there = facts.plugged_bytes == wanted_bytes and is_settled and not decision.is_short
    plugged_bytes, stages = facts.plugged_bytes, decision.stages
    for number, stage in enumerate(stages, start=1):
        if stage.live or number < len(stages) or steps or not is_there:
            leaving = [one.alias for one in stage.live if isinstance(one, UnplugDevice)]
            confirm = ConfirmMemory(
                wanted_bytes,
                stage.requested_bytes,
                plugged_bytes,
                base,
                tuple(leaving),
                number == len(stages),
                stage.is_short,
            )
            steps += [*stage.live, confirm]
        plugged_bytes = stage.requested_bytes
    steps += decision.persistent
    if steps and facts.noted_bytes != wanted_bytes:
        steps.insert(0, WriteNote(VmNote(wanted_bytes, base)))
    asked = [stage.requested_bytes for stage in decision.stages if stage.live]
    if asked:
        steps.insert(0, MarkSafe("memory", limit_bytes=max(asked) + target.overhead_bytes))
    if steps or is_under_way:
        steps.append(WriteNote(VmNote()))
    return steps


def _covered_bytes(groups: PodObservation, overhead_bytes: int) -> int:
    """The largest size that the groups hold as they are; 0 where they have no limit, which is
    nothing to rely on."""
    limits = (groups.pod.memory_limit_bytes, groups.containers[VM_NAME].memory_limit_bytes)
    covered = min(limit or 0 for limit in limits) - overhead_bytes
    return max(0, covered // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES)


def _restored_size(before: SizeChange, facts: VmFacts, overhead_bytes: int) -> SizeChange:
    match before:
        case SetCpu(weight=weight, quota_us=quota_us):
            online = facts.plugged_vcpus if facts.online_vcpus is None else facts.online_vcpus
            return SetCpu(weight, _larger(quota_us, online * CPU_PERIOD_US))
        case SetMemory(limit_bytes=limit_bytes):
            held_bytes = max(facts.memory.requested_bytes, facts.memory.plugged_bytes)
            return SetMemory(_larger(limit_bytes, held_bytes + overhead_bytes))


def _larger(limit: int | None, needed: int) -> int | None:
    return None if limit is None else max(limit, needed)
