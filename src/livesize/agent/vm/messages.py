"""What is said of a guest that takes its time, or that cannot do what it was asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from livesize.agent.vm.memory.interface import MemoryRefusal
from livesize.api.quantity import format_memory
from livesize.api.vm_changes import VmDevice
from livesize.runtime.vm import VmView

NOT_HEARD = "the guest has not answered yet; its size is changed when it does"


def vcpu_progress(view: VmView, count: int) -> str:
    if view.guest is None:
        return vcpu_lacks(view, count)
    left = abs(view.guest.vcpus_online - count)
    return f"cpu: {view.guest.vcpus_online} CPUs of {count}, {left} to go"


def vcpu_shortfall(view: VmView, count: int) -> str:
    assert view.guest is not None
    return (
        f"cpu: the guest uses {view.guest.vcpus_online} CPUs, not {count};"
        f" {view.plugged_vcpus} are plugged in"
    )


def vcpu_lacks(view: VmView, count: int) -> str:
    """Of a guest that does not say whether it follows."""
    return f"cpu: {view.plugged_vcpus} CPUs are plugged in; {_unheard(view, f'{count} CPUs')}"


def memory_lacks(view: VmView, unseen_bytes: int | None, refusal: str) -> str:
    """Of a guest that has the memory, and does not use it or does not say so."""
    plugged = f"memory: {format_memory(view.plugged_memory_bytes)} are plugged in"
    if view.guest is None or unseen_bytes is None:
        return f"{plugged}; {_unheard(view, 'them')}"
    offline = f"{plugged}, of which the guest does not use {format_memory(unseen_bytes)}"
    if refusal:
        return f"{offline}: {refusal}"
    if not view.guest.agent:
        return (
            f"{offline}: they are offline in it, and it has no qemu-guest-agent that could bring"
            " them online; install it in the guest, or boot it with"
            " memhp_default_state=online_movable"
        )
    return f"{offline} yet"


def keeps_memory(view: VmView) -> str:
    """Beforehand: what was added may not come back."""
    if not view.keeps_memory:
        return ""
    return (
        "the guest's agent allows no guest-exec, so added memory went online where the guest's"
        " kernel may use it for itself: it may refuse to give it back in a later shrink; allow"
        " guest-exec, or boot the guest with memhp_default_state=online_movable"
    )


def _unheard(view: VmView, what: str) -> str:
    if view.dropped:
        return f"what the guest says cannot be, and is dropped: {view.dropped}"
    return (
        f"the guest does not say whether it uses {what}: it boots, or it has no agent; then install"
        " and start qemu-guest-agent in it"
    )


def memory_progress(view: VmView, wanted_bytes: int) -> str:
    """For instance: memory: 1536Mi of 1Gi, 512Mi to go."""
    plugged = view.plugged_memory_bytes
    left = format_memory(abs(plugged - wanted_bytes))
    return f"memory: {format_memory(plugged)} of {format_memory(wanted_bytes)}, {left} to go"


def memory_refused(refusal: MemoryRefusal) -> str:
    """For instance: …, not 513; the nearest sizes are 512 and 514 bytes."""
    if not refusal.nearest_bytes:
        return f"memory: {refusal.why}"
    nearest = " and ".join(str(size) for size in refusal.nearest_bytes)
    return f"memory: {refusal.why}; the nearest sizes are {nearest} bytes"


def refused_devices(view: VmView, refused: Iterable[VmDevice], wanted_bytes: int) -> str:
    """Of DIMMs that the guest has refused to let go of."""
    return (
        f"{memory_progress(view, wanted_bytes)}: the guest refuses to give back {_named(refused)}:"
        " its kernel holds memory there for itself; boot it with"
        " memhp_default_state=online_movable; it is asked again"
    )


def pending_devices(view: VmView, pending: Iterable[VmDevice], wanted_bytes: int) -> str:
    """Of DIMMs that it was asked for and has not answered."""
    return (
        f"{memory_progress(view, wanted_bytes)}: the guest was asked to give back {_named(pending)}"
        " and has not answered yet: it moves what is there to other memory, or it is suspended or"
        " hangs; it goes on when it lets go"
    )


def _named(devices: Iterable[VmDevice]) -> str:
    return ", ".join(f"{one.alias} ({format_memory(one.size_bytes)})" for one in devices)


def cells_short(view: VmView) -> str:
    """Of a total that may be right already, in the wrong places."""
    if view.guest is None:
        return "memory: a NUMA cell waits for what another is to give: the guest does not answer"
    used = view.plugged_memory_bytes - view.guest.memory_available_bytes
    return (
        "memory: a NUMA cell waits for what another is to give, and the guest cannot spare that"
        f" now: it uses {used} bytes"
    )


def memory_shortfall(view: VmView, wanted_bytes: int) -> str:
    plugged = view.plugged_memory_bytes
    left_bytes = abs(plugged - wanted_bytes)
    left = f"memory: the guest has {plugged} bytes, {left_bytes} bytes to go to {wanted_bytes}"
    if view.guest is None:
        return f"{left}: the guest does not answer"
    if plugged == wanted_bytes:
        return f"memory: {plugged} bytes are plugged in, but the guest does not see the change"
    if plugged < wanted_bytes:
        return f"{left}: the guest takes no more"
    used = plugged - view.guest.memory_available_bytes
    kept = keeps_memory(view)
    return f"{left}: the guest uses {used}{f'; {kept}' if kept else ''}"
