"""Balloon: the guest boots with all it may ever have, and the balloon takes what it is not to use.
Pure.

Like virtio-mem it takes the newest target at once. Inside a guest it takes memory whether that is
needed or not: it is never asked to take more than the guest can spare (``requestable_bytes``), and
never below the VM's least. It does not know NUMA cells.
"""

from __future__ import annotations

from livesize.agent.vm.memory.facts import MemoryFacts, requestable_bytes
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryTarget,
)
from livesize.api.vm_changes import Definition, SetBalloon, VmBalloon, VmDevice
from livesize.api.vm_size import MEMORY_BLOCK_BYTES, SMALLEST_BOOT_BYTES, VmSize

_NO_CELLS = "the balloon does not know NUMA cells: a VM with cells needs virtio-mem or dimm"


class Balloon:
    name = "balloon"

    def boot_bytes(self, size: VmSize) -> int:
        return size.max_memory_bytes

    def initial_devices(self, _size: VmSize) -> tuple[VmDevice, ...]:
        return ()

    def initial_balloon(self, size: VmSize) -> int | None:
        return size.memory_bytes

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        refusal = _refusal(facts, target)
        if refusal is not None:
            return refusal
        wanted_bytes = target.wanted_bytes
        safe_bytes = requestable_bytes(facts, wanted_bytes, target.most_bytes, MEMORY_BLOCK_BYTES)
        requested_bytes = min(safe_bytes, facts.boot_bytes)
        return MemoryPlan(
            requested_bytes,
            balloon_change(facts.balloon, requested_bytes),
            balloon_change(facts.persistent_balloon, wanted_bytes, Definition.PERSISTENT),
        )


def balloon_change(
    balloon: VmBalloon | None, memory_bytes: int, definition: Definition = Definition.LIVE
) -> tuple[SetBalloon, ...]:
    """What brings it there; nothing where it was asked for that already."""
    if balloon is None or balloon.requested_bytes == memory_bytes:
        return ()
    return (SetBalloon(memory_bytes, definition),)


def _refusal(facts: MemoryFacts, target: MemoryTarget) -> MemoryRefusal | None:
    if facts.cells or target.cells:
        return MemoryRefusal(_NO_CELLS)
    wanted_bytes, most_bytes = target.wanted_bytes, facts.boot_bytes
    least_bytes = min(target.min_bytes or SMALLEST_BOOT_BYTES, most_bytes)
    if facts.balloon is None:
        least_bytes = most_bytes
    if least_bytes <= wanted_bytes <= most_bytes and wanted_bytes % MEMORY_BLOCK_BYTES == 0:
        return None
    below = wanted_bytes // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES
    around = (below, below + MEMORY_BLOCK_BYTES)
    nearest = sorted({min(max(one, least_bytes), most_bytes) for one in around})
    return MemoryRefusal(
        f"the VM can have between {least_bytes} bytes, the least that its balloon leaves it, and"
        f" {most_bytes} bytes of memory in steps of 2 MiB, not {wanted_bytes}",
        tuple(nearest),
    )
