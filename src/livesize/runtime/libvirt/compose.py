"""Decides what a VM's domain looks like, and which vCPUs a guest is to switch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import Boot, DomainKernel, DomainModel
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_checks import check_sizes, most_memory
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig


def compose_domain(
    identity: DomainIdentity,
    vm: VmConfig,
    boot: Boot,
    console_log: str,
    accelerator: Accelerator,
) -> DomainModel:
    check_sizes(vm)
    return DomainModel(
        name=identity.name,
        uuid=identity.uuid,
        pod_uid=identity.pod_uid,
        accelerator=accelerator,
        max_vcpus=vm.max_vcpus,
        vcpus=vm.vcpus,
        boot_memory_bytes=vm.boot_memory_bytes,
        max_memory_bytes=most_memory(vm),
        boot=_one_vcpu_first(boot) if accelerator is Accelerator.TCG else boot,
        console_log=console_log,
        channels=(AGENT_CHANNEL, CHANNEL),
        devices=vm.devices,
        pins=vm.pins,
        cells=vm.cells if len(vm.cells) > 1 else (),
        balloon_bytes=vm.balloon_bytes,
        topology=vm.topology,
    )


def _one_vcpu_first(boot: Boot) -> Boot:
    """Where QEMU emulates several vCPUs that a kernel starts together, the first now and then (one
    boot in forty) loses its timer and all interrupts of devices, and the guest stands still. Ours
    switches the others on itself when it has booted; a command line of one's own stays as it is."""
    if isinstance(boot, DomainKernel) and boot.command_line == COMMAND_LINE:
        return msgspec.structs.replace(boot, command_line=f"{COMMAND_LINE} maxcpus=1")
    return boot


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
                f"the guest has {len(present)} vCPUs and cannot use {count}; plug them in first"
            )
        return tuple(off[:missing]), ()
    movable = [number for number in sorted(online, reverse=True) if number in offlinable]
    if -missing > len(movable):
        raise RuntimeCallError(
            f"the guest can switch off {len(movable)} of its {len(online)} vCPUs, not {-missing}"
        )
    return (), tuple(sorted(movable[:-missing]))
