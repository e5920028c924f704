"""How a virtual machine is to be made: the part of a ContainerConfig that only VMs have."""

from __future__ import annotations

import msgspec

from livesize.api.vm_pins import UNPINNED, VmPins


class VmConfig(msgspec.Struct, frozen=True):
    """How to make the domain. Images are names in the images directory; a path only where the
    pod's owner may name host paths. A VM boots from a kernel or from a disk."""

    vcpus: int
    max_vcpus: int
    memory_bytes: int
    max_memory_bytes: int
    boot_memory_bytes: int  # base memory; the rest is a virtio-mem device's
    kernel: str = ""
    initrd: str = ""
    command_line: str = ""
    disk: str = ""
    pins: VmPins = UNPINNED  # for each of ``vcpus``, or none
