"""The memory of a domain in its XML: cells, what may be added, devices, and the balloon.

libvirt counts every device at its full size, and DIMMs, which QEMU's balloon counts as well, into
what the balloon leaves: <currentMemory> is what is left of the boot memory, and all DIMMs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

from livesize.api.vm_changes import DeviceKind, VmDevice
from livesize.api.vm_size import MEMORY_BLOCK_BYTES, CellSize, VmTopology
from livesize.runtime.libvirt.elements import UNITS, add_kib, add_text, required, size_bytes

MEMORY_SLOTS = 16
_STATS_SECONDS = 10

# Sizes.


def add_sizes(
    root: ET.Element,
    boot_bytes: int,
    max_bytes: int | None,
    devices: Sequence[VmDevice],
    balloon_bytes: int | None,
) -> None:
    """``max_bytes`` None: no memory can be added."""
    if max_bytes is not None:
        add_kib(root, "maxMemory", max_bytes, slots=str(MEMORY_SLOTS))
    add_kib(root, "memory", boot_bytes + sum(device.size_bytes for device in devices))
    if balloon_bytes is not None:
        add_kib(root, "currentMemory", balloon_bytes + dimm_bytes(devices))


def boot_memory(root: ET.Element) -> int:
    """What the guest has before any device: the sum of its cells."""
    cells = parse_cells(root)
    return sum(cell.memory_bytes for cell in cells) if cells else _size(root, "memory")


def max_memory(root: ET.Element) -> int:
    maximum = root.find("maxMemory")
    return boot_memory(root) if maximum is None else size_bytes(maximum)


def dimm_bytes(devices: Iterable[VmDevice]) -> int:
    return sum(device.size_bytes for device in devices if device.kind is DeviceKind.DIMM)


# Cells.


def add_cells(
    cpu: ET.Element, cells: Sequence[CellSize], max_vcpus: int, topology: VmTopology | None
) -> None:
    numa = ET.SubElement(cpu, "numa")
    blocks = vcpu_blocks(len(cells), max_vcpus, topology)
    for cell, (first, last) in zip(cells, blocks, strict=True):
        element = ET.SubElement(numa, "cell", id=str(cell.id))
        if last >= first:
            element.set("cpus", f"{first}-{last}" if last > first else str(first))
        element.set("memory", str(cell.memory_bytes // 1024))
        element.set("unit", "KiB")


def vcpu_blocks(
    cells: int, max_vcpus: int, topology: VmTopology | None = None
) -> tuple[tuple[int, int], ...]:
    """First and last vCPU of each cell: equal blocks, of whole sockets where there are enough. What
    does not divide goes to the first cells; a cell may have none."""
    unit = 1 if topology is None else topology.vcpus
    if max_vcpus % unit or max_vcpus // unit < cells:
        unit = 1
    each, more = divmod(max_vcpus // unit, cells)
    ends = [(number * each + min(number, more)) * unit for number in range(cells + 1)]
    return tuple((first, after - 1) for first, after in itertools.pairwise(ends))


def parse_cells(root: ET.Element) -> tuple[CellSize, ...]:
    """By id; none where no memory can be added."""
    return tuple(
        CellSize(
            int(cell.get("id") or number),
            int(cell.get("memory") or 0) * UNITS[cell.get("unit", "KiB")],
        )
        for number, cell in enumerate(root.findall("cpu/numa/cell"))
    )


# Devices.


def render_device(device: VmDevice) -> str:
    """The element of one memory device."""
    devices = ET.Element("devices")
    add_memory_device(devices, device)
    return ET.tostring(devices[0], encoding="unicode")


def add_memory_device(devices: ET.Element, device: VmDevice) -> None:
    memory = ET.SubElement(devices, "memory", model=device.kind.value)
    target = ET.SubElement(memory, "target")
    add_kib(target, "size", device.size_bytes)
    add_text(target, "node", str(device.node))
    if device.kind is DeviceKind.VIRTIO_MEM:
        add_kib(target, "block", MEMORY_BLOCK_BYTES)
        add_kib(target, "requested", device.requested_bytes)
    ET.SubElement(memory, "alias", name=device.alias)


def parse_devices(root: ET.Element) -> tuple[VmDevice, ...]:
    return tuple(_parse_device(element) for element in memory_elements(root))


def memory_elements(root: ET.Element) -> list[ET.Element]:
    kinds = {kind.value for kind in DeviceKind}
    return [one for one in root.findall("devices/memory") if one.get("model") in kinds]


def alias_of(element: ET.Element) -> str:
    alias = element.find("alias")
    return "" if alias is None else str(alias.get("name"))


# The balloon.


def add_balloon(devices: ET.Element, *, has_balloon: bool) -> None:
    """It never deflates by itself: with that, the guest's total would not say what it left."""
    if not has_balloon:
        ET.SubElement(devices, "memballoon", model="none")
        return
    balloon = ET.SubElement(devices, "memballoon", model="virtio", autodeflate="off")
    ET.SubElement(balloon, "stats", period=str(_STATS_SECONDS))


def parse_balloon(root: ET.Element) -> int | None:
    """What a start would leave of the boot memory; None: there is no balloon. Of a domain that
    runs, only QEMU can say what it has."""
    balloon = root.find("devices/memballoon")
    if balloon is None or balloon.get("model") != "virtio":
        return None
    current = root.find("currentMemory")
    if current is None:
        return boot_memory(root)
    left_bytes = size_bytes(current) - dimm_bytes(parse_devices(root))
    return max(0, min(left_bytes, boot_memory(root)))


def _parse_device(element: ET.Element) -> VmDevice:
    """Only a running domain has <current>. A DIMM that is plugged in is there as a whole."""
    whole_bytes = size_bytes(required(element, "target/size"))
    requested, current = element.find("target/requested"), element.find("target/current")
    return VmDevice(
        alias=alias_of(element),
        kind=DeviceKind(str(element.get("model"))),
        node=int(element.findtext("target/node", default="0")),
        size_bytes=whole_bytes,
        requested_bytes=whole_bytes if requested is None else size_bytes(requested),
        current_bytes=0 if current is None else size_bytes(current),
    )


def _size(root: ET.Element, path: str) -> int:
    return size_bytes(required(root, path))
