"""virtio-mem: one device that the guest fills and empties in blocks of 2 MiB. Pure.

It takes the newest target at once, also in the middle of an earlier one (decisions 35), and the
guest gives back what it can: so there is never anything to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable

from livesize.agent.vm.memory.facts import MemoryFacts, requestable_bytes
from livesize.agent.vm.memory.interface import (
    MemoryDecision,
    MemoryPlan,
    MemoryRefusal,
    MemoryTarget,
)
from livesize.api.vm_changes import Definition, DeviceKind, SetRequested, VmDevice
from livesize.api.vm_size import MEBIBYTE, MEMORY_BLOCK_BYTES, VmSize

ALIAS = "ua-memory0"
# What a guest adds and removes at once; the end of a device that is not whole would be lost.
_SECTION_BYTES = 128 * MEBIBYTE


class VirtioMem:
    name = "virtio-mem"

    def initial_devices(self, size: VmSize) -> tuple[VmDevice, ...]:
        """One, with room for the maximum; none where the VM boots with all it can ever have."""
        room_bytes = size.max_memory_bytes - size.boot_memory_bytes
        size_bytes = -(-room_bytes // _SECTION_BYTES) * _SECTION_BYTES
        extra_bytes = size.memory_bytes - size.boot_memory_bytes
        device = VmDevice(ALIAS, DeviceKind.VIRTIO_MEM, 0, size_bytes, extra_bytes)
        return (device,) if size_bytes else ()

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision:
        wanted_bytes, device = target.wanted_bytes, _device(facts.devices)
        largest_bytes = facts.boot_bytes + (0 if device is None else device.size_bytes)
        refusal = _refusal(wanted_bytes, facts.boot_bytes, largest_bytes)
        if refusal is not None:
            return refusal
        safe_bytes = requestable_bytes(facts, wanted_bytes, target.most_bytes, MEMORY_BLOCK_BYTES)
        requested_bytes = min(safe_bytes, largest_bytes)
        return MemoryPlan(
            requested_bytes,
            live=_changes(device, requested_bytes - facts.boot_bytes, Definition.LIVE),
            persistent=_changes(
                _device(facts.persistent_devices),
                wanted_bytes - facts.boot_bytes,
                Definition.PERSISTENT,
            ),
        )


def _device(devices: Iterable[VmDevice]) -> VmDevice | None:
    return next((one for one in devices if one.kind is DeviceKind.VIRTIO_MEM), None)


def _changes(
    device: VmDevice | None, requested_bytes: int, definition: Definition
) -> tuple[SetRequested, ...]:
    if device is None or device.requested_bytes == requested_bytes:
        return ()
    return (SetRequested(device.alias, requested_bytes, definition),)


def _refusal(wanted_bytes: int, least_bytes: int, most_bytes: int) -> MemoryRefusal | None:
    if least_bytes <= wanted_bytes <= most_bytes and wanted_bytes % MEMORY_BLOCK_BYTES == 0:
        return None
    below = wanted_bytes // MEMORY_BLOCK_BYTES * MEMORY_BLOCK_BYTES
    around = (below, below + MEMORY_BLOCK_BYTES)
    nearest = sorted({min(max(one, least_bytes), most_bytes) for one in around})
    return MemoryRefusal(
        f"the VM can have between {least_bytes} and {most_bytes} bytes of memory in steps of 2 MiB,"
        f" not {wanted_bytes}",
        tuple(nearest),
    )
