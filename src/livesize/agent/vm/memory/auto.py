"""auto: below what the VM boots with by the balloon, above it by virtio-mem (decisions 35). Pure.

The balloon is never filled while anything is plugged in: it would take back what was given. So it
is empty before memory is plugged in, and all is unplugged before it is filled; the guest confirms
each. What it has in between lies between the old size and the new one.
"""

from __future__ import annotations

from msgspec.structs import replace

from livesize.agent.vm.memory.balloon import balloon_change
from livesize.agent.vm.memory.facts import MemoryFacts, requestable_bytes
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryStage,
    MemoryTarget,
)
from livesize.agent.vm.memory.virtio_mem import VirtioMem
from livesize.api.vm_changes import Definition, VmDevice
from livesize.api.vm_size import MEMORY_BLOCK_BYTES, VmSize

_PLUGGED = VirtioMem()


class Auto:
    name = "auto"

    def boot_bytes(self, size: VmSize) -> int:
        return size.boot_memory_bytes

    def initial_devices(self, size: VmSize) -> tuple[VmDevice, ...]:
        return _PLUGGED.initial_devices(
            replace(size, memory_bytes=max(size.memory_bytes, size.boot_memory_bytes))
        )

    def initial_balloon(self, size: VmSize) -> int | None:
        """None where the VM may not go below what it boots with."""
        if size.cells or not 0 < size.min_memory_bytes < size.boot_memory_bytes:
            return None
        return min(size.memory_bytes, size.boot_memory_bytes)

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        if facts.balloon is None:
            return _PLUGGED.plan(facts, target)
        if target.wanted_bytes >= facts.boot_bytes:
            return _above(facts, target)
        return _below(facts, target)


def _above(facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
    """The balloon gives back all it has, and then it goes on as if there were none."""
    balloon, boot_bytes = facts.balloon, facts.boot_bytes
    assert balloon is not None
    decision = _PLUGGED.plan(_without_balloon(facts), target)
    if not isinstance(decision, MemoryPlan):
        return decision
    emptied = balloon_change(facts.persistent_balloon, boot_bytes, Definition.PERSISTENT)
    decision = replace(decision, persistent=(*emptied, *decision.persistent))
    if balloon.requested_bytes == balloon.current_bytes == boot_bytes:
        return decision
    emptying = balloon_change(balloon, boot_bytes)
    if not decision.live:
        return replace(decision, live=emptying)
    plugged_bytes = sum(device.requested_bytes for device in facts.devices)
    return replace(decision, first=(MemoryStage(boot_bytes + plugged_bytes, emptying),))


def _below(facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
    wanted_bytes, boot_bytes = target.wanted_bytes, facts.boot_bytes
    refusal = _refusal(wanted_bytes, target.min_bytes, boot_bytes)
    if refusal is not None:
        return refusal
    persistent = (
        *_unplugged(facts, boot_bytes, target).persistent,
        *balloon_change(facts.persistent_balloon, wanted_bytes, Definition.PERSISTENT),
    )
    safe_bytes = requestable_bytes(facts, wanted_bytes, target.most_bytes, MEMORY_BLOCK_BYTES)
    if all(one.requested_bytes == one.current_bytes == 0 for one in facts.devices):
        asked_bytes = min(safe_bytes, boot_bytes)
        return MemoryPlan(asked_bytes, balloon_change(facts.balloon, asked_bytes), persistent)
    unplug = _unplugged(facts, boot_bytes, target)
    if unplug.requested_bytes > boot_bytes:
        return replace(unplug, persistent=persistent)  # as far as the guest can spare
    asked_bytes = min(safe_bytes, boot_bytes)
    fill = balloon_change(facts.balloon, asked_bytes)
    if not fill:
        return MemoryPlan(asked_bytes, unplug.live, persistent)
    return MemoryPlan(
        asked_bytes, fill, persistent, (MemoryStage(unplug.requested_bytes, unplug.live),)
    )


def _unplugged(facts: MemoryFacts, boot_bytes: int, target: MemoryTarget) -> MemoryPlan:
    """Down to what it boots with."""
    decision = _PLUGGED.plan(_without_balloon(facts), replace(target, wanted_bytes=boot_bytes))
    assert isinstance(decision, MemoryPlan), "what it boots with can always be had"
    return decision


def _without_balloon(facts: MemoryFacts) -> MemoryFacts:
    return replace(facts, balloon=None, persistent_balloon=None)


def _refusal(wanted_bytes: int, min_bytes: int, boot_bytes: int) -> MemoryRefusal | None:
    if wanted_bytes >= min_bytes and wanted_bytes % MEMORY_BLOCK_BYTES == 0:
        return None
    below = wanted_bytes // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES
    around = (below, below + MEMORY_BLOCK_BYTES)
    nearest = sorted({min(max(one, min_bytes), boot_bytes) for one in around})
    return MemoryRefusal(
        f"the VM can have no less than {min_bytes} bytes of memory, the least that its balloon"
        f" leaves it, and below {boot_bytes} in steps of 2 MiB, not {wanted_bytes}",
        tuple(nearest),
    )
