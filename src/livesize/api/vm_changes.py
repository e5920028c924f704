"""The changes of a virtual machine: the words that plans and drivers share. Pure.

The agent plans these values in an order, a driver carries each of them out on the domain. A change
of memory names the device it means by its alias, so that a driver has nothing to choose. What a
domain has stands in two definitions: the one that runs, and the persistent one, which the next
start gets.

``name`` is what people and crash points call the step that makes the change.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from livesize.api.vm_pins import VmPins
from livesize.api.vm_size import MemoryBase


class Definition(enum.StrEnum):
    LIVE = "live"
    PERSISTENT = "persistent"


class DeviceKind(enum.StrEnum):
    VIRTIO_MEM = "virtio-mem"
    DIMM = "dimm"


class Unplug(enum.StrEnum):
    """Where the unplug of a device stands: the guest was asked and has not answered, or it has
    rejected the last request. A driver that has restarted knows of none."""

    NONE = ""
    PENDING = "pending"
    REJECTED = "rejected"


class VmDevice(msgspec.Struct, frozen=True):
    """A memory device of a domain. The guest holds ``current`` of the ``requested`` part of its
    ``size``; all three are the same for a DIMM. A definition that does not run has no current."""

    alias: str
    kind: DeviceKind
    node: int
    size_bytes: int
    requested_bytes: int
    current_bytes: int = 0
    unplug: Unplug = Unplug.NONE


class VmBalloon(msgspec.Struct, frozen=True):
    """What the balloon leaves of the memory that the guest booted with: what was asked for, and
    what it has. A definition that does not run has no current."""

    requested_bytes: int
    current_bytes: int = 0


class VmTune(msgspec.Struct, frozen=True):
    """The CPU time of the VM as a whole, in the domain's <cputune>. None: not set."""

    shares: int | None = None
    quota_us: int | None = None  # of all vCPUs and QEMU's own threads together
    period_us: int | None = None


class VmNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stands in the domain for as long as it runs: a memory change under way survives a restart of
    the agent, and of libvirt (F46)."""

    memory_bytes_being_updated: int | None = None
    base: MemoryBase | None = None  # from before the change


class PlugVcpus(msgspec.Struct, frozen=True, tag=True):
    """Raise the running domain's count; the persistent one is left."""

    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:plug"


class UnplugVcpus(msgspec.Struct, frozen=True, tag=True):
    """Lower the running domain's count by real unplug (KVM); the persistent one is left."""

    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:unplug"


class OnlineVcpus(msgspec.Struct, frozen=True, tag=True):
    """Have the guest use that many of its vCPUs, up or down, through the guest agent."""

    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:online"


class PersistVcpus(msgspec.Struct, frozen=True, tag=True):
    count: int

    @property
    def name(self) -> str:
        return "vm:vcpus:persist"


class PinVcpus(msgspec.Struct, frozen=True, tag=True):
    """Pin every vCPU that is plugged in, and QEMU's own threads, now and persistently. Threads
    never run on more than the VM's group may."""

    pins: VmPins

    @property
    def name(self) -> str:
        return "vm:vcpus:pin"


class TuneCpu(msgspec.Struct, frozen=True, tag=True):
    """Set <cputune>, now and persistently."""

    tune: VmTune

    @property
    def name(self) -> str:
        return "vm:vcpus:tune"


class SetRequested(msgspec.Struct, frozen=True, tag=True):
    """Ask a virtio-mem device for so much; the guest takes or gives back memory in its own time."""

    alias: str
    requested_bytes: int
    definition: Definition = Definition.LIVE

    @property
    def name(self) -> str:
        return _memory_step("request", self.definition)


class PlugDevice(msgspec.Struct, frozen=True, tag=True):
    """Plug in a DIMM, by a new alias. The guest takes it at once."""

    alias: str
    size_bytes: int
    node: int = 0
    definition: Definition = Definition.LIVE

    @property
    def name(self) -> str:
        return _memory_step("plug", self.definition)


class UnplugDevice(msgspec.Struct, frozen=True, tag=True):
    """Ask the guest to let go of a device; the domain has it until the guest has done so."""

    alias: str
    definition: Definition = Definition.LIVE

    @property
    def name(self) -> str:
        return _memory_step("unplug", self.definition)


class SetBalloon(msgspec.Struct, frozen=True, tag=True):
    """Ask the guest to leave itself so much of the memory that it booted with."""

    memory_bytes: int
    definition: Definition = Definition.LIVE

    @property
    def name(self) -> str:
        return _memory_step("balloon", self.definition)


class OnlineMemory(msgspec.Struct, frozen=True, tag=True):
    """Have the guest use what it was given and keeps offline, through the guest agent: where it can
    be taken away again (``online_movable``, which takes guest-exec), or else anywhere, and then
    ``keeps_memory`` says so."""

    @property
    def name(self) -> str:
        return "vm:memory:online"


class WriteNote(msgspec.Struct, frozen=True, tag=True):
    """Replace the domain's note."""

    note: VmNote

    @property
    def name(self) -> str:
        is_empty = self.note.memory_bytes_being_updated is None
        return "vm:memory:clear" if is_empty else "vm:memory:note"


VcpuChange: TypeAlias = PlugVcpus | UnplugVcpus | OnlineVcpus | PersistVcpus | PinVcpus | TuneCpu
DeviceChange: TypeAlias = SetRequested | PlugDevice | UnplugDevice | SetBalloon
MemoryChange: TypeAlias = DeviceChange | OnlineMemory | WriteNote
VmChange: TypeAlias = VcpuChange | MemoryChange


def device_named(devices: Iterable[VmDevice], alias: str) -> VmDevice | None:
    return next((device for device in devices if device.alias == alias), None)


def total_bytes(
    boot_bytes: int, devices: Iterable[VmDevice], balloon: VmBalloon | None = None
) -> int:
    """The size that a guest was asked to have: what it boots with, or what the balloon leaves of
    that, and its devices."""
    base_bytes = boot_bytes if balloon is None else balloon.requested_bytes
    return base_bytes + sum(device.requested_bytes for device in devices)


def plugged_bytes(
    boot_bytes: int, devices: Iterable[VmDevice], balloon: VmBalloon | None = None
) -> int:
    """The size that the guest has."""
    base_bytes = boot_bytes if balloon is None else balloon.current_bytes
    return base_bytes + sum(device.current_bytes for device in devices)


def _memory_step(verb: str, definition: Definition) -> str:
    return "vm:memory:persist" if definition is Definition.PERSISTENT else f"vm:memory:{verb}"
