"""Carries out a plan for a virtual machine; makes no choices.

Each planned change becomes one step that does and then reads back; where the guest has to follow,
a step of its own waits until the guest itself says so. A domain that refuses what its groups were
widened for gets them narrowed again, and only then (F49).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from livesize.agent.resize.apply import group_step
from livesize.agent.resize.plan import CpuSetting, SetGroup, shrinks
from livesize.agent.vm.plan import (
    ChangeMemory,
    ChangeVcpus,
    ConfirmMemory,
    ConfirmVcpus,
    MemoryAction,
    SetNote,
    VcpuAction,
    VmPlan,
    VmStep,
    VmTarget,
    plan_roll_back,
)
from livesize.agent.vm.sizes import vm_facts
from livesize.machinery.steps import Step, StepFailedError
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.vm import (
    GuestSilentError,
    OnlineVcpus,
    PersistMemory,
    PersistVcpus,
    PlugVcpus,
    RequestMemory,
    UnplugVcpus,
    VmChange,
    VmNote,
    VmRuntime,
    VmView,
    WriteNote,
)

_LOOK_SECONDS = 0.5  # a waiting step looks this often whether it still has a point


@dataclass(frozen=True)
class VmHands:
    """What the steps of one attempt share. ``failed`` hears of which resource."""

    runtime: VmRuntime
    uid: str
    target: VmTarget
    guest_seconds: float
    is_overtaken: Callable[[], bool]
    failed: Callable[[str], None]


def vm_steps(hands: VmHands, plan: VmPlan) -> list[Step]:
    """The plan as steps for machinery.steps."""
    grown = [step for step in plan.steps if isinstance(step, SetGroup) and not shrinks(step)]
    return [_step(hands, planned, grown) for planned in plan.steps]


def unread_step(failure: RuntimeCallError) -> Step:
    """There is no plan, because the VM could not be read."""

    async def fail() -> None:
        raise failure

    return Step("vm:read", fail)


def _step(hands: VmHands, planned: VmStep, grown: list[SetGroup]) -> Step:
    match planned:
        case SetGroup():
            return group_step(hands.runtime, hands.uid, planned)
        case ChangeVcpus():
            return _vcpu_step(hands, planned, [one for one in grown if _is_cpu(one)])
        case ChangeMemory() | SetNote():
            return _memory_step(hands, planned, [one for one in grown if not _is_cpu(one)])
        case ConfirmVcpus():
            return Step(planned.name, _telling(hands, "vcpus", lambda: _vcpus(hands, planned)))
        case ConfirmMemory():
            return Step(planned.name, _telling(hands, "memory", lambda: _memory(hands, planned)))


def _vcpu_step(hands: VmHands, planned: ChangeVcpus, grown: list[SetGroup]) -> Step:
    change, holds = _vcpu_change(planned)
    return _domain_step(hands, "vcpus", planned.name, change, holds, grown)


def _memory_step(hands: VmHands, planned: ChangeMemory | SetNote, grown: list[SetGroup]) -> Step:
    change, holds = _memory_change(planned)
    return _domain_step(hands, "memory", planned.name, change, holds, grown)


def _domain_step(
    hands: VmHands,
    resource: str,
    name: str,
    change: VmChange,
    holds: Callable[[VmView], bool],
    grown: list[SetGroup],
) -> Step:
    async def do() -> None:
        try:
            await hands.runtime.change_vm(hands.uid, change)
        except GuestSilentError:
            raise
        except RuntimeCallError as refusal:
            await _roll_back(hands, grown, refusal)
            raise

    async def read_back() -> None:
        view = hands.runtime.vm(
            hands.uid
        )  # read again by the change itself; the guest is left alone
        if view is None or not holds(view):
            view = await hands.runtime.wait_vm(hands.uid, holds, hands.guest_seconds)
        if not holds(view):
            raise StepFailedError(f"{name} of pod {hands.uid} was done, but the domain differs")

    return Step(name, _telling(hands, resource, do), read_back)


def _vcpu_change(planned: ChangeVcpus) -> tuple[VmChange, Callable[[VmView], bool]]:
    count = planned.count
    match planned.action:
        case VcpuAction.PLUG:
            return PlugVcpus(count), lambda view: view.plugged_vcpus == count
        case VcpuAction.UNPLUG:
            return UnplugVcpus(count), lambda view: view.plugged_vcpus == count
        case VcpuAction.ONLINE:
            return OnlineVcpus(count), lambda _: True  # the guest confirms in a step of its own
        case VcpuAction.PERSIST:
            return PersistVcpus(count), lambda view: view.persistent_vcpus == count


def _memory_change(planned: ChangeMemory | SetNote) -> tuple[VmChange, Callable[[VmView], bool]]:
    match planned:
        case ChangeMemory(action=MemoryAction.REQUEST, total_bytes=total):
            return RequestMemory(total), lambda view: view.requested_memory_bytes == total
        case ChangeMemory(action=MemoryAction.PERSIST, total_bytes=total):
            return PersistMemory(total), lambda view: view.persistent_memory_bytes == total
        case SetNote(memory_bytes=memory_bytes):
            note = VmNote(memory_bytes)
            return WriteNote(note), lambda view: view.note == note
        case _:
            raise AssertionError(planned)


async def _vcpus(hands: VmHands, planned: ConfirmVcpus) -> None:
    def confirmed(view: VmView) -> bool:
        return view.guest is not None and view.guest.vcpus_online == planned.count

    view = await _wait(hands, confirmed, _online)
    if confirmed(view):
        return
    if view.guest is None:
        raise StepFailedError(
            f"cpu: the guest does not answer whether it uses {planned.count} CPUs"
        )
    raise StepFailedError(
        f"cpu: the guest uses {view.guest.vcpus_online} CPUs, not {planned.count};"
        f" {view.plugged_vcpus} are plugged in"
    )


async def _memory(hands: VmHands, planned: ConfirmMemory) -> None:
    def confirmed(view: VmView) -> bool:
        return view.plugged_memory_bytes == planned.asked_bytes and _sees(view, planned)

    view = await _wait(hands, confirmed, lambda view: view.plugged_memory_bytes)
    if confirmed(view) and planned.asked_bytes == planned.wanted_bytes:
        return
    raise StepFailedError(_memory_words(view, planned))


def _sees(view: VmView, planned: ConfirmMemory) -> bool:
    """The guest's own total has moved as far as what is plugged, give or take one part in 16."""
    before = planned.seen_before_bytes
    if before is None or view.guest is None:
        return True
    moved = view.plugged_memory_bytes - planned.plugged_before_bytes
    return abs(view.guest.memory_seen_bytes - before - moved) <= abs(moved) // 16


def _memory_words(view: VmView, planned: ConfirmMemory) -> str:
    plugged, wanted = view.plugged_memory_bytes, planned.wanted_bytes
    left = f"memory: the guest has {plugged} bytes, {abs(plugged - wanted)} bytes to go to {wanted}"
    if view.guest is None:
        return f"{left}: the guest does not answer"
    if plugged == wanted:
        return f"memory: {plugged} bytes are plugged in, but the guest does not see the change"
    if plugged < wanted:
        return f"{left}: the guest takes no more"
    used = plugged - view.guest.memory_available_bytes
    return f"{left}: the guest uses {used}"


async def _wait(
    hands: VmHands, holds: Callable[[VmView], bool], progress: Callable[[VmView], int | None]
) -> VmView:
    """Until it holds, as long as there is progress; or until a newer request makes it void."""
    view = await hands.runtime.wait_vm(hands.uid, holds, min(_LOOK_SECONDS, hands.guest_seconds))
    idle_seconds, reached = 0.0, progress(view)
    while not holds(view) and idle_seconds < hands.guest_seconds and not hands.is_overtaken():
        view = await hands.runtime.wait_vm(
            hands.uid, lambda view: holds(view) or hands.is_overtaken(), _LOOK_SECONDS
        )
        idle_seconds = idle_seconds + _LOOK_SECONDS if progress(view) == reached else 0.0
        reached = progress(view)
    return view


async def _roll_back(hands: VmHands, grown: list[SetGroup], refusal: RuntimeCallError) -> None:
    if not grown:
        return
    try:
        view = await hands.runtime.refresh_vm(hands.uid)
        narrowed = plan_roll_back(grown, vm_facts(view), hands.target.overhead_bytes)
        for change in narrowed:
            await group_step(hands.runtime, hands.uid, change).do()
    except RuntimeCallError as failure:
        refusal.add_note(f"the groups stay wide: {failure}")


def _telling(
    hands: VmHands, resource: str, do: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    async def told() -> None:
        try:
            await do()
        except (RuntimeCallError, StepFailedError):
            hands.failed(resource)
            raise

    return told


def _online(view: VmView) -> int | None:
    return None if view.guest is None else view.guest.vcpus_online


def _is_cpu(change: SetGroup) -> bool:
    return isinstance(change.after, CpuSetting)
