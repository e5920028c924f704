"""ARK's test cases for virtual machines on the real system: one guest, asked every time.

Each test quotes what of the document it checks; X is 512Mi, Delta 256Mi, C is 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.groups import start_time
from system.vm import MIB, Vm, running_vm

pytestmark = pytest.mark.vms

X, DELTA, C = 512, 256, 1


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    with running_vm(tmp_path_factory.mktemp("up"), cpu=str(C), memory=f"{X}Mi") as vm:
        yield vm


class Witness:
    """The guest before a test; nothing of it may restart, and its memory is compared with this."""

    def __init__(self, vm: Vm) -> None:
        self.vm = vm
        self.boot_id = vm.boot_id()
        self.total = vm.memory_total()
        self.qemu = start_time(vm.status["pid"])

    def reaches(self, vcpus: int, memory_mib: int) -> None:
        self.vm.resize(cpu=str(vcpus), memory=f"{memory_mib}Mi")
        self.holds(vcpus, memory_mib)

    def holds(self, vcpus: int, memory_mib: int) -> None:
        self.vm.check(vcpus, memory_mib)
        assert self.vm.memory_total() - self.total == (memory_mib - X) * MIB
        assert self.vm.boot_id() == self.boot_id
        assert start_time(self.vm.status["pid"]) == self.qemu


@pytest.fixture
def guest(booted: Vm) -> Witness:
    booted.resize(cpu=str(C), memory=f"{X}Mi")
    return Witness(booted)


def test_memory_up_and_back(guest: Witness) -> None:
    """1. set VM memory to X + Delta; then reduce it to X"""
    guest.reaches(C, X + DELTA)
    guest.reaches(C, X)


@pytest.mark.matrix
def test_memory_up_twice_and_back(guest: Witness) -> None:
    """2. set memory to X + Delta; repeat to increase memory to X + 3*Delta; then reduce memory
    to X"""
    for memory in (X + DELTA, X + 3 * DELTA, X):
        guest.reaches(C, memory)


def test_one_vcpu_up_and_back(guest: Witness) -> None:
    """3. set VM vcpus to C+1, then reduce it to C"""
    guest.reaches(C + 1, X)
    guest.reaches(C, X)


def test_three_vcpus_up_and_two_back(guest: Witness) -> None:
    """4. set VM vcpus to C + 3, then reduce it to C+1"""
    guest.reaches(C + 3, X)
    guest.reaches(C + 1, X)


def test_both_at_once(guest: Witness) -> None:
    """1. do combined changes in #1 and #3; 2. do combined changes in #2 and #4"""
    for vcpus, memory in ((C + 1, X + DELTA), (C, X), (C + 3, X + 3 * DELTA), (C + 1, X)):
        guest.reaches(vcpus, memory)


def test_a_domain_changed_by_hand_comes_back(guest: Witness) -> None:
    """ensure they are synchronized [...] The ContainerStatus() function will sync up the vmConfig
    and Libvirt domain definition if they are out of sync."""
    vm = guest.vm
    vm.persist_vcpus(3)
    vm.write_note(3 * X * MIB)
    for group in (vm.group.pod(), vm.group):
        group.set_memory_limit(5 * X * MIB)
    limit = X * MIB + vm.overhead

    def is_back() -> bool:
        found = vm.sizes()
        groups = {found.pod_limit, found.vm_limit}
        return found.persistent == C and str(3 * X * MIB) not in found.note and groups == {limit}

    vm.request_memory(256)
    vm.until(is_back, "definition, metadata and groups are back")
    vm.until(lambda: vm.sizes().plugged == X * MIB, "the guest's memory is back")
    guest.holds(C, X)


def test_the_domain_says_how_many_vcpus_there_are_of_how_many(guest: Witness) -> None:
    """LIVE: <vcpu placement='static' current='2'>4</vcpu>; ARK's maxMemory slots='16'."""
    guest.reaches(C + 1, X)
    domain = guest.vm.xml()
    vcpu, memory = domain.find("vcpu"), domain.find("maxMemory")
    assert vcpu is not None
    assert (vcpu.text, vcpu.get("current")) == ("6", str(max(C + 1, guest.vm.plugged_vcpus())))
    assert memory is not None
    assert memory.get("slots") == "16"


def test_fractional_cpu_is_refused(guest: Witness) -> None:
    """For VM, fractional CPU increase is not supported. i.e. CPU change must be entire vCPU."""
    code, answer = guest.vm.ask(cpu="1500m")
    assert code == 422
    assert "the nearest sizes are 1 and 2" in answer["message"]
    guest.holds(C, X)


# Last: emulated, now and then a guest does not come back from it, and the others share it.
@pytest.mark.parametrize("how", ["reset", pytest.param("reboot", marks=pytest.mark.matrix)])
def test_a_reboot_keeps_the_sizes(guest: Witness, how: str) -> None:
    """2. set VM memory to X + Delta, vcpus to C+1; reboot VM; verify memory X+Delta and vcpus C+1
    after reboot"""
    guest.reaches(C + 1, X + DELTA)
    vm = guest.vm
    restarts = vm.status["restartCount"]
    vm.reset() if how == "reset" else vm.reboot()
    vm.until(
        lambda: (
            vm.status["guest"].get("bootId") not in (None, guest.boot_id)
            and vm.status["guest"]["memoryPlugged"] == f"{X + DELTA}Mi"
            and vm.status["guest"]["vcpusOnline"] == C + 1
        ),
        "the guest has booted again with its sizes",
        90,
    )
    vm.check(C + 1, X + DELTA)
    assert vm.status["restartCount"] == restarts
    assert start_time(vm.status["pid"]) == guest.qemu, "QEMU goes on"
