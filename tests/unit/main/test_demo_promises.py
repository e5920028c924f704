"""The demo is not easily content: each thing it shows can break it, and says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from livesize.cli.doctor.vm_checks import VmTools
from livesize.demo.groups import GroupProof, check_group
from livesize.demo.guest_witness import GuestReading, parse_word
from livesize.demo.leftovers import DemoLeftovers
from livesize.demo.pods import check_settled
from livesize.demo.promises import BrokenPromiseError
from livesize.demo.requirements import missing_for_vms
from livesize.demo.virtual_machine import LARGE, SMALL, VmProof, check_proof

MIB = 1 << 20
OVERHEAD = 232 * MIB
FIRST = VmProof(
    GuestReading(1, 403 * MIB, 10.0, "boot-1"), GroupProof(7, 70, 100_000, 512 * MIB + OVERHEAD)
)
GROWN = VmProof(
    GuestReading(4, 1939 * MIB, 14.0, "boot-1"), GroupProof(7, 70, 400_000, 2048 * MIB + OVERHEAD)
)


def test_a_guest_that_grew_and_shrank_keeps_every_promise() -> None:
    check_proof("start", SMALL, FIRST, FIRST, OVERHEAD)
    check_proof("grow", LARGE, GROWN, FIRST, OVERHEAD)


@pytest.mark.parametrize(
    ("guest", "group", "words"),
    [
        ({"boot_id": "boot-2"}, {}, "booted again"),
        ({"uptime_seconds": 1.0}, {}, "booted again"),
        ({"vcpus_online": 3}, {}, "uses 3 vCPUs, not 4"),
        ({"memory_total_bytes": 1938 * MIB}, {}, "more than at first"),
        ({}, {"pid": 8}, "pid 7 became 8"),
        ({}, {"start_ticks": 71}, "pid 7 became 7"),
        ({}, {"quota_us": 100_000}, "CPU quota is 100000 µs, not 400000"),
        ({}, {"limit_bytes": 2048 * MIB}, "memory limit is"),
        ({}, {"limit_bytes": None}, "memory limit is None"),
    ],
)
def test_a_guest_that_differs_in_one_thing_breaks_one(
    guest: dict[str, Any], group: dict[str, Any], words: str
) -> None:
    replace = msgspec.structs.replace
    proof = VmProof(replace(GROWN.guest, **guest), replace(GROWN.group, **group))
    with pytest.raises(BrokenPromiseError, match=words):
        check_proof("grow", LARGE, proof, FIRST, OVERHEAD)


def test_a_group_without_a_quota_breaks_one() -> None:
    proof = GroupProof(7, 70, None, 64 * MIB)
    with pytest.raises(BrokenPromiseError, match="CPU quota is None"):
        check_group("shrink", proof, proof, (300, 64 * MIB))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"restartCount": 1}, "pod db was restarted"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}, "actual 2"),
        ({"allocatedResources": {"cpu": "2"}}, "allocated 2"),
    ],
)
def test_desired_allocated_and_actual_must_be_one(change: dict[str, Any], words: str) -> None:
    size = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    status = {"name": "app", "resources": size, "allocatedResources": {"cpu": "1"}}

    def pod(status: dict[str, Any]) -> dict[str, Any]:
        return {
            "metadata": {"name": "db"},
            "spec": {"containers": [{"name": "app", "resources": size}]},
            "status": {"containerStatuses": [{"state": {"running": {}}, **status}]},
        }

    check_settled(pod(status))
    with pytest.raises(BrokenPromiseError, match=words):
        check_settled(pod({**status, **change}))


@pytest.mark.parametrize(("online", "count"), [("0", 1), ("0-3", 4), ("0,2-3,7", 4)])
def test_the_guests_own_files_are_read(online: str, count: int) -> None:
    files = {
        "/proc/meminfo": "MemTotal:  412724 kB\nMemFree: 1 kB\n",
        "/proc/uptime": "14.12 10.00\n",
        "/proc/sys/kernel/random/boot_id": "72c0d6d2\n",
        "/sys/devices/system/cpu/online": f"{online}\n",
    }
    assert parse_word(files) == GuestReading(count, 412724 * 1024, 14.12, "72c0d6d2")


PLENTY = "MemAvailable: 8388608 kB\n"


@pytest.mark.parametrize(
    ("tools", "meminfo", "words"),
    [
        (VmTools("QEMU emulator version 10.0.2", "libvirtd (libvirt) 11.3.0"), PLENTY, []),
        (VmTools("QEMU emulator version 8.2.2", "libvirtd (libvirt) 10.0.0"), PLENTY, []),
        (VmTools(None, "11.3.0"), PLENTY, ["QEMU is not installed"]),
        (VmTools("10.0.2", None, "no module"), PLENTY, ["libvirt is not", "bindings do not"]),
        (VmTools("10.0.2", "11.3.0"), "MemAvailable: 1048576 kB\n", ["1024 MiB of memory"]),
    ],
    ids=["all there", "older is tried", "no QEMU", "no libvirt", "little memory"],
)
def test_what_is_missing_comes_with_a_remedy(
    tools: VmTools, meminfo: str, words: list[str]
) -> None:
    missing = missing_for_vms(tools, meminfo)
    assert [said for said, word in zip(missing, words, strict=True) if word not in said] == []
    assert all(said.count("\n") == 1 for said in missing)


def test_leftovers_are_named() -> None:
    assert not DemoLeftovers()
    assert str(DemoLeftovers((7,), ("livesize/x",))) == "process 7, control group livesize/x"
