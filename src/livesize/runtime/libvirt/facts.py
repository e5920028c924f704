"""Reads what libvirt says of a domain. Pure: from its XML to values.

Sums are made from the parts: libvirt's own totals count a memory device at its full size, or
lag behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from livesize.api.vm_changes import VmDevice, VmNote, VmTune
from livesize.api.vm_pins import VmPins
from livesize.runtime.guest_channels import AGENT_CHANNEL
from livesize.runtime.libvirt.model import (
    accelerator_of,
    alias_of,
    boot_memory,
    max_memory,
    memory_elements,
    parse_devices,
    parse_note,
    parse_pins,
    parse_tune,
    required,
)
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


def _channels(root: ET.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for channel in root.findall("devices/channel"):
        source, target = channel.find("source"), channel.find("target")
        if source is not None and target is not None and source.get("path"):
            found[str(target.get("name"))] = str(source.get("path"))
    return found
