"""Domain XML: whole documents kept beside the tests, and every model survives the way and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.vm_changes import DeviceKind, VmDevice, VmNote
from livesize.api.vm_pins import VmPins
from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.facts import (
    parse_facts,
    with_requested,
)
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import (
    DomainDisk,
    DomainKernel,
    DomainModel,
    parse,
    render,
    render_note,
)
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig
from vms.sizes import with_devices

GOLDEN = Path(__file__).parent / "golden"
MIB = 1024 * 1024
UID = "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a01"
IDENTITY = DomainIdentity(UID, UID)
KERNEL = DomainKernel(
    "/var/lib/libvirt/vms/x/kernel", "/var/lib/libvirt/vms/x/initrd", COMMAND_LINE
)
DISK = DomainDisk("/var/lib/libvirt/vms/x/disk.qcow2")
LOG = "/var/log/libvirt/vms/x/0.log"


def small(**changes: object) -> VmConfig:
    vm = VmConfig(1, 4, 512 * MIB, 2048 * MIB, 512 * MIB, kernel="k", initrd="i")
    return with_devices(msgspec.structs.replace(vm, **changes))


CASES = {
    "kernel_tcg": compose_domain(IDENTITY, small(), KERNEL, LOG, Accelerator.TCG),
    "kernel_grown": compose_domain(
        IDENTITY, small(vcpus=3, memory_bytes=1026 * MIB), KERNEL, LOG, Accelerator.TCG
    ),
    "kernel_kvm": compose_domain(IDENTITY, small(), KERNEL, LOG, Accelerator.KVM),
    "kernel_pinned": compose_domain(
        IDENTITY,
        small(vcpus=2, pins=VmPins(((3,), (1,)), (1, 3))),
        KERNEL,
        LOG,
        Accelerator.TCG,
    ),
    "kernel_owned": msgspec.structs.replace(
        compose_domain(IDENTITY, small(), KERNEL, LOG, Accelerator.TCG),
        owner=VmOwner(1900000007, 1900000007),
    ),
    "disk_no_room": compose_domain(
        IDENTITY,
        small(kernel="", initrd="", disk="d", max_vcpus=1, max_memory_bytes=512 * MIB),
        DISK,
        LOG,
        Accelerator.TCG,
    ),
    "four_tebibytes": compose_domain(
        IDENTITY,
        small(vcpus=64, max_vcpus=255, memory_bytes=4 << 40, max_memory_bytes=4 << 40),
        KERNEL,
        LOG,
        Accelerator.KVM,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_document_is_the_one_kept(name: str) -> None:
    assert render(CASES[name]) == (GOLDEN / f"domain_{name}.xml").read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_document_kept_gives_the_model_back(name: str) -> None:
    assert parse((GOLDEN / f"domain_{name}.xml").read_text()) == CASES[name]


blocks = st.integers(0, 1 << 21).map(lambda count: count * 2 * MIB)
words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)
cpus = st.sets(st.integers(0, 99), min_size=1, max_size=3).map(lambda one: tuple(sorted(one)))


def _dimm(alias: str, node: int, size_bytes: int) -> VmDevice:
    return VmDevice(alias, DeviceKind.DIMM, node, size_bytes, size_bytes)


models = st.builds(
    DomainModel,
    name=words,
    uuid=st.uuids().map(str),
    accelerator=st.sampled_from(Accelerator),
    max_vcpus=st.integers(4, 300),
    vcpus=st.integers(1, 4),
    boot_memory_bytes=blocks,
    max_memory_bytes=blocks,
    boot=st.one_of(
        st.builds(
            DomainKernel, words, st.one_of(st.just(""), words), st.one_of(st.just(""), words)
        ),
        st.builds(DomainDisk, words),
    ),
    console_log=words,
    channels=st.lists(words, max_size=3).map(tuple),
    devices=st.lists(
        st.builds(
            VmDevice, words, st.just(DeviceKind.VIRTIO_MEM), st.integers(0, 7), blocks, blocks
        )
        | st.builds(_dimm, words, st.integers(0, 7), blocks),
        max_size=3,
    ).map(tuple),
    note=st.builds(VmNote, st.one_of(st.none(), blocks)),
    pins=st.builds(VmPins, st.lists(cpus, max_size=4).map(tuple), cpus),
    node_uid=st.one_of(st.just(""), words),
    pod_uid=st.one_of(st.just(""), words),
)


def test_a_domain_says_whose_node_it_belongs_to() -> None:
    document = render(msgspec.structs.replace(CASES["disk_no_room"], node_uid="0123abcd"))
    assert "<title>livesize node 0123abcd</title>" in document
    assert parse(document).node_uid == "0123abcd"


@given(models)
def test_any_model_survives_the_way_and_back(model: DomainModel) -> None:
    assert parse(render(model)) == model


def test_a_running_domain_is_read_from_its_parts() -> None:
    facts = parse_facts((GOLDEN / "live.xml").read_text())
    assert (facts.vcpus, facts.max_vcpus) == (4, 4)
    assert facts.boot_memory_bytes == 512 * MIB
    (device,) = facts.devices
    assert facts.boot_memory_bytes + device.requested_bytes == 1024 * MIB
    assert facts.boot_memory_bytes + device.current_bytes == 896 * MIB
    assert facts.boot_memory_bytes + device.size_bytes == 2048 * MIB == facts.max_memory_bytes
    assert facts.agent_connected
    assert facts.note == VmNote(5)
    assert set(facts.channels) == {AGENT_CHANNEL, CHANNEL}
    (device,) = facts.devices
    assert (device.alias, device.kind, device.node) == ("ua-memory0", "virtio-mem", 0)


def test_only_what_is_requested_changes_in_the_device() -> None:
    live = parse_facts((GOLDEN / "live.xml").read_text())
    element = with_requested(live, "ua-memory0", 640 * MIB)
    assert '<requested unit="KiB">655360</requested>' in element
    assert "<address" in element  # libvirt finds the device by it
    assert element.replace("655360", "524288").split() == (
        with_requested(live, "ua-memory0", 512 * MIB).split()
    )


def test_a_note_of_somebody_else_is_no_note() -> None:
    model = msgspec.structs.replace(CASES["kernel_tcg"], note=VmNote(7))
    xml = render(model)
    assert parse(xml).note == VmNote(7)
    assert parse(xml.replace('"memory_bytes_being_updated"', "what is this")).note == VmNote()


def test_the_note_is_rendered_for_libvirt_without_its_name_space() -> None:
    assert render_note(VmNote(7)) == '<vm>{"memory_bytes_being_updated":7}</vm>'
