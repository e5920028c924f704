"""What a VM's domain looks like, which vCPUs a guest switches, and what would abort QEMU."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.libvirt.compose import compose_domain, plan_switch
from livesize.runtime.libvirt.emulator import (
    check_creations,
    check_room,
    count_regions,
    free_regions,
)
from livesize.runtime.libvirt.identity import DomainIdentity, pod_of
from livesize.runtime.libvirt.model import Boot, DomainDisk, DomainKernel
from livesize.runtime.vm import Accelerator
from livesize.runtime.vm_checks import check_sizes
from livesize.runtime.vm_config import COMMAND_LINE, VmConfig
from vms.sizes import with_devices

MIB = 1024 * 1024
VM = with_devices(VmConfig(1, 4, 512 * MIB, 2048 * MIB, 512 * MIB, kernel="k"))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("0 vCPUs", {"vcpus": 0}),
        ("5 vCPUs of at most 4", {"vcpus": 5}),
        ("between", {"memory_bytes": 4096 * MIB}),
        ("between", {"memory_bytes": 256 * MIB}),
        ("2 MiB", {"memory_bytes": 513 * MIB}),
        ("2 MiB", {"max_memory_bytes": 2049 * MIB}),
        ("nothing to boot", {"kernel": ""}),
        ("a kernel and a disk", {"disk": "d"}),
    ],
)
def test_nonsense_is_refused(rule: str, changes: dict[str, object]) -> None:
    with pytest.raises(RuntimeCallError, match=rule):
        check_sizes(msgspec.structs.replace(VM, **changes))


half_gibibytes = st.integers(1, 64)


@given(half_gibibytes, half_gibibytes, half_gibibytes, st.integers(0, 200))
def test_the_guest_gets_its_size_and_has_room_for_its_maximum(
    first: int, second: int, third: int, odd_blocks: int
) -> None:
    boot, memory, maximum = (size * 512 * MIB for size in sorted((first, second, third)))
    maximum += odd_blocks * 2 * MIB
    vm = with_devices(VmConfig(1, 4, memory, maximum, boot, kernel="k"))
    model = compose_domain(
        DomainIdentity("uid", "uid"), vm, DomainKernel("k"), "log", Accelerator.TCG
    )
    requested = sum(device.requested_bytes for device in model.devices)
    room = sum(device.size_bytes for device in model.devices)
    assert boot + requested == memory
    assert maximum <= boot + room < maximum + 128 * MIB
    assert boot + room == model.max_memory_bytes
    assert all(device.size_bytes % (128 * MIB) == 0 for device in model.devices)


def test_a_vm_has_its_name_and_uuid_in_whichever_pod_it_runs() -> None:
    source, target = (
        compose_domain(DomainIdentity("vm", pod), VM, DomainKernel("k"), "log", Accelerator.TCG)
        for pod in ("a", "b")
    )
    assert (source.name, source.uuid) == (target.name, target.uuid)
    assert (source.pod_uid, target.pod_uid) == ("a", "b"), "whose it is, is the pod's"
    assert target == msgspec.structs.replace(source, pod_uid="b"), "sizes and devices go along"


def test_the_domain_of_an_earlier_version_has_the_same_uuid() -> None:
    """It was made of the pod's uid: "pod-UID", and this UUID."""
    uid = "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a01"
    assert DomainIdentity(uid, uid).uuid == "9ec4b333-f56e-5e0c-8479-3b0e67519bc2"
    root = ET.fromstring(f"<domain><name>pod-{uid}</name></domain>")
    assert pod_of(root) == uid


def test_two_pods_never_share_a_domain() -> None:
    one, two = (
        compose_domain(DomainIdentity(uid, uid), VM, DomainKernel("k"), "log", Accelerator.TCG)
        for uid in ("a", "b")
    )
    assert one.uuid != two.uuid
    assert one.name != two.name


@pytest.mark.parametrize(
    ("boot", "accelerator", "changes"),
    [
        (DomainKernel("k", "i", COMMAND_LINE), Accelerator.TCG, True),
        (DomainKernel("k", "i", COMMAND_LINE), Accelerator.KVM, False),
        (DomainKernel("k", "i", "one's own"), Accelerator.TCG, False),
        (DomainDisk("d"), Accelerator.TCG, False),
    ],
)
def test_an_emulated_guest_of_ours_boots_on_one_vcpu(
    boot: Boot, accelerator: Accelerator, *, changes: bool
) -> None:
    found = compose_domain(DomainIdentity("a", "a"), VM, boot, "log", accelerator).boot
    assert found == (DomainKernel("k", "i", f"{COMMAND_LINE} maxcpus=1") if changes else boot)


@pytest.mark.parametrize(
    ("rule", "online", "count", "on", "off"),
    [
        ("nothing to do", (0, 1), 2, (), ()),
        ("lowest come on first", (0,), 3, (1, 2), ()),
        ("highest go off first", (0, 1, 2, 3), 2, (), (2, 3)),
        ("gaps are filled", (0, 3), 3, (1,), ()),
    ],
)
def test_which_vcpus_are_switched(
    rule: str, online: tuple[int, ...], count: int, on: tuple[int, ...], off: tuple[int, ...]
) -> None:
    assert plan_switch(online, (1, 2, 3), (0, 1, 2, 3), count) == (on, off), rule


@given(st.integers(1, 32), st.integers(1, 32), st.sets(st.integers(1, 31)))
def test_as_many_are_on_as_were_asked_for(present: int, count: int, off_now: set[int]) -> None:
    everybody = tuple(range(present))
    online = [number for number in everybody if number not in off_now]
    if count > present:
        with pytest.raises(RuntimeCallError, match="plug them in first"):
            plan_switch(online, everybody[1:], everybody, count)
        return
    on, off = plan_switch(online, everybody[1:], everybody, count)
    after = (set(online) | set(on)) - set(off)
    assert len(after) == count
    assert 0 in after
    assert not (on and off)


def test_the_first_vcpu_cannot_be_switched_off() -> None:
    with pytest.raises(RuntimeCallError, match="can switch off 1"):
        plan_switch((0, 1), (1,), (0, 1), 0)


JIT = "Translation buffer state:\ngen code size       {used}/{cache}\nTB count 102114\n"


@pytest.mark.parametrize(
    ("cache_mib", "max_vcpus", "regions"),
    [(64, 1, 1), (64, 4, 32), (128, 4, 32), (128, 8, 64), (64, 64, 64), (64, 255, 255)],
)
def test_the_cache_is_divided_as_qemu_divides_it(
    cache_mib: int, max_vcpus: int, regions: int
) -> None:
    assert count_regions(cache_mib * MIB, max_vcpus) == regions


def test_the_cache_that_aborted_qemu_is_refused() -> None:
    """Seen: 62,762,643 of 66,945,024 bytes with two vCPUs, and two more aborted QEMU 10.0.2."""
    jit = JIT.format(used=62_762_643, cache=66_945_024)
    with pytest.raises(RuntimeCallError, match="room for 0 more vCPUs"):
        check_room(jit, max_vcpus=4, plugged=2, added=2)


def test_a_cache_with_room_is_not() -> None:
    check_room(JIT.format(used=57_896_227, cache=134_053_888), max_vcpus=4, plugged=1, added=3)


def test_where_qemu_does_not_say_nobody_is_held_up() -> None:
    assert free_regions("JIT information is only available with accel=tcg", 4, 1) is None
    check_room("", max_vcpus=4, plugged=1, added=3)


@given(st.integers(0, 128 * MIB), st.integers(2, 64), st.integers(1, 64))
def test_the_fuller_the_cache_the_less_room(used: int, max_vcpus: int, plugged: int) -> None:
    cache = 128 * MIB
    free = free_regions(JIT.format(used=used, cache=cache), max_vcpus, plugged)
    fuller = free_regions(JIT.format(used=used + MIB, cache=cache), max_vcpus, plugged)
    assert free is not None
    assert fuller is not None
    assert fuller <= free <= count_regions(cache, max_vcpus) - plugged


def test_more_vcpus_than_qemu_can_create_are_refused() -> None:
    check_creations(4, 4)
    with pytest.raises(RuntimeCallError, match="create 4 vCPUs in its life"):
        check_creations(5, 4)
