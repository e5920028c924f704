"""What each change does to a domain of libvirt, and what is read back of it afterwards.

A function here makes the calls for one change, which block, and returns how a reading from before
is to be corrected. It reads back what it was to change and nothing else: a whole reading takes as
long as many a change. Memory that was asked for is not read back here: the guest begins to take it
at once, and is not to wait for us; whoever waits for the guest reads it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from livesize.api.vm_changes import (
    Definition,
    DeviceChange,
    DeviceKind,
    PlugDevice,
    SetBalloon,
    SetRequested,
    UnplugDevice,
    VmDevice,
    VmTune,
)
from livesize.api.vm_pins import VmPins
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.connection import load_libvirt
from livesize.runtime.libvirt.facts import DomainFacts, parse_facts, with_requested
from livesize.runtime.libvirt.memory_xml import dimm_bytes, render_device
from livesize.runtime.libvirt.model import NOTE_KEY, NOTE_URI, decode_note
from livesize.runtime.libvirt.vcpu_xml import with_tune
from livesize.runtime.vm import (
    check_balloon,
    check_new,
    check_pins,
    check_requested,
    check_tune,
    require_device,
)


class DomainReading(msgspec.Struct, frozen=True):
    live: DomainFacts
    persistent: DomainFacts
    is_running: bool


Correction: TypeAlias = Callable[[DomainReading], DomainReading]
"""Brings an older reading up to date with what a change did, as it was read back."""


def live_vcpus(domain: Any) -> int:
    return int(domain.vcpusFlags(load_libvirt().VIR_DOMAIN_AFFECT_LIVE))


def plug(domain: Any, count: int) -> Correction:
    domain.setVcpusFlags(count, load_libvirt().VIR_DOMAIN_AFFECT_LIVE)
    return _live_with(vcpus=live_vcpus(domain))


def unplug(domain: Any, count: int) -> Correction:
    """libvirt removes one at a time. Under TCG QEMU does not say when one has gone, so that each
    times out once although it went; asked again, libvirt sees it."""
    libvirt = load_libvirt()
    for left in range(max(live_vcpus(domain) - count, 0), -1, -1):
        try:
            domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        except libvirt.libvirtError as failure:
            if failure.get_error_code() != libvirt.VIR_ERR_OPERATION_TIMEOUT or not left:
                raise
        else:
            break
    return _live_with(vcpus=live_vcpus(domain))


def persist_vcpus(domain: Any, count: int) -> Correction:
    libvirt = load_libvirt()
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_VCPU_HOTPLUGGABLE
    domain.setVcpusFlags(count, flags)
    return _persistent_as_read(domain)


def change_device(
    domain: Any, change: DeviceChange, known: DomainFacts | None = None
) -> Correction:
    """``known``: the running domain, as it was read last."""
    match change:
        case SetRequested(definition=Definition.LIVE):
            return _request(domain, change, known)
        case _ if change.definition is Definition.PERSISTENT:
            _persist(domain, change)
            return _persistent_as_read(domain)
        case SetBalloon(memory_bytes=memory_bytes):
            facts = _read(domain, Definition.LIVE)
            check_balloon(facts.boot_memory_bytes, facts.balloon_bytes, memory_bytes)
            _set_balloon(domain, memory_bytes, facts.devices, Definition.LIVE)
            return lambda reading: reading  # the guest gives or takes it in its own time
        case PlugDevice() | UnplugDevice():
            _plug_or_unplug(domain, change, _read(domain, Definition.LIVE))
            return _devices_as_read(domain)
        case _:
            raise AssertionError(change)


def _persist(domain: Any, change: DeviceChange) -> None:
    """What the balloon leaves stays as it was: libvirt counts DIMMs into that."""
    flags = load_libvirt().VIR_DOMAIN_AFFECT_CONFIG
    facts = _read(domain, Definition.PERSISTENT)
    match change:
        case SetRequested():
            _ask_for(domain, facts, change, flags)
        case SetBalloon(memory_bytes=memory_bytes):
            check_balloon(facts.boot_memory_bytes, facts.balloon_bytes, memory_bytes)
            _set_balloon(domain, memory_bytes, facts.devices, Definition.PERSISTENT)
        case PlugDevice() | UnplugDevice():
            _plug_or_unplug(domain, change, facts)
            if facts.balloon_bytes is not None:
                devices = _read(domain, Definition.PERSISTENT).devices
                _set_balloon(domain, facts.balloon_bytes, devices, Definition.PERSISTENT)


def _plug_or_unplug(domain: Any, change: PlugDevice | UnplugDevice, facts: DomainFacts) -> None:
    """An unplug returns at once: an event says later what became of it."""
    flags = _flags_of(change.definition)
    match change:
        case PlugDevice(alias=alias, size_bytes=size_bytes, node=node):
            check_new(facts.devices, alias, size_bytes)
            device = VmDevice(alias, DeviceKind.DIMM, node, size_bytes, size_bytes)
            domain.attachDeviceFlags(render_device(device), flags)
        case UnplugDevice(alias=alias):
            require_device(facts.devices, alias)
            if alias:
                domain.detachDeviceAlias(alias, flags)
            else:  # another program added it to the persistent definition, and gave it no name
                domain.detachDeviceFlags(facts.elements[alias], flags)


def _set_balloon(
    domain: Any, memory_bytes: int, devices: tuple[VmDevice, ...], definition: Definition
) -> None:
    """QEMU leaves the guest so much of what it has, DIMMs included."""
    target_bytes = memory_bytes + dimm_bytes(devices)
    domain.setMemoryFlags(target_bytes // 1024, _flags_of(definition))


def _request(domain: Any, change: SetRequested, known: DomainFacts | None) -> Correction:
    """By what is known of the device, because to read it anew takes as long as to ask. Where that
    is refused, it may be another device by now."""
    libvirt = load_libvirt()
    try:
        facts = parse_facts(domain.XMLDesc(0)) if known is None else known
        _ask_for(domain, facts, change, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except (libvirt.libvirtError, RuntimeCallError):
        if known is None:
            raise
        return _request(domain, change, None)

    def correct(reading: DomainReading) -> DomainReading:
        """What the guest holds of it stays as QEMU said: libvirt hears of that late."""
        devices = tuple(
            msgspec.structs.replace(one, requested_bytes=change.requested_bytes)
            if one.alias == change.alias
            else one
            for one in reading.live.devices
        )
        return _live_with(devices=devices)(reading)

    return correct


def pin(domain: Any, pins: VmPins) -> Correction:
    """QEMU's own threads first: they get all CPUs that any of the others does."""
    libvirt = load_libvirt()
    check_pins(pins, live_vcpus(domain))
    flags = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.pinEmulator(_cpu_map(pins.emulator), flags)
    for number, cpus in enumerate(pins.vcpus):
        domain.pinVcpuFlags(number, _cpu_map(cpus), flags)
    live = parse_facts(domain.XMLDesc(0)).pins
    persistent = _persistent_as_read(domain)
    return lambda reading: persistent(_live_with(pins=live)(reading))


def tune_cpu(domain: Any, tune: VmTune) -> Correction:
    """In the persistent definition: of the running VM its own group holds the CPU time, and libvirt
    is given no controller to do it with, so that it refuses to set it in a domain that runs."""
    inactive = load_libvirt().VIR_DOMAIN_XML_INACTIVE
    check_tune(tune)
    domain.connect().defineXML(with_tune(domain.XMLDesc(inactive), tune))
    return _persistent_as_read(domain)


def write_note(domain: Any, element: str) -> Correction:
    """With the running domain, which libvirt keeps in a file as long as it runs, and with the
    persistent one. One that an agent starts again begins at its size, and nothing of it is under
    way: it is defined anew."""
    libvirt = load_libvirt()
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    flags = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(kind, element, NOTE_KEY, NOTE_URI, flags)
    live, persistent = (
        decode_note(domain.metadata(kind, NOTE_URI, flag))
        for flag in (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    )

    def correct(reading: DomainReading) -> DomainReading:
        stored = msgspec.structs.replace(reading.persistent, note=persistent)
        return _live_with(note=live)(msgspec.structs.replace(reading, persistent=stored))

    return correct


def _ask_for(domain: Any, facts: DomainFacts, change: SetRequested, flags: int) -> None:
    alias, requested_bytes = change.alias, change.requested_bytes
    check_requested(facts.devices, alias, requested_bytes)
    domain.updateDeviceFlags(with_requested(facts, alias, requested_bytes), flags)


def _flags_of(definition: Definition) -> int:
    libvirt = load_libvirt()
    is_live = definition is Definition.LIVE
    flags: int = libvirt.VIR_DOMAIN_AFFECT_LIVE if is_live else libvirt.VIR_DOMAIN_AFFECT_CONFIG
    return flags


def _read(domain: Any, definition: Definition) -> DomainFacts:
    inactive = load_libvirt().VIR_DOMAIN_XML_INACTIVE
    return parse_facts(domain.XMLDesc(0 if definition is Definition.LIVE else inactive))


def _devices_as_read(domain: Any) -> Correction:
    """What the guest holds of devices that were known stays as QEMU said."""
    read = _read(domain, Definition.LIVE)

    def correct(reading: DomainReading) -> DomainReading:
        held = {one.alias: one.current_bytes for one in reading.live.devices}
        devices = tuple(
            msgspec.structs.replace(one, current_bytes=_held(one, held)) for one in read.devices
        )
        return _live_with(devices=devices, elements=read.elements)(reading)

    return correct


def _held(device: VmDevice, held: Mapping[str, int]) -> int:
    """A DIMM is there as a whole."""
    if device.kind is DeviceKind.DIMM:
        return device.size_bytes
    return held.get(device.alias, device.current_bytes)


def _live_with(**facts: object) -> Correction:
    def correct(reading: DomainReading) -> DomainReading:
        live = msgspec.structs.replace(reading.live, **facts)
        return msgspec.structs.replace(reading, live=live)

    return correct


def _persistent_as_read(domain: Any) -> Correction:
    persistent = _read(domain, Definition.PERSISTENT)
    return lambda reading: msgspec.structs.replace(reading, persistent=persistent)


def _cpu_map(cpus: tuple[int, ...]) -> tuple[bool, ...]:
    return tuple(number in cpus for number in range(max(cpus) + 1))
