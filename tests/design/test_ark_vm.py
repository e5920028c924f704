"""ARK's test cases for virtual machines on the real system: one guest of each memory technology,
asked every time.

Each test quotes what of the document it checks; X is 512Mi, Delta 256Mi, C is 1. The manifest and
the test are the same for all technologies, the node's setting differs (F75).
"""

from __future__ import annotations

import pytest

from booted_guests import C, X, only
from system.vm import MIB
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

DELTA = 256


@only()
def test_memory_up_and_back(guest: Witness) -> None:
    """1. set VM memory to X + Delta; then reduce it to X"""
    guest.reaches(C, X + DELTA)
    guest.reaches(C, X)


def test_memory_up_twice_and_back(guest: Witness) -> None:
    """2. set memory to X + Delta; repeat to increase memory to X + 3*Delta; then reduce memory
    to X"""
    for memory in (X + DELTA, X + 3 * DELTA, X):
        guest.reaches(C, memory)


@only("virtio-mem")
def test_one_vcpu_up_and_back(guest: Witness) -> None:
    """3. set VM vcpus to C+1, then reduce it to C"""
    guest.reaches(C + 1, X)
    guest.reaches(C, X)


@only("virtio-mem")
def test_three_vcpus_up_and_two_back(guest: Witness) -> None:
    """4. set VM vcpus to C + 3, then reduce it to C+1"""
    guest.reaches(C + 3, X)
    guest.reaches(C + 1, X)


@only("virtio-mem", "dimm")
def test_both_at_once(guest: Witness) -> None:
    """1. do combined changes in #1 and #3"""
    guest.reaches(C + 1, X + DELTA)
    guest.reaches(C, X)


@only()
def test_both_at_once_and_more(guest: Witness) -> None:
    """2. do combined changes in #2 and #4"""
    for vcpus, memory in ((C + 3, X + DELTA), (C + 3, X + 3 * DELTA), (C + 1, X)):
        guest.reaches(vcpus, memory)


@only("virtio-mem")
def test_the_domain_says_how_many_vcpus_there_are_of_how_many(guest: Witness) -> None:
    """LIVE: <vcpu placement='static' current='2'>4</vcpu>; ARK's maxMemory slots='16'."""
    guest.reaches(C + 1, X)
    domain = guest.vm.xml()
    vcpu, memory = domain.find("vcpu"), domain.find("maxMemory")
    assert vcpu is not None
    assert (vcpu.text, vcpu.get("current")) == ("6", str(max(C + 1, guest.vm.plugged_vcpus())))
    assert memory is not None
    assert memory.get("slots") == "16"


def test_the_technology_is_the_nodes(guest: Witness, technology: str) -> None:
    """KCPU: the technology can be swapped without touching the API. X + Delta is in devices of the
    one that the node is set to, and of no other."""
    assert "technology" not in guest.vm.pod["spec"]["virtualMachine"]["memory"]
    guest.reaches(C, X + DELTA)
    kinds = {device.kind for device in guest.vm.devices()}
    assert kinds == (set() if technology == "balloon" else {technology})
    balloon = guest.vm.xml().find("devices/memballoon")
    assert balloon is not None
    assert (balloon.get("model") == "virtio") == (technology == "balloon")


@only("virtio-mem")
def test_fractional_cpu_is_refused(guest: Witness) -> None:
    """For VM, fractional CPU increase is not supported. i.e. CPU change must be entire vCPU."""
    code, answer = guest.vm.ask(cpu="1500m")
    assert code == 422
    assert "the nearest sizes are 1 and 2" in answer["message"]
    guest.holds(C, X)


# Last: emulated, now and then a guest does not come back from it.
@only("virtio-mem", "dimm")
@pytest.mark.parametrize("by_guest", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_a_reboot_keeps_the_sizes(guest: Witness, *, by_guest: bool) -> None:
    """1. set VM memory to X + Delta; reboot VM; verify the memory is X + Delta after reboot; 2. set
    VM memory to X + Delta, vcpus to C+1; reboot VM; verify memory X+Delta and vcpus C+1 after
    reboot"""
    guest.reaches(C + 1, X + DELTA)
    vm = guest.vm
    guest.reboots(X + DELTA, by_guest=by_guest)
    vm.until(lambda: vm.online_vcpus() == C + 1, "the guest uses its vCPUs", 60)
    vm.until(lambda: vm.plugged_bytes() == (X + DELTA) * MIB, "it has its memory", 60)
    vm.check(C + 1, X + DELTA)
    # The total of another boot is no measure: that what it has above X is there, it shows here.
    after = Witness(vm, X + DELTA)
    after.reaches(C, X)
