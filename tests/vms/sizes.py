"""Sizes of VMs as tests write them: totals, which become devices as the agent makes them."""

from __future__ import annotations

import msgspec

from livesize.agent.vm.memory.virtio_mem import ALIAS, VirtioMem
from livesize.api.vm_changes import Definition, SetRequested
from livesize.api.vm_size import VmSize
from livesize.runtime.vm_config import VmConfig


def with_devices(vm: VmConfig) -> VmConfig:
    """With the memory devices that the agent gives a VM of this size."""
    size = VmSize(
        vcpus=vm.vcpus,
        memory_bytes=vm.memory_bytes,
        max_vcpus=vm.max_vcpus,
        max_memory_bytes=vm.max_memory_bytes,
        boot_memory_bytes=vm.boot_memory_bytes,
    )
    return msgspec.structs.replace(vm, devices=VirtioMem().initial_devices(size))


def request(total_bytes: int, boot_bytes: int) -> SetRequested:
    """The change that has the guest hold so much."""
    return SetRequested(ALIAS, total_bytes - boot_bytes)


def persist(total_bytes: int, boot_bytes: int) -> SetRequested:
    """The change that gives its next start so much."""
    return SetRequested(ALIAS, total_bytes - boot_bytes, Definition.PERSISTENT)
