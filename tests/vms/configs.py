"""The guests of each memory technology: small, so that one is booted and saved in seconds."""

from __future__ import annotations

import msgspec

from livesize.api.vm_changes import DeviceKind, VmDevice
from livesize.api.vm_size import CellSize, Technology, VmTopology
from vms.real import MIB, VM

DIMM = "ua-dimm0"
WITH_DIMMS = msgspec.structs.replace(
    VM, devices=(), max_memory_bytes=1536 * MIB, technology=Technology.DIMM
)
WITH_BALLOON = msgspec.structs.replace(
    VM,
    boot_memory_bytes=768 * MIB,
    memory_bytes=768 * MIB,
    max_memory_bytes=1536 * MIB,  # with room for DIMMs
    devices=(VmDevice("ua-memory0", DeviceKind.VIRTIO_MEM, 0, 512 * MIB, 0),),
    technology=Technology.AUTO,
    balloon_bytes=768 * MIB,
)
CELLS = (CellSize(0, 256 * MIB), CellSize(1, 256 * MIB))
WITH_CELLS = msgspec.structs.replace(
    VM,
    vcpus=2,
    max_memory_bytes=1536 * MIB,
    devices=tuple(
        VmDevice(f"ua-memory{cell.id}", DeviceKind.VIRTIO_MEM, cell.id, 512 * MIB, 0)
        for cell in CELLS
    ),
    cells=CELLS,
    topology=VmTopology(cores=2),
)
