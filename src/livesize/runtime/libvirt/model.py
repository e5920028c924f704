"""The domain XML of a virtual machine as values: rendered from a model, never from strings.

``render`` and ``parse`` are each other's inverse for what the model knows; tests keep whole
documents beside them (tests/unit/runtime/golden). Amounts are bytes here and KiB in the XML, so
everything is a multiple of 1024.
"""

from __future__ import annotations

from typing import TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from livesize.api.vm_changes import VmDevice, VmNote, VmTune
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import CellSize, VmTopology
from livesize.runtime.libvirt.elements import add_text, required, required_text
from livesize.runtime.libvirt.identity import node_of, node_title, pod_description, pod_of
from livesize.runtime.libvirt.memory_xml import (
    add_balloon,
    add_cells,
    add_memory_device,
    add_sizes,
    boot_memory,
    max_memory,
    parse_balloon,
    parse_cells,
    parse_devices,
)
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.vcpu_xml import (
    UNTUNED,
    add_topology,
    add_tune,
    add_vcpus,
    parse_pins,
    parse_topology,
    parse_tune,
)
from livesize.runtime.vm import Accelerator

NOTE_URI = "https://livesize.dev/xmlns/vm/1"
NOTE_KEY = "livesize"
NOTE_TAG = "vm"
# QEMU's translated code: unbounded it grows to a gigabyte, and 64 MiB are full when a small guest
# has booted, which makes plugging in a vCPU dangerous (emulator.py).
TB_CACHE_MIB = 128


class DomainKernel(msgspec.Struct, frozen=True, tag=True):
    kernel: str
    initrd: str = ""
    command_line: str = ""


class DomainDisk(msgspec.Struct, frozen=True, tag=True):
    """A qcow2 file of the VM's own."""

    path: str


Boot: TypeAlias = DomainKernel | DomainDisk


class DomainModel(msgspec.Struct, frozen=True):
    name: str
    uuid: str
    accelerator: Accelerator
    max_vcpus: int
    vcpus: int
    boot_memory_bytes: int
    max_memory_bytes: int
    boot: Boot
    console_log: str
    channels: tuple[str, ...]
    devices: tuple[VmDevice, ...] = ()
    note: VmNote = VmNote()
    pins: VmPins = UNPINNED
    node_uid: str = ""  # of the node it belongs to
    pod_uid: str = ""  # of the pod that runs it there
    owner: VmOwner | None = None  # None: whom libvirt is set to
    cells: tuple[CellSize, ...] = ()  # by id, the boot memory together; empty: one, or none
    balloon_bytes: int | None = None  # what it leaves of the boot memory; None: no balloon
    topology: VmTopology | None = None
    tune: VmTune = UNTUNED

    @property
    def has_room(self) -> bool:
        """Memory can be added to what it boots with."""
        return bool(self.devices) or self.max_memory_bytes != self.boot_memory_bytes


def render(model: DomainModel) -> str:
    root = ET.Element("domain", type="kvm" if model.accelerator is Accelerator.KVM else "qemu")
    add_text(root, "name", model.name)
    add_text(root, "uuid", model.uuid)
    if model.node_uid:
        add_text(root, "title", node_title(model.node_uid))
    if model.pod_uid:
        add_text(root, "description", pod_description(model.pod_uid))
    _metadata(root, model.note)
    add_sizes(
        root,
        model.boot_memory_bytes,
        model.max_memory_bytes if model.has_room else None,
        model.devices,
        model.balloon_bytes,
    )
    add_vcpus(root, model.vcpus, model.max_vcpus)
    add_tune(root, model.pins, model.tune)
    _operating_system(root, model.boot)
    _features(root, model.accelerator)
    _cpu(root, model)
    ET.SubElement(root, "clock", offset="utc")
    for event, action in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "destroy")):
        add_text(root, f"on_{event}", action)
    _devices(root, model)
    _owner(root, model.owner)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def render_note(note: VmNote) -> str:
    """The element that goes into the domain's metadata, without its name space."""
    element = ET.Element(NOTE_TAG)
    element.text = msgspec.json.encode(note).decode()
    return ET.tostring(element, encoding="unicode")


def parse(xml: str) -> DomainModel:
    """The model a document was rendered from."""
    root = ET.fromstring(xml)  # noqa: S314 — our own words, or our own libvirtd's
    vcpu, cells = required(root, "vcpu"), parse_cells(root)
    return DomainModel(
        name=required_text(root, "name"),
        uuid=required_text(root, "uuid"),
        accelerator=accelerator_of(root),
        max_vcpus=int(vcpu.text or 0),
        vcpus=int(vcpu.get("current") or vcpu.text or 0),
        boot_memory_bytes=boot_memory(root),
        max_memory_bytes=max_memory(root),
        boot=_parse_boot(root),
        console_log=str(required(root, "devices/serial/source").get("path")),
        channels=tuple(
            str(target.get("name")) for target in root.findall("devices/channel/target")
        ),
        devices=parse_devices(root),
        note=parse_note(root),
        pins=parse_pins(root),
        node_uid=node_of(root),
        pod_uid=pod_of(root),
        owner=_parse_owner(root),
        cells=cells if len(cells) > 1 else (),
        balloon_bytes=parse_balloon(root),
        topology=parse_topology(root),
        tune=parse_tune(root),
    )


def parse_note(root: ET.Element) -> VmNote:
    """The note in a domain; an empty one where there is none or somebody else wrote it."""
    element = root.find(f"metadata/{{{NOTE_URI}}}{NOTE_TAG}")
    return _note_in(element)


def decode_note(xml: str) -> VmNote:
    """The note from its own element, as ``render_note`` gives it."""
    return _note_in(ET.fromstring(xml))  # noqa: S314 — our own libvirtd's words


def _note_in(element: ET.Element | None) -> VmNote:
    try:
        return msgspec.json.decode(
            (element.text if element is not None else "") or "{}", type=VmNote
        )
    except msgspec.MsgspecError:
        return VmNote()


def accelerator_of(root: ET.Element) -> Accelerator:
    return Accelerator.KVM if root.get("type") == "kvm" else Accelerator.TCG


def _metadata(root: ET.Element, note: VmNote) -> None:
    ET.register_namespace(NOTE_KEY, NOTE_URI)
    metadata = ET.SubElement(root, "metadata")
    add_text(metadata, f"{{{NOTE_URI}}}{NOTE_TAG}", msgspec.json.encode(note).decode())


def _operating_system(root: ET.Element, boot: Boot) -> None:
    system = ET.SubElement(root, "os")
    add_text(system, "type", "hvm", arch="x86_64", machine="q35")
    match boot:
        case DomainKernel(kernel=kernel, initrd=initrd, command_line=command_line):
            add_text(system, "kernel", kernel)
            if initrd:
                add_text(system, "initrd", initrd)
            if command_line:
                add_text(system, "cmdline", command_line)
        case DomainDisk():
            ET.SubElement(system, "boot", dev="hd")


def _features(root: ET.Element, accelerator: Accelerator) -> None:
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    if accelerator is Accelerator.TCG:
        tcg = ET.SubElement(features, "tcg")
        add_text(tcg, "tb-cache", str(TB_CACHE_MIB), unit="MiB")


def _cpu(root: ET.Element, model: DomainModel) -> None:
    """Memory can be added only to a guest with at least one NUMA cell."""
    mode = "host-passthrough" if model.accelerator is Accelerator.KVM else "maximum"
    cpu = ET.SubElement(root, "cpu", mode=mode)
    add_topology(cpu, model.topology, model.max_vcpus)
    if model.has_room or model.cells:
        cells = model.cells or (CellSize(0, model.boot_memory_bytes),)
        add_cells(cpu, cells, model.max_vcpus, model.topology)


def _devices(root: ET.Element, model: DomainModel) -> None:
    devices = ET.SubElement(root, "devices")
    if isinstance(model.boot, DomainDisk):
        disk = ET.SubElement(devices, "disk", type="file", device="disk")
        ET.SubElement(disk, "driver", name="qemu", type="qcow2", discard="unmap")
        ET.SubElement(disk, "source", file=model.boot.path)
        ET.SubElement(disk, "target", dev="vda", bus="virtio")
    ET.SubElement(devices, "controller", type="usb", model="none")
    serial = ET.SubElement(devices, "serial", type="file")
    ET.SubElement(serial, "source", path=model.console_log, append="on")
    ET.SubElement(serial, "target", type="isa-serial", port="0")
    for name in model.channels:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name=name)
    for device in model.devices:
        add_memory_device(devices, device)
    add_balloon(devices, has_balloon=model.balloon_bytes is not None)
    rng = ET.SubElement(devices, "rng", model="virtio")
    add_text(rng, "backend", "/dev/urandom", model="random")


def _owner(root: ET.Element, owner: VmOwner | None) -> None:
    """By number, as + says; files are the agent's business (relabel)."""
    if owner is not None:
        label = ET.SubElement(root, "seclabel", type="static", model="dac", relabel="no")
        add_text(label, "label", f"+{owner.uid}:+{owner.gid}")


def _parse_owner(root: ET.Element) -> VmOwner | None:
    label = root.findtext("seclabel[@model='dac']/label")
    if label is None:
        return None
    uid, _, gid = label.partition(":")
    return VmOwner(int(uid), int(gid))


def _parse_boot(root: ET.Element) -> Boot:
    kernel = root.findtext("os/kernel")
    if kernel is None:
        return DomainDisk(str(required(root, "devices/disk/source").get("file")))
    return DomainKernel(
        kernel, root.findtext("os/initrd", default=""), root.findtext("os/cmdline", default="")
    )
