"""The vCPUs of a domain in its XML: how many, what they are pinned to, their share of CPU time, and
how they are arranged."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from livesize.api.cpu_list import format_cpu_list, parse_cpu_list
from livesize.api.vm_changes import VmTune
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import VmTopology
from livesize.runtime.libvirt.elements import add_text

UNTUNED = VmTune()


def add_vcpus(root: ET.Element, vcpus: int, max_vcpus: int) -> None:
    """All but the first can be unplugged, those of the start too."""
    add_text(root, "vcpu", str(max_vcpus), placement="static", current=str(vcpus))
    elements = ET.SubElement(root, "vcpus")
    for number in range(max_vcpus):
        enabled = "yes" if number < vcpus else "no"
        hotpluggable = "yes" if number else "no"
        attributes = {"id": str(number), "enabled": enabled, "hotpluggable": hotpluggable}
        ET.SubElement(elements, "vcpu", attributes)


def add_tune(root: ET.Element, pins: VmPins, tune: VmTune) -> None:
    """<quota> would be that of each vCPU by itself; <global_quota> is the VM's."""
    if pins == UNPINNED and tune == UNTUNED:
        return
    element = ET.SubElement(root, "cputune")
    for tag, value in _values(tune):
        if value is not None:
            add_text(element, tag, str(value))
    for number, cpus in enumerate(pins.vcpus):
        if cpus:
            ET.SubElement(element, "vcpupin", vcpu=str(number), cpuset=format_cpu_list(cpus))
    if pins.emulator:
        ET.SubElement(element, "emulatorpin", cpuset=format_cpu_list(pins.emulator))


def with_tune(xml: str, tune: VmTune) -> str:
    """A definition as libvirt wrote it, with another <cputune> of the VM as a whole."""
    root = ET.fromstring(xml)  # noqa: S314 — our own libvirtd's words
    element = root.find("cputune")
    if element is None:
        element = ET.SubElement(root, "cputune")
    for tag, value in _values(tune):
        for old in element.findall(tag):
            element.remove(old)
        if value is not None:
            add_text(element, tag, str(value))
    return ET.tostring(root, encoding="unicode")


def parse_pins(root: ET.Element) -> VmPins:
    """Of the vCPUs from the first to the last that is pinned."""
    pinned = {
        int(pin.get("vcpu", 0)): parse_cpu_list(pin.get("cpuset", ""))
        for pin in root.findall("cputune/vcpupin")
    }
    emulator = root.find("cputune/emulatorpin")
    return VmPins(
        vcpus=tuple(pinned.get(number, ()) for number in range(max(pinned, default=-1) + 1)),
        emulator=() if emulator is None else parse_cpu_list(emulator.get("cpuset", "")),
    )


def parse_tune(root: ET.Element) -> VmTune:
    def number(tag: str) -> int | None:
        text = root.findtext(f"cputune/{tag}")
        return None if text is None else int(text)

    return VmTune(number("shares"), number("global_quota"), number("global_period"))


def add_topology(cpu: ET.Element, topology: VmTopology | None, max_vcpus: int) -> None:
    if topology is None:
        return
    attributes = {
        "sockets": max_vcpus // topology.vcpus,
        "cores": topology.cores,
        "threads": topology.threads,
    }
    ET.SubElement(cpu, "topology", {name: str(value) for name, value in attributes.items()})


def parse_topology(root: ET.Element) -> VmTopology | None:
    topology = root.find("cpu/topology")
    if topology is None:
        return None
    return VmTopology(int(topology.get("cores", 1)), int(topology.get("threads", 1)))


def _values(tune: VmTune) -> tuple[tuple[str, int | None], ...]:
    return (
        ("shares", tune.shares),
        ("global_period", tune.period_us),
        ("global_quota", tune.quota_us),
    )
