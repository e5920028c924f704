"""`livesize up --cpu-policy static` and virtual machines: what libvirt says of their pins, what the
kernel says of their threads, and what their group says, which all agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from leaks import claim
from livesize.api.cpu_list import format_cpu_list, parse_cpu_list
from system.up import Up
from system.vm import Vm, install_images

pytestmark = pytest.mark.vms

POLICY = ("--cpu-policy", "static")
CPUS = sorted(os.sched_getaffinity(0))
BURSTABLE = {
    "requests": {"cpu": "1", "memory": "512Mi"},
    "limits": {"cpu": "2", "memory": "512Mi"},
}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path / "up", allocatable="cpu=16,memory=8Gi")
    install_images(up.directory)
    claim(f"{up.node}-vms", up.directory)
    up.start(*POLICY)
    yield up
    up.end()


def threads(vm: Vm) -> dict[str, set[int]]:
    """Of QEMU, by name: where the kernel lets them run. The first is QEMU's own."""
    pid = int(vm.status["pid"])
    found = {"emulator": os.sched_getaffinity(pid)}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("CPU "):
            found[name.partition("/")[0]] = os.sched_getaffinity(int(task.name))
    return found


def pins(vm: Vm, flags: int = 0) -> dict[str, set[int]]:
    """The same by libvirt's document."""
    tune = vm.xml(flags).find("cputune")
    assert tune is not None, "the domain says nothing of CPUs"
    return {
        f"CPU {pin.get('vcpu')}" if pin.tag == "vcpupin" else "emulator": set(
            parse_cpu_list(pin.get("cpuset", ""))
        )
        for pin in tune
    }


def is_on(vm: Vm, vcpus: int, cpus: list[int]) -> bool:
    """Group, threads, the running domain and the persistent one, all of them."""
    names = ("emulator", *(f"CPU {number}" for number in range(vcpus)))
    wanted = {name: set(cpus) for name in names}
    places = (threads(vm), pins(vm), pins(vm, libvirt.VIR_DOMAIN_XML_INACTIVE))
    bound = vm.group.cpus() == format_cpu_list(cpus)
    return bound and all(place == wanted for place in places)


def started(vm: Vm) -> None:
    vm.until(lambda: vm.status.get("pid"), f"{vm.name} was started")


def test_one_has_its_cpu_alone_and_the_other_follows_what_is_shared(up: Up) -> None:
    shared, alone = Vm(up, "shared"), Vm(up, "alone")
    shared.ask_for("2", "512Mi", resources=BURSTABLE)
    shared.wait_ready()
    assert is_on(shared, 2, CPUS)

    alone.ask_for("1", "512Mi")
    started(alone)
    own, rest = CPUS[1:2], [CPUS[0], *CPUS[2:]]
    assert is_on(alone, 1, own), (threads(alone), pins(alone))
    shared.until(lambda: is_on(shared, 2, rest), "the other has left it")

    code, answer = shared.ask(cpu="3")
    assert code == 422, f"one that shares stays so: {answer}"
    up.request(
        "PATCH",
        f"{shared.path}/resize",
        {"spec": {"virtualMachine": {"resources": {"limits": {"cpu": "3"}}}}},
        "application/merge-patch+json",
    )
    shared.wait_resized()
    assert is_on(shared, 3, rest), (threads(shared), pins(shared))

    pids = shared.status["pid"], alone.status["pid"]
    up.kill()
    up.start(*POLICY)
    assert is_on(alone, 1, own)
    assert is_on(shared, 3, rest)
    assert (shared.status["pid"], alone.status["pid"]) == pids, "nothing restarted"

    alone.delete()
    shared.until(lambda: is_on(shared, 3, CPUS), "all is shared again")


@pytest.mark.matrix
def test_a_vm_that_is_started_again_has_the_same_cpu(up: Up) -> None:
    alone, own = Vm(up, "alone"), CPUS[1:2]
    alone.create("1", "512Mi")
    assert is_on(alone, 1, own)
    pid = alone.status["pid"]
    alone.destroy()
    alone.wait_ready(restarts=1)
    assert alone.status["pid"] != pid
    assert is_on(alone, 1, own)
    boot_id = alone.boot_id()
    alone.reboot()
    alone.until(lambda: alone.status["guest"].get("bootId", boot_id) != boot_id, "it boots", 60)
    assert is_on(alone, 1, own)


@pytest.mark.matrix
def test_pins_changed_by_hand_come_back(up: Up) -> None:
    alone, own = Vm(up, "alone"), CPUS[1:2]
    alone.create("1", "512Mi")
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
    with alone.domain() as domain:
        domain.pinVcpuFlags(0, tuple(True for _ in range(max(CPUS) + 1)), live)
    assert pins(alone)["CPU 0"] == set(CPUS)
    alone.until(lambda: is_on(alone, 1, own), "it has its own again")
