"""The domain XML of a virtual machine as values: rendered from a model, never from strings.

``render`` and ``parse`` are each other's inverse for what the model knows; tests keep whole
documents beside them (tests/unit/runtime/golden). Amounts are bytes here and KiB in the XML, so
everything is a multiple of 1024.
"""

from __future__ import annotations

from typing import TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from livesize.api.cpu_list import format_cpu_list, parse_cpu_list
from livesize.api.vm_changes import DeviceKind, VmDevice, VmNote, VmTune
from livesize.api.vm_pins import UNPINNED, VmPins
from livesize.api.vm_size import MEMORY_BLOCK_BYTES
from livesize.runtime.libvirt.identity import node_of, node_title, pod_description, pod_of
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.vm import Accelerator

NOTE_URI = "https://livesize.dev/xmlns/vm/1"
NOTE_KEY = "livesize"
NOTE_TAG = "vm"
# QEMU's translated code: unbounded it grows to a gigabyte, and 64 MiB are full when a small guest
# has booted, which makes plugging in a vCPU dangerous (emulator.py).
TB_CACHE_MIB = 128
MEMORY_SLOTS = 16


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

    @property
    def has_room(self) -> bool:
        """Memory can be added to what it boots with."""
        return bool(self.devices) or self.max_memory_bytes != self.boot_memory_bytes


def render(model: DomainModel) -> str:
    root = ET.Element("domain", type="kvm" if model.accelerator is Accelerator.KVM else "qemu")
    _text(root, "name", model.name)
    _text(root, "uuid", model.uuid)
    if model.node_uid:
        _text(root, "title", node_title(model.node_uid))
    if model.pod_uid:
        _text(root, "description", pod_description(model.pod_uid))
    _metadata(root, model.note)
    _memory(root, model)
    _vcpus(root, model)
    _pins(root, model.pins)
    _operating_system(root, model.boot)
    _features(root, model.accelerator)
    _cpu(root, model)
    ET.SubElement(root, "clock", offset="utc")
    for event, action in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "destroy")):
        _text(root, f"on_{event}", action)
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
    vcpu = required(root, "vcpu")
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
    )


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


def render_device(device: VmDevice) -> str:
    """The element of one memory device."""
    devices = ET.Element("devices")
    _memory_device(devices, device)
    return ET.tostring(devices[0], encoding="unicode")


def parse_devices(root: ET.Element) -> tuple[VmDevice, ...]:
    return tuple(_parse_device(element) for element in memory_elements(root))


def memory_elements(root: ET.Element) -> list[ET.Element]:
    kinds = {kind.value for kind in DeviceKind}
    return [one for one in root.findall("devices/memory") if one.get("model") in kinds]


def alias_of(element: ET.Element) -> str:
    alias = element.find("alias")
    return "" if alias is None else str(alias.get("name"))


def max_memory(root: ET.Element) -> int:
    maximum = root.find("maxMemory")
    return boot_memory(root) if maximum is None else size_bytes(maximum)


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


def boot_memory(root: ET.Element) -> int:
    """What the guest has before any device: the sum of its cells."""
    cells = root.findall("cpu/numa/cell")
    if cells:
        return sum(int(cell.get("memory") or 0) * _UNITS[cell.get("unit", "KiB")] for cell in cells)
    return size_bytes(required(root, "memory"))


def size_bytes(element: ET.Element) -> int:
    return int(element.text or 0) * _UNITS[element.get("unit", "KiB")]


def required(root: ET.Element, path: str) -> ET.Element:
    found = root.find(path)
    if found is None:
        raise ValueError(f"the domain has no {path}")
    return found


def required_text(root: ET.Element, path: str) -> str:
    return required(root, path).text or ""


_UNITS = {"b": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _kib(parent: ET.Element, tag: str, amount_bytes: int, **attributes: str) -> None:
    assert amount_bytes % 1024 == 0, f"{tag}: {amount_bytes} is not whole KiB"
    _text(parent, tag, str(amount_bytes // 1024), unit="KiB", **attributes)


def _metadata(root: ET.Element, note: VmNote) -> None:
    ET.register_namespace(NOTE_KEY, NOTE_URI)
    metadata = ET.SubElement(root, "metadata")
    _text(metadata, f"{{{NOTE_URI}}}{NOTE_TAG}", msgspec.json.encode(note).decode())


def _memory(root: ET.Element, model: DomainModel) -> None:
    """libvirt counts a device at its full size; what the guest has of it is the device's own."""
    if model.has_room:
        _kib(root, "maxMemory", model.max_memory_bytes, slots=str(MEMORY_SLOTS))
    total_bytes = model.boot_memory_bytes + sum(device.size_bytes for device in model.devices)
    _kib(root, "memory", total_bytes)


def _vcpus(root: ET.Element, model: DomainModel) -> None:
    """All but the first can be unplugged, those of the start too."""
    current = str(model.vcpus)
    _text(root, "vcpu", str(model.max_vcpus), placement="static", current=current)
    vcpus = ET.SubElement(root, "vcpus")
    for number in range(model.max_vcpus):
        enabled = "yes" if number < model.vcpus else "no"
        hotpluggable = "yes" if number else "no"
        attributes = {"id": str(number), "enabled": enabled, "hotpluggable": hotpluggable}
        ET.SubElement(vcpus, "vcpu", attributes)


def _pins(root: ET.Element, pins: VmPins) -> None:
    if pins == UNPINNED:
        return
    tune = ET.SubElement(root, "cputune")
    for number, cpus in enumerate(pins.vcpus):
        if cpus:
            ET.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=format_cpu_list(cpus))
    if pins.emulator:
        ET.SubElement(tune, "emulatorpin", cpuset=format_cpu_list(pins.emulator))


def _operating_system(root: ET.Element, boot: Boot) -> None:
    system = ET.SubElement(root, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="q35")
    match boot:
        case DomainKernel(kernel=kernel, initrd=initrd, command_line=command_line):
            _text(system, "kernel", kernel)
            if initrd:
                _text(system, "initrd", initrd)
            if command_line:
                _text(system, "cmdline", command_line)
        case DomainDisk():
            ET.SubElement(system, "boot", dev="hd")


def _features(root: ET.Element, accelerator: Accelerator) -> None:
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    if accelerator is Accelerator.TCG:
        tcg = ET.SubElement(features, "tcg")
        _text(tcg, "tb-cache", str(TB_CACHE_MIB), unit="MiB")


def _cpu(root: ET.Element, model: DomainModel) -> None:
    """Memory can be added only to a guest with at least one NUMA cell."""
    mode = "host-passthrough" if model.accelerator is Accelerator.KVM else "maximum"
    cpu = ET.SubElement(root, "cpu", mode=mode)
    if not model.has_room:
        return
    numa = ET.SubElement(cpu, "numa")
    ET.SubElement(
        numa,
        "cell",
        id="0",
        cpus=f"0-{model.max_vcpus - 1}",
        memory=str(model.boot_memory_bytes // 1024),
        unit="KiB",
    )


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
        _memory_device(devices, device)
    ET.SubElement(devices, "memballoon", model="none")
    rng = ET.SubElement(devices, "rng", model="virtio")
    _text(rng, "backend", "/dev/urandom", model="random")


def _owner(root: ET.Element, owner: VmOwner | None) -> None:
    """By number, as + says; files are the agent's business (relabel)."""
    if owner is not None:
        label = ET.SubElement(root, "seclabel", type="static", model="dac", relabel="no")
        _text(label, "label", f"+{owner.uid}:+{owner.gid}")


def _parse_owner(root: ET.Element) -> VmOwner | None:
    label = root.findtext("seclabel[@model='dac']/label")
    if label is None:
        return None
    uid, _, gid = label.partition(":")
    return VmOwner(int(uid), int(gid))


def _memory_device(devices: ET.Element, device: VmDevice) -> None:
    memory = ET.SubElement(devices, "memory", model=device.kind.value)
    target = ET.SubElement(memory, "target")
    _kib(target, "size", device.size_bytes)
    _text(target, "node", str(device.node))
    if device.kind is DeviceKind.VIRTIO_MEM:
        _kib(target, "block", MEMORY_BLOCK_BYTES)
        _kib(target, "requested", device.requested_bytes)
    ET.SubElement(memory, "alias", name=device.alias)


def _parse_boot(root: ET.Element) -> Boot:
    kernel = root.findtext("os/kernel")
    if kernel is None:
        return DomainDisk(str(required(root, "devices/disk/source").get("file")))
    return DomainKernel(
        kernel, root.findtext("os/initrd", default=""), root.findtext("os/cmdline", default="")
    )
