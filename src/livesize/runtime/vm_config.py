"""How a virtual machine is to be made: the part of a ContainerConfig that only VMs have."""

from __future__ import annotations

import msgspec

from livesize.api.vm_changes import VmDevice, VmTune
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import CellSize, Technology, VmTopology

# Memory that is added goes online by itself, and where it can be taken away again; a guest that
# panics restarts instead of standing still; one that boots on a busy machine does not take a timer
# that is late, because it is emulated, for one that is missing, and stand still for ever.
COMMAND_LINE = (
    "console=ttyS0 quiet panic=1 no_timer_check cryptomgr.notests"
    " memhp_default_state=online_movable"
)


class VmConfig(msgspec.Struct, frozen=True):
    """How to make the domain. Images are names in the images directory; a path only where the
    pod's owner may name host paths. A VM boots from a kernel or from a disk.

    ``cells``: its NUMA cells by id, each with what it boots with; vCPUs go to them in equal blocks.
    Empty: one cell, where memory can be added at all. ``max_memory_bytes`` is what devices and boot
    memory may come to, whatever each cell has room for. ``balloon_bytes``: what the balloon is to
    leave of the boot memory from the start; None: the VM has no balloon.
    """

    vcpus: int
    max_vcpus: int
    memory_bytes: int
    max_memory_bytes: int
    boot_memory_bytes: int  # the rest is that of devices
    kernel: str = ""
    initrd: str = ""
    command_line: str = COMMAND_LINE  # of the kernel
    disk: str = ""
    pins: VmPins = UNPINNED  # for each of ``vcpus``, or none
    devices: tuple[VmDevice, ...] = ()  # those it starts with
    uid: str = ""  # of the VM, whichever pod runs it; empty: its pod's
    technology: Technology = Technology.VIRTIO_MEM  # how its memory changes as long as it runs
    cells: tuple[CellSize, ...] = ()
    balloon_bytes: int | None = None
    topology: VmTopology | None = None
    tune: VmTune = VmTune()
