"""What the node agent asks of virtual machines, beyond what every runtime offers.

To the agent a VM is one container of its pod (``VM_NAME``): it is started, stopped, found again
and grouped through runtime.interface. What only a VM has stands here: its size has several
truths (what is plugged, what the guest sees, what a restart would give), and each is changed and
read by itself. A driver makes no choices: agent/vm decides, and names the device that it means in
each change (api/vm_changes.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from livesize.api.vm_changes import (
    DeviceKind,
    VmBalloon,
    VmChange,
    VmDevice,
    VmNote,
    VmTune,
    device_named,
    plugged_bytes,
    total_bytes,
)
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import MEBIBYTE, MEMORY_BLOCK_BYTES, CellSize, Technology, VmTopology
from livesize.runtime.interface import Runtime, RuntimeCallError

DIMM_STEP_BYTES = 128 * MEBIBYTE
"""What Linux on x86 can add at once: libvirt and QEMU take any size, and the guest ignores it."""


class Accelerator(enum.StrEnum):
    KVM = "kvm"
    TCG = "tcg"


class GuestView(msgspec.Struct, frozen=True):
    """What the guest itself says. None in a view: it was not heard yet, or did not answer when
    it was asked last."""

    boot_id: str
    uptime_seconds: float
    vcpus_online: int
    memory_seen_bytes: int  # MemTotal
    memory_available_bytes: int
    agent: bool  # qemu-guest-agent answers
    memory_by_node: tuple[int, ...] = ()  # MemTotal of each NUMA node by its number, where it says


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
    devices: tuple[VmDevice, ...]
    persistent_devices: tuple[VmDevice, ...]
    guest: GuestView | None
    note: VmNote
    read_at: float  # seconds since the epoch
    pins: VmPins = UNPINNED  # of the vCPUs that are plugged in, also in the persistent definition
    persistent_pins: VmPins = UNPINNED
    keeps_memory: bool = False  # it went online where the guest's kernel may hold it for good
    dropped: str = ""  # why the guest's newest word was not believed
    technology: Technology = Technology.VIRTIO_MEM  # the one it was started with
    cells: tuple[CellSize, ...] = ()  # by id, with what each boots with; empty: one
    balloon: VmBalloon | None = None
    persistent_balloon: VmBalloon | None = None
    topology: VmTopology | None = None
    tune: VmTune = VmTune()
    persistent_tune: VmTune = VmTune()
    created_vcpus: int = 0  # since it was started, those that are gone included; 0: not known

    @property
    def requested_memory_bytes(self) -> int:
        return total_bytes(self.boot_memory_bytes, self.devices, self.balloon)

    @property
    def plugged_memory_bytes(self) -> int:
        return plugged_bytes(self.boot_memory_bytes, self.devices, self.balloon)

    @property
    def persistent_memory_bytes(self) -> int:
        return total_bytes(self.boot_memory_bytes, self.persistent_devices, self.persistent_balloon)


def check_requested(devices: Iterable[VmDevice], alias: str, requested_bytes: int) -> VmDevice:
    """The device of that name, which can hold that much."""
    device = require_device(devices, alias)
    fits = device.kind is DeviceKind.VIRTIO_MEM and 0 <= requested_bytes <= device.size_bytes
    if not fits or requested_bytes % MEMORY_BLOCK_BYTES:
        raise RuntimeCallError(
            f"memory device {alias} ({device.kind}) can be asked for between 0 and"
            f" {device.size_bytes} bytes in steps of 2 MiB, not {requested_bytes}"
        )
    return device


def require_device(devices: Iterable[VmDevice], alias: str) -> VmDevice:
    device = device_named(devices, alias)
    if device is None:
        raise RuntimeCallError(f"the VM has no memory device {alias}")
    return device


def check_new(devices: Iterable[VmDevice], alias: str, size_bytes: int) -> None:
    """A DIMM can be plugged in by that name. A guest ignores the end of one whose size is not whole
    for it, or the whole of it."""
    if device_named(devices, alias) is not None:
        raise RuntimeCallError(f"the VM has a memory device {alias} already")
    if size_bytes <= 0 or size_bytes % DIMM_STEP_BYTES:
        raise RuntimeCallError(
            f"memory device {alias} can have a multiple of 128 MiB, not {size_bytes} bytes"
        )


def check_balloon(boot_bytes: int, balloon_bytes: int | None, memory_bytes: int) -> None:
    """There is one, and it can leave so much."""
    if balloon_bytes is None:
        raise RuntimeCallError("the VM has no balloon")
    if not 0 < memory_bytes <= boot_bytes or memory_bytes % MEMORY_BLOCK_BYTES:
        raise RuntimeCallError(
            f"the balloon can leave the guest between 2 MiB and {boot_bytes} bytes in steps of"
            f" 2 MiB, not {memory_bytes}"
        )


def check_tune(tune: VmTune) -> None:
    """As the kernel takes it."""
    bounds = (
        ("shares", tune.shares, 2, 262_144),
        ("quota_us", tune.quota_us, 1_000, 2**44),
        ("period_us", tune.period_us, 1_000, 1_000_000),
    )
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise RuntimeCallError(f"CPU time: {name} is between {least} and {most}, not {value}")


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
