"""What libvirt's documents and QEMU say of a VM's size, whatever technology its memory changes by.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

KIB = 1 << 10
MIB = 1 << 20


class Sizes(msgspec.Struct, frozen=True):
    """One size as it stands in every place that has one; memory in bytes."""

    online: int
    persistent: int
    requested: int
    plugged: int
    persistent_memory: int
    note: str
    persistent_note: str
    pod_quota_us: int | None
    vm_quota_us: int | None
    pod_limit: int | None
    vm_limit: int | None


class Device(msgspec.Struct, frozen=True, order=True):
    """A memory device in a definition: what was asked of it."""

    node: int
    alias: str
    kind: str
    mib: int


def devices_in(domain: ET.Element) -> list[Device]:
    return sorted(_device(element) for element in domain.findall("devices/memory"))


def dimms_in(domain: ET.Element) -> list[int]:
    """Their sizes in MiB, the largest first."""
    found = (device.mib for device in devices_in(domain) if device.kind == "dimm")
    return sorted(found, reverse=True)


def boot_bytes(domain: ET.Element) -> int:
    """What the guest boots with: its cells; KiB everywhere in libvirt's answers."""
    cells = domain.findall("cpu/numa/cell")
    if cells:
        return KIB * sum(int(cell.get("memory") or 0) for cell in cells)
    return KIB * _number(domain, "memory")


def has_balloon(domain: ET.Element) -> bool:
    balloon = domain.find("devices/memballoon")
    return balloon is not None and balloon.get("model") == "virtio"


def persistent_bytes(domain: ET.Element) -> int:
    """What the next start gets."""
    asked = MIB * sum(device.mib for device in devices_in(domain))
    if not has_balloon(domain):
        return boot_bytes(domain) + asked
    current = domain.find("currentMemory")
    boot = boot_bytes(domain)
    left = boot if current is None else KIB * int(current.text or 0) - MIB * sum(dimms_in(domain))
    return min(left, boot) + asked


def requested_bytes(domain: ET.Element, base: int) -> int:
    """Of a domain that runs. What its balloon was asked to leave only QEMU knows, who says what it
    does leave (``base``)."""
    return base + MIB * sum(device.mib for device in devices_in(domain))


def base_bytes(domain: ET.Element, balloon: dict[str, Any] | None, devices: list[Any]) -> int:
    """What the guest has beside its devices, from QEMU's own answers: the balloon's count has the
    DIMMs in it."""
    if balloon is None:
        return boot_bytes(domain)
    dimms = [one["data"]["size"] for one in devices if one["type"] == "dimm"]
    return int(balloon["actual"]) - sum(dimms)


def plugged_in(devices: Iterable[Any]) -> int:
    """From QEMU's own answer."""
    return sum(int(one["data"]["size"]) for one in devices)


def plugged_in_by_node(devices: Iterable[Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in devices:
        node = int(one["data"]["node"])
        found[node] = found.get(node, 0) + int(one["data"]["size"])
    return found


def vcpus_of(domain: ET.Element) -> int:
    vcpu = domain.find("vcpu")
    assert vcpu is not None
    return int(vcpu.get("current") or vcpu.text or 0)


def note_in(domain: ET.Element) -> str:
    metadata = domain.find("metadata")
    return "" if metadata is None else "".join(metadata.itertext()).strip()


def is_clear(note: str) -> bool:
    """Nothing is on its way to another size."""
    return "being_updated" not in note


def _device(element: ET.Element) -> Device:
    alias = element.find("alias")
    kind = str(element.get("model"))
    part = "requested" if kind == "virtio-mem" else "size"
    return Device(
        node=_number(element, "target/node"),
        alias="" if alias is None else str(alias.get("name")),
        kind=kind,
        mib=_number(element, f"target/{part}") * KIB // MIB,
    )


def _number(element: ET.Element, path: str) -> int:
    return int(element.findtext(path, default="0"))
