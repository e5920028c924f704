"""What the node agent asks of virtual machines, beyond what every runtime offers.

To the agent a VM is one container of its pod (``VM_NAME``): it is started, stopped, found again
and grouped through runtime.interface. What only a VM has stands here: its size has several
truths (what is plugged, what the guest sees, what a restart would give), and each is changed and
read by itself. A driver makes no choices; agent/vm/plan.py does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import MemoryBase
from livesize.runtime.interface import Runtime, RuntimeCallError


class Accelerator(enum.StrEnum):
    KVM = "kvm"
    TCG = "tcg"


class VmDevice(msgspec.Struct, frozen=True):
    """A memory device of the running domain."""

    alias: str
    kind: str  # virtio-mem
    node: int
    size_bytes: int
    requested_bytes: int
    current_bytes: int


class GuestView(msgspec.Struct, frozen=True):
    """What the guest itself says. None in a view: it was not heard yet, or did not answer when
    it was asked last."""

    boot_id: str
    uptime_seconds: float
    vcpus_online: int
    memory_seen_bytes: int  # MemTotal
    memory_available_bytes: int
    agent: bool  # qemu-guest-agent answers


class VmNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Kept with the domain for as long as it runs: a memory change under way survives a restart of
    whoever asked for it, and of libvirt (F46)."""

    memory_bytes_being_updated: int | None = None
    base: MemoryBase | None = None  # from before the change


class VmView(msgspec.Struct, frozen=True):
    """The domain as it was read last. ``persistent``: what a restart of the VM would give."""

    pod_uid: str
    running: bool
    accelerator: Accelerator
    max_vcpus: int
    plugged_vcpus: int
    persistent_vcpus: int
    boot_memory_bytes: int
    max_memory_bytes: int
    requested_memory_bytes: int  # base + what the devices were asked for
    plugged_memory_bytes: int  # base + what the devices hold
    persistent_memory_bytes: int
    devices: tuple[VmDevice, ...]
    guest: GuestView | None
    note: VmNote
    read_at: float  # seconds since the epoch
    pins: VmPins = UNPINNED  # of the vCPUs that are plugged in, also in the persistent definition
    persistent_pins: VmPins = UNPINNED
    keeps_memory: bool = False  # it went online where the guest's kernel may hold it for good
    dropped: str = ""  # why the guest's newest word was not believed


class PlugVcpus(msgspec.Struct, frozen=True, tag=True):
    """Raise the running domain's count; the persistent one is left."""

    count: int


class UnplugVcpus(msgspec.Struct, frozen=True, tag=True):
    """Lower the running domain's count by real unplug (KVM); the persistent one is left."""

    count: int


class OnlineVcpus(msgspec.Struct, frozen=True, tag=True):
    """Have the guest use that many of its vCPUs, up or down, through the guest agent."""

    count: int


class PersistVcpus(msgspec.Struct, frozen=True, tag=True):
    count: int


class RequestMemory(msgspec.Struct, frozen=True, tag=True):
    """Ask for a total; the guest takes or gives back memory in its own time."""

    total_bytes: int


class OnlineMemory(msgspec.Struct, frozen=True, tag=True):
    """Have the guest use what it was given and keeps offline, through the guest agent: where it can
    be taken away again (``online_movable``, which takes guest-exec), or else anywhere, and then
    ``keeps_memory`` says so."""


class PersistMemory(msgspec.Struct, frozen=True, tag=True):
    total_bytes: int


class PinCpus(msgspec.Struct, frozen=True, tag=True):
    """Pin every vCPU that is plugged in, and QEMU's own threads, now and persistently. Threads
    never run on more than the VM's group may."""

    pins: VmPins


class WriteNote(msgspec.Struct, frozen=True, tag=True):
    note: VmNote


VmChange: TypeAlias = (
    PlugVcpus
    | UnplugVcpus
    | OnlineVcpus
    | PersistVcpus
    | RequestMemory
    | OnlineMemory
    | PersistMemory
    | PinCpus
    | WriteNote
)


def check_pins(pins: VmPins, plugged_vcpus: int) -> None:
    """A VM is pinned as a whole, or nothing of it is changed."""
    if len(pins.vcpus) != plugged_vcpus or not pins.emulator or not all(pins.vcpus):
        raise RuntimeCallError(
            f"a VM with {plugged_vcpus} vCPUs plugged in cannot be pinned with {pins}: each of"
            " them needs at least one CPU, and QEMU itself too"
        )


class GuestSilentError(RuntimeCallError):
    """The guest does not answer: still booting, no agent, or hung."""


class VmRuntime(Runtime, Protocol):
    """``start_container`` takes a ContainerConfig with ``vm`` set. Events of the domain and of
    the guest come through ``events`` like everything else."""

    def vm(self, pod_uid: str) -> VmView | None:
        """As read last; None where there is no such VM."""
        ...

    async def refresh_vm(self, pod_uid: str) -> VmView:
        """Read the domain and ask the guest, now. GoneError where there is no such VM."""
        ...

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        """Do it, or raise RuntimeCallError and leave the domain as it was."""
        ...

    async def wait_vm(
        self, pod_uid: str, holds: Callable[[VmView], bool], timeout_seconds: float
    ) -> VmView:
        """Return when ``holds`` does, or with the last view when the time is up. Wakes on
        notifications of the domain and the guest; asks again only where there are none.
        GoneError when the VM ends meanwhile."""
        ...
