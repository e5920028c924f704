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

Memory counts as there when the guest's own total has changed by what was plugged (``is_seen``). A
change is counted from what was noted before it began, so that it is the same after any retry.

A guest is never asked for more memory than it can spare (``smallest_safe_bytes``): a shrink below
that goes as far as it may, and ends in a step that says how much is left; a guest that comes to
need more meanwhile gets it back, as far as its groups reach. CPU comes before memory, so that
memory which has to wait holds up nothing, unless it was CPU that failed the last time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from livesize.agent.cpus.pins import plan_pins
from livesize.agent.cpus.plan import Bind, BindingStep, Cpus
from livesize.agent.resize.plan import PodObservation, SetGroup, shrinks
from livesize.api.group_changes import SetCpu, SetMemory, SizeChange, cpu_change, memory_change
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.api.resources import VM_NAME
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import MEBIBYTE, MEMORY_BLOCK_BYTES, MemoryBase

_RESERVE_BYTES = 64 * MEBIBYTE
_RESERVE_SHARE = 20  # or 5 % of the size it is to have
# A kernel may keep the books of added memory in that memory: 64 bytes for each page of 4 KiB.
_BOOKS_SHARE = 64
_OTHER_BOOT_BYTES = 16 * MEBIBYTE  # a kernel keeps a little more or less for itself at each boot
# Where nothing was noted: a kernel keeps no more than this of what it boots with, or an eighth.
_KERNEL_BYTES = 192 * MEBIBYTE
_KERNEL_SHARE = 8


class VmFacts(msgspec.Struct, frozen=True):
    """A running VM as it was read. ``online_vcpus``, ``seen_bytes`` and ``available_bytes`` are
    the guest's own words: None, where it was not heard."""

    unplugs_vcpus: bool  # really; without, the guest takes them offline
    plugged_vcpus: int
    persistent_vcpus: int
    online_vcpus: int | None
    requested_bytes: int
    plugged_bytes: int
    persistent_bytes: int
    seen_bytes: int | None
    available_bytes: int | None
    noted_bytes: int | None  # the target of a change of memory under way
    noted_base: MemoryBase | None = None  # from before that change
    boot_bytes: int = 0
    boot_id: str = ""  # of the guest
    pins: VmPins = UNPINNED
    persistent_pins: VmPins = UNPINNED


class VmTarget(msgspec.Struct, frozen=True):
    """``limits`` are what both groups are to hold, the overhead included. ``cpus``: what it may run
    on, ``alone`` in the order in which it got them; empty: nobody tells it."""

    vcpus: int
    memory_bytes: int
    overhead_bytes: int
    limits: KernelLimits
    cpus: Cpus = ()
    alone: bool = False


class VcpuAction(enum.StrEnum):
    PLUG = "plug"
    UNPLUG = "unplug"
    ONLINE = "online"
    PERSIST = "persist"


class ChangeVcpus(msgspec.Struct, frozen=True, tag=True):
    action: VcpuAction
    count: int

    @property
    def name(self) -> str:
        return f"vm:vcpus:{self.action.value}"


class ConfirmVcpus(msgspec.Struct, frozen=True, tag=True):
    """The guest itself says that it uses that many."""

    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:guest"


class MemoryAction(enum.StrEnum):
    REQUEST = "request"
    PERSIST = "persist"


class ChangeMemory(msgspec.Struct, frozen=True, tag=True):
    action: MemoryAction
    total_bytes: int

    @property
    def name(self) -> str:
        return f"vm:memory:{self.action.value}"


class ConfirmMemory(msgspec.Struct, frozen=True, tag=True):
    """The guest has taken or given back memory until it holds ``asked_bytes``, and sees the
    difference. Where that is more than ``wanted_bytes``, it cannot give the rest now."""

    wanted_bytes: int
    asked_bytes: int
    plugged_before_bytes: int
    base: MemoryBase | None

    @property
    def name(self) -> str:
        return "vm:memory:guest"


class SetNote(msgspec.Struct, frozen=True, tag=True):
    """Remember with the domain that its memory is on the way to a size; None: it has arrived."""

    memory_bytes: int | None
    base: MemoryBase | None = None

    @property
    def name(self) -> str:
        return "vm:memory:clear" if self.memory_bytes is None else "vm:memory:note"


class BringOnline(msgspec.Struct, frozen=True, tag=True):
    """The guest keeps offline what it has, since it booted."""

    @property
    def name(self) -> str:
        return "vm:memory:online"


class MarkSafe(msgspec.Struct, frozen=True, tag=True):
    """The groups, read once more, hold all that the domain is about to be asked for: from here on
    it may be changed (F66). One of the two is given."""

    resource: str  # vcpus or memory, as in the names of other steps
    quota_us: int | None = None
    limit_bytes: int | None = None

    @property
    def name(self) -> str:
        return f"vm:{self.resource}:safe"


class SetPins(msgspec.Struct, frozen=True, tag=True):
    """Pin the threads of the domain."""

    pins: VmPins

    @property
    def name(self) -> str:
        return "vm:vcpus:pin"


VmStep: TypeAlias = (
    SetGroup
    | BindingStep
    | MarkSafe
    | ChangeVcpus
    | ConfirmVcpus
    | SetPins
    | ChangeMemory
    | ConfirmMemory
    | BringOnline
    | SetNote
)


class VmPlan(msgspec.Struct, frozen=True):
    """``cpu_steps``: after so many the VM has no more CPU than it is to have; None: after all."""

    steps: tuple[VmStep, ...] = ()
    cpu_steps: int | None = None

    @property
    def changing(self) -> tuple[VmStep, ...]:
        """Without what only looks, or waits for the guest."""
        looking = (MarkSafe, ConfirmVcpus, ConfirmMemory)
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
    cpu = _within(cpu_change, groups, target, _vcpu_steps(facts, target.vcpus))
    gains = bool(binding) and isinstance(binding[-1], Bind)
    cpu = [*binding, *cpu] if gains else [*cpu, *binding]
    cpu += _pin_steps(facts, target)
    most_bytes = _covered_bytes(groups, target.overhead_bytes)
    memory_steps = _memory_steps(facts, target.memory_bytes, most_bytes, target.overhead_bytes)
    if may_online and not memory_steps and unseen_bytes(facts, None):
        memory_steps = [BringOnline()]
    memory = _within(memory_change, groups, target, memory_steps)
    return VmPlan((*memory, *cpu)) if memory_first else VmPlan((*cpu, *memory), len(cpu))


def smallest_safe_bytes(facts: VmFacts, wanted_bytes: int) -> int:
    """The smallest size that leaves the guest what it uses and a reserve; what it has now, where
    it does not say, or where its reserve is only a little short."""
    if facts.available_bytes is None:
        return facts.plugged_bytes
    reserve = max(_RESERVE_BYTES, wanted_bytes // _RESERVE_SHARE)
    spare = facts.available_bytes - reserve
    if -reserve // 2 <= spare < 0:
        return facts.plugged_bytes
    return facts.plugged_bytes - spare // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES


def plan_roll_back(
    grown: Iterable[SetGroup], facts: VmFacts, overhead_bytes: int
) -> tuple[SetGroup, ...]:
    """Groups that were widened for a domain which then refused: back to what they had, or to what
    the domain still holds where that is more. The inner one first (F49)."""
    undone = [
        SetGroup(change.container, _kept(change.before, facts, overhead_bytes), change.after)
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


def _vcpu_steps(facts: VmFacts, count: int) -> list[VmStep]:
    steps: list[VmStep] = []
    online, plugged = facts.online_vcpus, facts.plugged_vcpus
    if plugged > count and facts.unplugs_vcpus:
        steps.append(ChangeVcpus(VcpuAction.UNPLUG, count))
    usable = min(count, plugged)
    if online is not None and (online < usable or (online > count and not facts.unplugs_vcpus)):
        steps.append(ChangeVcpus(VcpuAction.ONLINE, usable))
    if plugged < count:
        steps.append(ChangeVcpus(VcpuAction.PLUG, count))
    if steps or online != count:
        steps.append(ConfirmVcpus(count))
    if any(isinstance(step, ChangeVcpus) for step in steps):
        steps.insert(0, MarkSafe("vcpus", quota_us=count * CPU_PERIOD_US))
    if facts.persistent_vcpus != count:
        steps.append(ChangeVcpus(VcpuAction.PERSIST, count))
    return steps


def _pin_steps(facts: VmFacts, target: VmTarget) -> list[VmStep]:
    if not target.cpus:
        return []
    kept = target.vcpus if facts.unplugs_vcpus else facts.plugged_vcpus
    pins = plan_pins(target.cpus, max(kept, target.vcpus), alone=target.alone)
    return [] if facts.pins == facts.persistent_pins == pins else [SetPins(pins)]


def _memory_steps(
    facts: VmFacts, wanted_bytes: int, most_bytes: int, overhead_bytes: int
) -> list[VmStep]:
    steps: list[VmStep] = []
    asked_bytes = _asked_bytes(facts, wanted_bytes, most_bytes)
    asks = facts.requested_bytes != asked_bytes
    if asks:
        steps.append(ChangeMemory(MemoryAction.REQUEST, asked_bytes))
    base = _base(facts)
    is_under_way = facts.noted_bytes is not None
    if steps or facts.plugged_bytes != wanted_bytes or (is_under_way and not is_seen(facts, base)):
        steps.append(ConfirmMemory(wanted_bytes, asked_bytes, facts.plugged_bytes, base))
    if facts.persistent_bytes != wanted_bytes:
        steps.append(ChangeMemory(MemoryAction.PERSIST, wanted_bytes))
    if steps and facts.noted_bytes != wanted_bytes:
        steps.insert(0, SetNote(wanted_bytes, base))
    if asks:
        steps.insert(0, MarkSafe("memory", limit_bytes=asked_bytes + overhead_bytes))
    if steps or facts.noted_bytes is not None:
        steps.append(SetNote(None))
    return steps


def is_seen(facts: VmFacts, base: MemoryBase | None) -> bool:
    """The guest's own total has moved as far as what is plugged, but for its books."""
    unseen = unseen_bytes(facts, base)
    return unseen is not None and unseen == 0


def unseen_bytes(facts: VmFacts, base: MemoryBase | None) -> int | None:
    """By how much the guest's own total is behind what is plugged, beyond what its kernel may keep;
    None where it does not say. Memory that is taken away went through the guest's own hands, and
    what it kept offline goes first: its total may then fall by less, never stay above."""
    if facts.seen_bytes is None:
        return None
    if base is None:
        kept = max(_KERNEL_BYTES, facts.boot_bytes // _KERNEL_SHARE)
        return max(0, facts.plugged_bytes - facts.seen_bytes - kept)
    moved = facts.plugged_bytes - base.plugged_bytes
    slack = abs(moved) // _BOOKS_SHARE
    if facts.boot_id != base.boot_id:
        slack += _OTHER_BOOT_BYTES
    behind = base.seen_bytes + moved - facts.seen_bytes
    return max(0, behind - slack)


def _base(facts: VmFacts) -> MemoryBase | None:
    """Of memory that moves while it is read, what the guest sees and what it holds do not match."""
    if facts.noted_bytes is not None:
        return facts.noted_base
    if facts.seen_bytes is None or facts.requested_bytes != facts.plugged_bytes:
        return None
    if unseen_bytes(facts, None):
        return None  # part of it is offline
    return MemoryBase(facts.plugged_bytes, facts.seen_bytes, facts.boot_id)


def _asked_bytes(facts: VmFacts, wanted_bytes: int, most_bytes: int) -> int:
    """What the guest may be asked for now; more than wanted only while a shrink is not safe."""
    if wanted_bytes >= facts.plugged_bytes:
        return wanted_bytes
    if facts.available_bytes is None:
        # It cannot be asked what it needs: nothing is taken from it that was not asked before.
        return max(wanted_bytes, min(facts.requested_bytes, facts.plugged_bytes))
    most_bytes = max(most_bytes, facts.plugged_bytes)
    return max(wanted_bytes, min(smallest_safe_bytes(facts, wanted_bytes), most_bytes))


def _covered_bytes(groups: PodObservation, overhead_bytes: int) -> int:
    """The largest size that the groups hold as they are; 0 where they have no limit, which is
    nothing to rely on."""
    limits = (groups.pod.memory_limit_bytes, groups.containers[VM_NAME].memory_limit_bytes)
    covered = min(limit or 0 for limit in limits) - overhead_bytes
    return max(0, covered // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES)


def _kept(before: SizeChange, facts: VmFacts, overhead_bytes: int) -> SizeChange:
    match before:
        case SetCpu(weight=weight, quota_us=quota_us):
            online = facts.plugged_vcpus if facts.online_vcpus is None else facts.online_vcpus
            return SetCpu(weight, _larger(quota_us, online * CPU_PERIOD_US))
        case SetMemory(limit_bytes=limit_bytes):
            held_bytes = max(facts.requested_bytes, facts.plugged_bytes)
            return SetMemory(_larger(limit_bytes, held_bytes + overhead_bytes))


def _larger(limit: int | None, needed: int) -> int | None:
    return None if limit is None else max(limit, needed)
