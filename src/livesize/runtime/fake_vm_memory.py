"""The memory of a virtual machine in memory: its devices, its balloon, and what its guest does.

The guest takes and gives back what it is asked for when it is told to (``settle``). It gives back
no block of virtio-mem that it uses. DIMMs and the balloon take what they are asked for whether it
is used or not: a guest that is left with too little panics, and starts anew.
"""

from __future__ import annotations

from msgspec.structs import replace

from livesize.api.vm_changes import (
    Definition,
    DeviceChange,
    DeviceKind,
    PlugDevice,
    SetBalloon,
    SetRequested,
    Unplug,
    UnplugDevice,
    VmBalloon,
    VmDevice,
    plugged_bytes,
    total_bytes,
)
from livesize.api.vm_size import MEMORY_BLOCK_BYTES, CellSize
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.vm import check_balloon, check_new, check_requested, require_device
from livesize.runtime.vm_checks import most_memory
from livesize.runtime.vm_config import VmConfig

KERNEL_BYTES = 96 * 1024 * 1024  # of the guest's memory, never seen in its MemTotal
_GUEST_USE_BYTES = 32 * 1024 * 1024
_SLOTS = 16
_LIVE, _PERSISTENT = Definition.LIVE, Definition.PERSISTENT


class FakeMemory:
    def __init__(self, size: VmConfig) -> None:
        self._size = size
        self.boot_bytes = size.boot_memory_bytes
        self._devices = {
            _LIVE: tuple(replace(one, current_bytes=one.requested_bytes) for one in size.devices),
            _PERSISTENT: size.devices,
        }
        left_bytes = size.balloon_bytes
        self.balloon = None if left_bytes is None else VmBalloon(left_bytes, left_bytes)
        self.persistent_balloon = None if left_bytes is None else VmBalloon(left_bytes)
        self.used_bytes = _GUEST_USE_BYTES
        self.offline_bytes = 0  # plugged in, and not used
        self.onlines_by_itself = True
        self.keeps_dimms = False
        self.panics = 0
        self._leaving: set[str] = set()  # DIMMs that the guest was asked to let go of

    @property
    def devices(self) -> tuple[VmDevice, ...]:
        return self._devices[_LIVE]

    @property
    def persistent_devices(self) -> tuple[VmDevice, ...]:
        return self._devices[_PERSISTENT]

    @property
    def requested_bytes(self) -> int:
        return total_bytes(self.boot_bytes, self.devices, self.balloon)

    @property
    def plugged_bytes(self) -> int:
        return plugged_bytes(self.boot_bytes, self.devices, self.balloon)

    @property
    def persistent_bytes(self) -> int:
        return total_bytes(self.boot_bytes, self.persistent_devices, self.persistent_balloon)

    @property
    def seen_by_node(self) -> tuple[int, ...]:
        """MemTotal of each node. The kernel's own is of node 0, what is offline of the first node
        that has a device."""
        cells = self._size.cells or (CellSize(0, self.boot_bytes),)
        seen = {cell.id: cell.memory_bytes for cell in cells}
        for device in self.devices:
            seen[device.node] += device.current_bytes
        first = next((device.node for device in self.devices), 0)
        if self.balloon is not None:
            seen[0] += self.balloon.current_bytes - self.boot_bytes
        seen[0] -= KERNEL_BYTES
        seen[first] -= self.offline_bytes
        return tuple(seen[node] for node in sorted(seen))

    def change(self, change: DeviceChange) -> None:
        match change:
            case SetRequested():
                self._request(change)
            case PlugDevice():
                self._plug(change)
            case UnplugDevice():
                self._unplug(change)
            case SetBalloon():
                self._set_balloon(change)

    def settle(self) -> None:
        """The guest does all that it was asked."""
        before_bytes = self.plugged_bytes
        self._let_go()
        for device in self.devices:
            self._move(device, device.requested_bytes - device.current_bytes)
        if self.balloon is not None:
            self.balloon = replace(self.balloon, current_bytes=self.balloon.requested_bytes)
        self._after_move(self.plugged_bytes - before_bytes)

    def step(self, step_bytes: int) -> None:
        """It takes or gives back so much of what it was asked for, and no more."""
        for device in self.devices:
            left_bytes = device.requested_bytes - device.current_bytes
            self._move(device, max(-step_bytes, min(step_bytes, left_bytes)))
        if self.balloon is not None:
            current_bytes = self.balloon.current_bytes
            left_bytes = self.balloon.requested_bytes - current_bytes
            moved_bytes = max(-step_bytes, min(step_bytes, left_bytes))
            self.balloon = replace(self.balloon, current_bytes=current_bytes + moved_bytes)

    def reboot(self) -> None:
        """A balloon is filled anew by the driver of the guest that boots."""
        if not self.onlines_by_itself:
            self.offline_bytes = sum(device.current_bytes for device in self.devices)
        if self.balloon is not None:
            self.balloon = replace(self.balloon, current_bytes=self.boot_bytes)
        self._leaving.clear()
        self.forget_unplugs()

    def forget_unplugs(self) -> None:
        """A driver that is started anew knows of none; the guest goes on with it."""
        self._set(_LIVE, *(replace(one, unplug=Unplug.NONE) for one in self.devices))

    def _let_go(self) -> None:
        leaving = [one for one in self.devices if one.alias in self._leaving]
        others = [one for one in self.devices if one not in leaving]
        rejected = [replace(one, unplug=Unplug.REJECTED) for one in leaving if self.keeps_dimms]
        self._leaving.clear()
        self._set(_LIVE, *others, *rejected)

    def _move(self, device: VmDevice, by_bytes: int) -> None:
        if by_bytes < 0:
            held_bytes = KERNEL_BYTES + self.used_bytes
            least_bytes = -(-held_bytes // MEMORY_BLOCK_BYTES) * MEMORY_BLOCK_BYTES
            by_bytes = max(by_bytes, min(0, least_bytes - self.plugged_bytes))
        moved = replace(device, current_bytes=device.current_bytes + by_bytes)
        self._set(_LIVE, *(moved if one == device else one for one in self.devices))

    def _after_move(self, moved_bytes: int) -> None:
        if moved_bytes < 0 or not self.onlines_by_itself:
            # What is offline goes first.
            self.offline_bytes = max(0, self.offline_bytes + moved_bytes)
        if moved_bytes < 0 and self.plugged_bytes < KERNEL_BYTES + self.used_bytes:
            self.panics += 1
            self.used_bytes = _GUEST_USE_BYTES

    def _request(self, change: SetRequested) -> None:
        devices = self._devices[change.definition]
        device = check_requested(devices, change.alias, change.requested_bytes)
        changed = replace(device, requested_bytes=change.requested_bytes)
        self._set(change.definition, *(changed if one == device else one for one in devices))

    def _plug(self, change: PlugDevice) -> None:
        devices, size_bytes = self._devices[change.definition], change.size_bytes
        check_new(devices, change.alias, size_bytes)
        most_bytes = most_memory(self._size) - self.boot_bytes
        if sum(one.size_bytes for one in devices) + size_bytes > most_bytes:
            raise RuntimeCallError(f"{change} does not fit below the maximum of the VM")
        if sum(one.kind is DeviceKind.DIMM for one in devices) >= _SLOTS:
            raise RuntimeCallError("no free memory device slot is available")
        if change.node and change.node not in {cell.id for cell in self._size.cells}:
            raise RuntimeCallError(f"the VM has no NUMA cell {change.node}")
        current_bytes = size_bytes if change.definition is _LIVE else 0
        device = VmDevice(
            change.alias, DeviceKind.DIMM, change.node, size_bytes, size_bytes, current_bytes
        )
        self._set(change.definition, *devices, device)
        if change.definition is _LIVE and not self.onlines_by_itself:
            self.offline_bytes += size_bytes

    def _unplug(self, change: UnplugDevice) -> None:
        """The guest lets go of it as soon as it does anything."""
        devices = self._devices[change.definition]
        device = require_device(devices, change.alias)
        if device.kind is not DeviceKind.DIMM:
            raise RuntimeCallError(f"memory device {change.alias} is no DIMM")
        others = [one for one in devices if one != device]
        if change.definition is _LIVE:
            self._leaving.add(change.alias)
            asked = replace(device, unplug=Unplug.PENDING)
            others = [asked if one == device else one for one in devices]
        self._set(change.definition, *others)

    def _set_balloon(self, change: SetBalloon) -> None:
        left_bytes = None if self.balloon is None else self.balloon.current_bytes
        check_balloon(self.boot_bytes, left_bytes, change.memory_bytes)
        assert self.balloon is not None
        if change.definition is _LIVE:
            self.balloon = replace(self.balloon, requested_bytes=change.memory_bytes)
        else:
            self.persistent_balloon = VmBalloon(change.memory_bytes)

    def _set(self, definition: Definition, *devices: VmDevice) -> None:
        """DIMMs stand after the other devices, in the order of their names."""

        def place(device: VmDevice) -> tuple[bool, int, str]:
            return device.kind is DeviceKind.DIMM, len(device.alias), device.alias

        self._devices[definition] = tuple(sorted(devices, key=place))
