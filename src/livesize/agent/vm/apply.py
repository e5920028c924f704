"""Carries out a plan for a virtual machine; makes no choices.

Each planned change becomes one step that does and then reads back; where the guest has to follow,
a step of its own waits until the guest itself says so. A domain that refuses what its groups were
widened for gets them narrowed again, and only then (F49).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from livesize.agent.cpus.plan import Bind, BindingStep, NarrowPool
from livesize.agent.resize.apply import group_step
from livesize.agent.resize.plan import SetGroup, shrinks
from livesize.agent.shape import Progress, ProgressObserver
from livesize.agent.vm.memory.facts import is_seen, unseen_bytes
from livesize.agent.vm.messages import (
    cells_short,
    memory_lacks,
    memory_progress,
    memory_refused,
    memory_shortfall,
    pending_devices,
    refused_devices,
    vcpu_lacks,
    vcpu_progress,
    vcpu_shortfall,
)
from livesize.agent.vm.plan import (
    ConfirmMemory,
    ConfirmVcpus,
    HoldMemory,
    MarkSafe,
    RefuseMemory,
    RefuseVcpus,
    VmPlan,
    VmStep,
    VmTarget,
    plan_roll_back,
)
from livesize.agent.vm.sizes import memory_facts, vm_facts
from livesize.api.group_changes import SetCpu
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import (
    Definition,
    DeviceChange,
    OnlineMemory,
    OnlineVcpus,
    PersistVcpus,
    PinVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    Unplug,
    UnplugDevice,
    UnplugVcpus,
    VcpuChange,
    VmDevice,
    WriteNote,
    device_named,
)
from livesize.machinery.steps import Step, StepFailedError, StepWaitsError
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import ContainerGroup, PodGroup, RuntimeCallError
from livesize.runtime.vm import GuestSilentError, VmRuntime, VmView

log = get_logger("agent.vm")

LAST_SECONDS = 0.5

DomainChange: TypeAlias = VcpuChange | DeviceChange | WriteNote


def _nothing() -> None:
    """The default: no caller counts."""


@dataclass(frozen=True)
class VmStepContext:
    """What the steps of one attempt share. ``failed`` hears of which resource, ``marked`` of which
    resource it is safe to change."""

    runtime: VmRuntime
    uid: str
    target: VmTarget
    guest_seconds: float
    look_seconds: float  # so often a waiting step asks whether it has a point, and says how far
    observer: ProgressObserver
    failed: Callable[[str], None]
    marked: Callable[[str], None]
    bind: Callable[[BindingStep], Step]  # of its group to CPUs
    online_requested: Callable[[], None] = _nothing  # the guest was asked to use what it has


def vm_steps(context: VmStepContext, plan: VmPlan) -> list[Step]:
    """The plan as steps for machinery.steps."""
    grown = [step for step in plan.steps if isinstance(step, SetGroup) and not shrinks(step)]
    return [_step(context, planned, grown) for planned in plan.steps]


def unread_step(failure: RuntimeCallError) -> Step:
    """There is no plan, because the VM could not be read."""

    async def fail() -> None:
        raise failure

    return Step("vm:read", fail)


def _step(context: VmStepContext, planned: VmStep, grown: list[SetGroup]) -> Step:
    match planned:
        case SetGroup():
            return group_step(context.runtime, context.uid, planned)
        case Bind() | NarrowPool():
            return context.bind(planned)
        case MarkSafe():
            return Step(planned.name, lambda: _mark(context, planned))
        case OnlineMemory():
            return Step(planned.name, lambda: _bring_online(context))
        case ConfirmVcpus() | ConfirmMemory() | HoldMemory() | RefuseMemory() | RefuseVcpus():
            return _looking_step(context, planned)
        case _:
            return _domain_step(context, planned, grown)


def _looking_step(
    context: VmStepContext,
    planned: ConfirmVcpus | ConfirmMemory | HoldMemory | RefuseMemory | RefuseVcpus,
) -> Step:
    async def look() -> None:
        match planned:
            case ConfirmVcpus():
                await _vcpus(context, planned)
            case ConfirmMemory():
                await _memory(context, planned)
            case HoldMemory(why=why):
                raise StepWaitsError(why)
            case RefuseMemory(refusal=refusal):
                raise StepFailedError(memory_refused(refusal))
            case RefuseVcpus(why=why):
                raise StepFailedError(why)

    resource = "vcpus" if isinstance(planned, ConfirmVcpus | RefuseVcpus) else "memory"
    return Step(planned.name, _reporting_failure(context, resource, look))


def _domain_step(context: VmStepContext, planned: DomainChange, grown: list[SetGroup]) -> Step:
    """``grown``: the groups that were widened in this plan."""
    name, is_vcpus = planned.name, isinstance(planned, VcpuChange)
    widened = [] if isinstance(planned, PinVcpus) else grown
    widened = [one for one in widened if _is_cpu(one) == is_vcpus]

    def holds(view: VmView) -> bool:
        return is_done(planned, view)

    async def do() -> None:
        try:
            await context.runtime.change_vm(context.uid, planned)
        except GuestSilentError:
            raise
        except RuntimeCallError as refusal:
            await _roll_back(context, widened, refusal)
            raise

    async def read_back() -> None:
        view = context.runtime.vm(context.uid)  # as the change itself read it
        if view is None or not holds(view):
            view = await context.runtime.wait_vm(context.uid, holds, context.guest_seconds)
        if not holds(view):
            raise StepFailedError(f"{name} of pod {context.uid} was done, but the domain differs")

    return Step(name, _reporting_failure(context, "vcpus" if is_vcpus else "memory", do), read_back)


def is_done(change: DomainChange, view: VmView) -> bool:
    """The domain says so. Where the guest has to follow, it confirms in a step of its own."""
    match change:
        case WriteNote(note=note):
            return view.note == note
        case SetBalloon(memory_bytes=memory_bytes, definition=definition):
            is_live = definition is Definition.LIVE
            balloon = view.balloon if is_live else view.persistent_balloon
            return balloon is not None and balloon.requested_bytes == memory_bytes
        case SetRequested() | PlugDevice() | UnplugDevice():
            return _device_is_done(change, view)
        case _:
            return _vcpus_are_done(change, view)


def _vcpus_are_done(change: VcpuChange, view: VmView) -> bool:
    match change:
        case PlugVcpus(count=count) | UnplugVcpus(count=count):
            return view.plugged_vcpus == count
        case PersistVcpus(count=count):
            return view.persistent_vcpus == count
        case PinVcpus(pins=pins):
            return view.pins == view.persistent_pins == pins
        case TuneCpu(tune=tune):
            return view.tune == view.persistent_tune == tune
        case OnlineVcpus():
            return True


def _device_is_done(change: SetRequested | PlugDevice | UnplugDevice, view: VmView) -> bool:
    is_live = change.definition is Definition.LIVE
    device = device_named(view.devices if is_live else view.persistent_devices, change.alias)
    match change:
        case SetRequested(requested_bytes=requested_bytes):
            return device is not None and device.requested_bytes == requested_bytes
        case PlugDevice():
            return device is not None
        case UnplugDevice():
            return is_live or device is None


async def _mark(context: VmStepContext, planned: MarkSafe) -> None:
    """Another program may have narrowed a group since: then nothing may be plugged in."""
    for group in (PodGroup(context.uid), ContainerGroup(context.uid, VM_NAME)):
        limits = context.runtime.read_limits(group)
        for needed, found in (
            (planned.quota_us, limits.cpu_quota_us),
            (planned.limit_bytes, limits.memory_limit_bytes),
        ):
            if needed is not None and found is not None and found < needed:
                raise StepFailedError(
                    f"{planned.resource} may not be changed yet: {group} holds {found}, and"
                    f" {needed} is needed"
                )
    context.marked(planned.resource)


async def _bring_online(context: VmStepContext) -> None:
    """Once for each boot of the guest: one that refuses is not asked again and again."""
    try:
        await context.runtime.change_vm(context.uid, OnlineMemory())
    except GuestSilentError:
        raise
    except RuntimeCallError as refusal:
        log.warning("memory stays offline in a guest", pod=context.uid, why=str(refusal))
    context.online_requested()


async def _vcpus(context: VmStepContext, planned: ConfirmVcpus) -> None:
    def confirmed(view: VmView) -> bool:
        return view.guest is not None and view.guest.vcpus_online == planned.count

    def words(view: VmView) -> str:
        return vcpu_progress(view, planned.count)

    view = await _wait(context, confirmed, _Watched(planned.name, _online, words))
    if view.guest is None:
        raise StepWaitsError(vcpu_lacks(view, planned.count))
    if not confirmed(view):
        raise StepFailedError(vcpu_shortfall(view, planned.count))


async def _memory(context: VmStepContext, planned: ConfirmMemory) -> None:
    shrinks_now = planned.requested_bytes < planned.plugged_before_bytes

    def moved(view: VmView) -> bool:
        requested, plugged = view.requested_memory_bytes, view.plugged_memory_bytes
        at_rest = all(one.requested_bytes == one.current_bytes for one in view.devices)
        return at_rest and requested == plugged == planned.requested_bytes

    def confirmed(view: VmView) -> bool:
        return moved(view) and is_seen(memory_facts(view), planned.base)

    def lacks(view: VmView) -> str:
        return memory_lacks(view, unseen_bytes(memory_facts(view), planned.base), online.refusal)

    def words(view: VmView) -> str:
        return lacks(view) if moved(view) else memory_progress(view, planned.wanted_bytes)

    online = _Onlining(context, wanted=lambda view: view.guest is not None and not confirmed(view))
    watched = _Watched(planned.name, _memory_reached, words, None if shrinks_now else online.bring)
    view = await _wait(context, lambda view: confirmed(view) or _is_refused(view, planned), watched)
    if confirmed(view) and _is_rough(view, planned):
        # Its last word may be a moment old: the report says what it says in the end.
        await context.runtime.wait_vm(
            context.uid, lambda now: not _is_rough(now, planned), LAST_SECONDS
        )
    if moved(view) and not confirmed(view):
        raise StepWaitsError(lacks(view))
    _check_leaving(view, planned)
    if planned.is_short:
        raise StepFailedError(cells_short(view))
    ends_here = planned.is_last and planned.requested_bytes != planned.wanted_bytes
    if not confirmed(view) or ends_here:
        raise StepFailedError(memory_shortfall(view, planned.wanted_bytes))


def _leaving(view: VmView, planned: ConfirmMemory, unplug: Unplug) -> list[VmDevice]:
    return [one for one in view.devices if one.alias in planned.leaving and one.unplug is unplug]


def _is_refused(view: VmView, planned: ConfirmMemory) -> bool:
    """The guest has answered for every device, and keeps one."""
    pending = _leaving(view, planned, Unplug.PENDING)
    return not pending and bool(_leaving(view, planned, Unplug.REJECTED))


def _check_leaving(view: VmView, planned: ConfirmMemory) -> None:
    pending, refused = (
        _leaving(view, planned, unplug) for unplug in (Unplug.PENDING, Unplug.REJECTED)
    )
    if pending:
        raise StepWaitsError(pending_devices(view, pending, planned.wanted_bytes))
    if refused:
        raise StepFailedError(refused_devices(view, refused, planned.wanted_bytes))


def _is_rough(view: VmView, planned: ConfirmMemory) -> bool:
    """The guest's own total is not to the byte what it will be."""
    base = planned.base
    if base is None or view.guest is None:
        return False
    moved = view.plugged_memory_bytes - base.plugged_bytes
    return view.guest.memory_seen_bytes != base.seen_bytes + moved


def _memory_reached(view: VmView) -> tuple[int, int]:
    return view.plugged_memory_bytes, 0 if view.guest is None else view.guest.memory_seen_bytes


@dataclass
class _Onlining:
    """Memory that a guest was given and does not use may be offline there: then it is brought
    online, as often as there is some. Never while it gives memory back, which goes offline for
    that. ``refusal``: why that is not possible."""

    context: VmStepContext
    wanted: Callable[[VmView], bool]
    refusal: str = ""

    async def bring(self, view: VmView) -> None:
        if not self.wanted(view) or view.guest is None or not view.guest.agent:
            return
        try:
            await self.context.runtime.change_vm(self.context.uid, OnlineMemory())
        except RuntimeCallError as failure:
            self.refusal = str(failure)


@dataclass(frozen=True)
class _Watched:
    """A step that waits for the guest: what moves meanwhile, how to say where it stands, and what
    to do where it takes longer than a look."""

    step: str
    reached: Callable[[VmView], object]
    words: Callable[[VmView], str]
    on_slow: Callable[[VmView], Awaitable[None]] | None = None


async def _wait(
    context: VmStepContext, holds: Callable[[VmView], bool], watched: _Watched
) -> VmView:
    """Until it holds, as long as there is progress; or until a newer request makes it void.
    The domain's notifications wake it; between them the observer is told how far it is."""
    begun = context.runtime.vm(context.uid)
    first = None if begun is None else watched.reached(begun)
    is_overtaken = context.observer.is_overtaken
    view = await context.runtime.wait_vm(
        context.uid, holds, min(context.look_seconds, context.guest_seconds)
    )
    idle_seconds, reached = 0.0, watched.reached(view)
    while not holds(view) and idle_seconds < context.guest_seconds and not is_overtaken():
        moved = reached != first
        if watched.on_slow is not None:
            await watched.on_slow(view)
        context.observer.report(Progress(watched.step, watched.words(view), moved))
        view = await context.runtime.wait_vm(
            context.uid, lambda view: holds(view) or is_overtaken(), context.look_seconds
        )
        idle_seconds += context.look_seconds
        if watched.reached(view) != reached:
            idle_seconds = 0.0
        reached = watched.reached(view)
    return view


async def _roll_back(
    context: VmStepContext, grown: list[SetGroup], refusal: RuntimeCallError
) -> None:
    if not grown:
        return
    try:
        view = await context.runtime.refresh_vm(context.uid)
        narrowed = plan_roll_back(grown, vm_facts(view), context.target.overhead_bytes)
        for change in narrowed:
            await group_step(context.runtime, context.uid, change).do()
    except RuntimeCallError as failure:
        refusal.add_note(f"the groups stay wide: {failure}")


def _reporting_failure(
    context: VmStepContext, resource: str, do: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        try:
            await do()
        except (RuntimeCallError, StepFailedError):
            context.failed(resource)
            raise

    return run


def _online(view: VmView) -> int | None:
    return None if view.guest is None else view.guest.vcpus_online


def _is_cpu(change: SetGroup) -> bool:
    return isinstance(change.after, SetCpu)
