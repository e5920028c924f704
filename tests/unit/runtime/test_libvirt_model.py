"""Domain XML: whole documents kept beside the tests, and every model survives the way and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.vm_changes import DeviceKind, VmDevice, VmNote, VmTune
from livesize.api.vm_pins import VmPins
from livesize.api.vm_size import CellSize, VmTopology
from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.facts import parse_facts, with_balloon, with_requested
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.memory_xml import vcpu_blocks
from livesize.runtime.libvirt.model import (
    Boot,
    DomainDisk,
    DomainKernel,
    DomainModel,
    parse,
    render,
    render_note,
)
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.vcpu_xml import with_tune
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


def bare(**changes: object) -> VmConfig:
    """With no devices but those that are given."""
    return msgspec.structs.replace(small(), **{"devices": (), **changes})


def _dimm(alias: str, node: int, size_bytes: int) -> VmDevice:
    return VmDevice(alias, DeviceKind.DIMM, node, size_bytes, size_bytes)


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
    "cells": compose_domain(
        IDENTITY,
        bare(
            vcpus=4,
            max_vcpus=8,
            max_memory_bytes=1536 * MIB,
            cells=(CellSize(0, 384 * MIB), CellSize(1, 128 * MIB)),
            devices=(
                VmDevice("ua-memory0", DeviceKind.VIRTIO_MEM, 0, 1024 * MIB, 0),
                VmDevice("ua-memory1", DeviceKind.VIRTIO_MEM, 1, 1024 * MIB, 256 * MIB),
            ),
            topology=VmTopology(cores=2, threads=2),
        ),
        KERNEL,
        LOG,
        Accelerator.TCG,
    ),
    "dimms": compose_domain(
        IDENTITY,
        bare(
            memory_bytes=1152 * MIB,
            devices=(_dimm("ua-dimm0", 0, 512 * MIB), _dimm("ua-dimm3", 0, 128 * MIB)),
        ),
        KERNEL,
        LOG,
        Accelerator.TCG,
    ),
    "balloon": compose_domain(
        IDENTITY,
        bare(boot_memory_bytes=2048 * MIB, memory_bytes=768 * MIB, balloon_bytes=768 * MIB),
        KERNEL,
        LOG,
        Accelerator.TCG,
    ),
    "tuned": msgspec.structs.replace(
        compose_domain(IDENTITY, small(), KERNEL, LOG, Accelerator.KVM),
        tune=VmTune(shares=2048, quota_us=150_000, period_us=100_000),
    ),
    "one_vcpu_500_mib": compose_domain(
        IDENTITY,
        bare(
            max_vcpus=1,
            boot_memory_bytes=500 * MIB,
            memory_bytes=500 * MIB,
            max_memory_bytes=500 * MIB,
        ),
        KERNEL,
        LOG,
        Accelerator.TCG,
    ),
    "four_tebibytes_in_cells": compose_domain(
        IDENTITY,
        bare(
            vcpus=64,
            max_vcpus=252,
            boot_memory_bytes=1 << 40,
            memory_bytes=1 << 40,
            max_memory_bytes=4 << 40,
            cells=tuple(CellSize(number, 128 << 30) for number in range(8)),
            devices=tuple(
                VmDevice(f"ua-memory{number}", DeviceKind.VIRTIO_MEM, number, 3 << 40, 0)
                for number in range(8)
            ),
        ),
        KERNEL,
        LOG,
        Accelerator.KVM,
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


def _model(
    cells: tuple[int, ...], boot: int, left: float | None, kernel_or_disk: Boot, **facts: Any
) -> DomainModel:
    """What can be: cells make the boot memory, and the balloon leaves a part of it."""
    boot_bytes = sum(cells) if len(cells) > 1 else boot
    balloon_bytes = None if left is None else int(boot_bytes * left) // 1024 * 1024
    sizes = tuple(CellSize(number, size) for number, size in enumerate(cells))
    return DomainModel(
        boot_memory_bytes=boot_bytes,
        cells=sizes if len(cells) > 1 else (),
        balloon_bytes=balloon_bytes,
        boot=kernel_or_disk,
        **facts,
    )


numbers = st.none() | st.integers(2, 10**9)
models = st.builds(
    _model,
    cells=st.lists(blocks, max_size=8).map(tuple),
    boot=blocks,
    left=st.none() | st.floats(0, 1),
    topology=st.none() | st.builds(VmTopology, st.integers(1, 4), st.integers(1, 4)),
    tune=st.builds(VmTune, numbers, numbers, numbers),
    name=words,
    uuid=st.uuids().map(str),
    accelerator=st.sampled_from(Accelerator),
    max_vcpus=st.integers(4, 300),
    vcpus=st.integers(1, 4),
    max_memory_bytes=blocks,
    kernel_or_disk=st.one_of(
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


@given(models, st.builds(VmTune, numbers, numbers, numbers))
def test_another_share_of_cpu_time_changes_nothing_else(model: DomainModel, tune: VmTune) -> None:
    assert parse(with_tune(render(model), tune)) == msgspec.structs.replace(model, tune=tune)


@pytest.mark.parametrize(
    ("rule", "cells", "max_vcpus", "topology", "blocks"),
    [
        ("one cell has all", 1, 4, None, ((0, 3),)),
        ("equal blocks", 2, 8, None, ((0, 3), (4, 7))),
        ("what is left goes first", 3, 8, None, ((0, 2), (3, 5), (6, 7))),
        ("whole sockets", 2, 12, VmTopology(2, 2), ((0, 7), (8, 11))),
        ("too few sockets", 4, 8, VmTopology(4, 1), ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("more cells than vCPUs", 3, 2, None, ((0, 0), (1, 1), (2, 1))),
    ],
)
def test_vcpus_go_to_cells_in_equal_blocks(
    rule: str,
    cells: int,
    max_vcpus: int,
    topology: VmTopology | None,
    blocks: tuple[tuple[int, int], ...],
) -> None:
    assert vcpu_blocks(cells, max_vcpus, topology) == blocks, rule


@given(st.integers(1, 8), st.integers(1, 255))
def test_every_vcpu_is_in_one_cell(cells: int, max_vcpus: int) -> None:
    found = vcpu_blocks(cells, max_vcpus)
    assert [vcpu for first, last in found for vcpu in range(first, last + 1)] == list(
        range(max_vcpus)
    )
    sizes = [last - first + 1 for first, last in found]
    assert max(sizes) - min(sizes) <= 1


sizes = st.integers(250, 2 << 20).map(lambda count: count * 2 * MIB)


@given(st.tuples(sizes, sizes, sizes), st.integers(1, 255), st.integers(1, 8), st.booleans())
def test_from_500_mib_to_four_tebibytes_the_parts_add_up(
    three: tuple[int, int, int], max_vcpus: int, cells: int, has_balloon: bool
) -> None:
    least, boot, most = sorted(three)
    boot -= boot % (cells * 2 * MIB)
    each = tuple(CellSize(number, boot // cells) for number in range(cells))
    vm = bare(
        vcpus=1,
        max_vcpus=max_vcpus,
        boot_memory_bytes=boot,
        memory_bytes=min(least, boot) if has_balloon else boot,
        max_memory_bytes=most,
        cells=each,
        balloon_bytes=min(least, boot) if has_balloon else None,
    )
    xml = render(compose_domain(IDENTITY, vm, KERNEL, LOG, Accelerator.KVM))
    root = ET.fromstring(xml)
    facts = parse_facts(xml)
    assert facts.boot_memory_bytes == boot
    assert facts.balloon_bytes == vm.balloon_bytes
    assert facts.max_memory_bytes == boot + cells * (most - boot)
    assert int(root.findtext("memory") or 0) * 1024 == boot
    assert [cell.memory_bytes for cell in facts.cells] == [one.memory_bytes for one in each] or (
        cells == 1 and most == boot
    )


def test_a_dimm_counts_into_what_libvirt_says_and_not_into_what_the_balloon_leaves() -> None:
    model = msgspec.structs.replace(CASES["dimms"], balloon_bytes=256 * MIB)
    xml = render(model)
    assert f'<currentMemory unit="KiB">{(256 + 640) * 1024}<' in xml
    facts = parse_facts(xml)
    assert facts.balloon_bytes == 256 * MIB
    dimms = [
        {"type": "dimm", "data": {"id": "ua-dimm0", "size": 512 * MIB}},
        {"type": "virtio-mem", "data": {"id": "ua-memory0", "size": 64 * MIB}},
    ]
    for actual_mib, left_mib in ((800, 288), (512, 0), (100, 0), (9999, 512)):
        left = with_balloon(facts, actual_mib * MIB, dimms).balloon_bytes
        assert left == left_mib * MIB, "never more than there is, whatever the guest says"


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
