"""Reads what libvirt says of a domain. Pure: from its XML to values.

Sums are made from the parts: libvirt's own totals count a memory device at its full size, or
lag behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from livesize.api.vm_changes import DeviceKind, VmDevice, VmNote, VmTune
from livesize.api.vm_pins import VmPins
from livesize.api.vm_size import CellSize, VmTopology
from livesize.runtime.guest_channels import AGENT_CHANNEL
from livesize.runtime.libvirt.elements import required
from livesize.runtime.libvirt.memory_xml import (
    alias_of,
    boot_memory,
    max_memory,
    memory_elements,
    parse_balloon,
    parse_cells,
    parse_devices,
)
from livesize.runtime.libvirt.model import accelerator_of, parse_note
from livesize.runtime.libvirt.vcpu_xml import parse_pins, parse_topology, parse_tune
from livesize.runtime.vm import Accelerator


class DomainFacts(msgspec.Struct, frozen=True):
    """One definition of a domain: the live one, or the persistent one."""

    accelerator: Accelerator
    max_vcpus: int
    vcpus: int
    boot_memory_bytes: int
    max_memory_bytes: int
    devices: tuple[VmDevice, ...]
    note: VmNote
    agent_connected: bool
    pins: VmPins
    tune: VmTune
    topology: VmTopology | None
    cells: tuple[CellSize, ...]  # by id; empty: memory cannot be added
    # What the balloon leaves of the boot memory, or would leave at the next start; None: there is
    # none.
    balloon_bytes: int | None
    channels: dict[str, str]  # name to the path of its socket; empty where it does not run
    elements: dict[str, str]  # of each memory device, by its alias: as libvirt wrote it


def parse_facts(xml: str) -> DomainFacts:
    root = ET.fromstring(xml)  # noqa: S314 — our own libvirtd's words
    memory = memory_elements(root)
    vcpu = required(root, "vcpu")
    targets = {str(target.get("name")): target for target in root.findall("devices/channel/target")}
    agent = targets.get(AGENT_CHANNEL)
    return DomainFacts(
        accelerator=accelerator_of(root),
        max_vcpus=int(vcpu.text or 0),
        vcpus=int(vcpu.get("current") or vcpu.text or 0),
        boot_memory_bytes=boot_memory(root),
        max_memory_bytes=max_memory(root),
        devices=parse_devices(root),
        note=parse_note(root),
        agent_connected=agent is not None and agent.get("state") == "connected",
        pins=parse_pins(root),
        tune=parse_tune(root),
        topology=parse_topology(root),
        cells=parse_cells(root),
        balloon_bytes=parse_balloon(root),
        channels=_channels(root),
        elements={alias_of(one): ET.tostring(one, encoding="unicode") for one in memory},
    )


def with_requested(facts: DomainFacts, alias: str, requested_bytes: int) -> str:
    """The device's own element with only <requested> changed, as libvirt wants it."""
    element = ET.fromstring(facts.elements[alias])  # noqa: S314 — our own libvirtd's words
    requested = required(element, "target/requested")
    requested.text = str(requested_bytes // 1024)
    requested.set("unit", "KiB")
    return ET.tostring(element, encoding="unicode")


def with_current(facts: DomainFacts, devices: Iterable[Mapping[str, Any]]) -> DomainFacts:
    """With the sizes QEMU itself gives ("query-memory-devices"): libvirt's own <current> follows
    an event that comes once a second."""
    sizes = {one["data"].get("id"): one["data"].get("size") for one in devices}
    current = tuple(
        msgspec.structs.replace(
            device, current_bytes=int(sizes.get(device.alias, device.current_bytes))
        )
        for device in facts.devices
    )
    return msgspec.structs.replace(facts, devices=current)


def with_balloon(
    facts: DomainFacts, actual_bytes: int, devices: Iterable[Mapping[str, Any]]
) -> DomainFacts:
    """With what QEMU says ("query-balloon"): libvirt's own <currentMemory> follows an event. QEMU
    counts the DIMMs that are plugged in too. The guest's driver says the figure: it is never
    believed to be more than there can be."""
    dimms = (one["data"] for one in devices if one.get("type") == DeviceKind.DIMM)
    left_bytes = actual_bytes - sum(int(dimm["size"]) for dimm in dimms)
    balloon_bytes = max(0, min(left_bytes, facts.boot_memory_bytes))
    return msgspec.structs.replace(facts, balloon_bytes=balloon_bytes)


def _channels(root: ET.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for channel in root.findall("devices/channel"):
        source, target = channel.find("source"), channel.find("target")
        if source is not None and target is not None and source.get("path"):
            found[str(target.get("name"))] = str(source.get("path"))
    return found
