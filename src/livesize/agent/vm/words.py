"""What is said of a guest that takes its time, or that cannot do what it was asked. Pure."""

from __future__ import annotations

from livesize.api.quantity import format_memory
from livesize.runtime.vm import VmView

NOT_HEARD = "the guest has not answered yet; its size is changed when it does"


def vcpu_progress(view: VmView, count: int) -> str:
    if view.guest is None:
        return f"cpu: the guest has not answered yet whether it uses {count} CPUs"
    left = abs(view.guest.vcpus_online - count)
    return f"cpu: {view.guest.vcpus_online} CPUs of {count}, {left} to go"


def vcpu_shortfall(view: VmView, count: int) -> str:
    if view.guest is None:
        return f"cpu: the guest does not answer whether it uses {count} CPUs"
    return (
        f"cpu: the guest uses {view.guest.vcpus_online} CPUs, not {count};"
        f" {view.plugged_vcpus} are plugged in"
    )


def memory_progress(view: VmView, wanted_bytes: int) -> str:
    """For instance: memory: 1536Mi of 1Gi, 512Mi to go."""
    plugged = view.plugged_memory_bytes
    if plugged == wanted_bytes:
        return f"memory: {format_memory(plugged)} are plugged in; the guest has yet to see it"
    left = format_memory(abs(plugged - wanted_bytes))
    return f"memory: {format_memory(plugged)} of {format_memory(wanted_bytes)}, {left} to go"


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
    return f"{left}: the guest uses {used}"
