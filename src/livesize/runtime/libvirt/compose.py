"""Decides what a VM's domain looks like, and which vCPUs a guest is to switch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.vm_size import MEMORY_BLOCK_BYTES
from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import Boot, DomainKernel, DomainModel
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig


def compose_domain(
    identity: DomainIdentity,
    vm: VmConfig,
    boot: Boot,
    console_log: str,
    accelerator: Accelerator,
) -> DomainModel:
    check_sizes(vm)
    devices_bytes = sum(device.size_bytes for device in vm.devices)
    return DomainModel(
        name=identity.name,
        uuid=identity.uuid,
        pod_uid=identity.pod_uid,
        accelerator=accelerator,
        max_vcpus=vm.max_vcpus,
        vcpus=vm.vcpus,
        boot_memory_bytes=vm.boot_memory_bytes,
        max_memory_bytes=max(vm.max_memory_bytes, vm.boot_memory_bytes + devices_bytes),
        boot=_one_vcpu_first(boot) if accelerator is Accelerator.TCG else boot,
        console_log=console_log,
        channels=(AGENT_CHANNEL, CHANNEL),
        devices=vm.devices,
        pins=vm.pins,
    )


def _one_vcpu_first(boot: Boot) -> Boot:
    """Where QEMU emulates several vCPUs that a kernel starts together, the first now and then (one
    boot in forty) loses its timer and all interrupts of devices, and the guest stands still. Ours
    switches the others on itself when it has booted; a command line of one's own stays as it is."""
    if isinstance(boot, DomainKernel) and boot.command_line == COMMAND_LINE:
        return msgspec.structs.replace(boot, command_line=f"{COMMAND_LINE} maxcpus=1")
    return boot


def check_sizes(vm: VmConfig) -> None:
    """The API has checked this already; a domain must never be made from nonsense."""
    wrong = ""
    if not 1 <= vm.vcpus <= vm.max_vcpus:
        wrong = f"{vm.vcpus} vCPUs of at most {vm.max_vcpus}"
    elif not 0 < vm.boot_memory_bytes <= vm.memory_bytes <= vm.max_memory_bytes:
        wrong = f"{vm.memory_bytes} bytes, between {vm.boot_memory_bytes} and {vm.max_memory_bytes}"
    elif any(
        size % MEMORY_BLOCK_BYTES
        for size in (vm.boot_memory_bytes, vm.memory_bytes, vm.max_memory_bytes)
    ):
        wrong = "memory that is not a multiple of 2 MiB"
    elif bool(vm.kernel) == bool(vm.disk):
        wrong = "a kernel and a disk to boot from" if vm.kernel else "nothing to boot from"
    if wrong:
        raise RuntimeCallError(f"a VM cannot be made with {wrong}")


def plan_switch(
    online: Sequence[int], offlinable: Sequence[int], present: Sequence[int], count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which vCPUs to switch on and which to switch off, so that ``count`` are on.

    The lowest that are off come on first, the highest that can be go off first.
    """
    off = [number for number in sorted(present) if number not in online]
    missing = count - len(online)
    if missing >= 0:
        if missing > len(off):
            raise RuntimeCallError(
                f"the guest's kernel knows {len(present)} vCPUs and cannot use {count}: those that"
                " were plugged in since its boot it has not taken, as newer kernels do not where"
                " QEMU emulates them; it has them after a reboot of the guest"
            )
        return tuple(off[:missing]), ()
    movable = [number for number in sorted(online, reverse=True) if number in offlinable]
    if -missing > len(movable):
        raise RuntimeCallError(
            f"the guest can switch off {len(movable)} of its {len(online)} vCPUs, not {-missing}"
        )
    return (), tuple(sorted(movable[:-missing]))
