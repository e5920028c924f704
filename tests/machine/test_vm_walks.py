"""Guests of each memory technology that are resized again and again, at random, and booted again
in between: whatever came before, one size everywhere, and the guest's own figure moves by just
that."""

from __future__ import annotations

import random
import re

import pytest

from booted_guests import C, X, only
from system.vm import MIB
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

MOST_MIB = 1280
STEPS_MIB = {"virtio-mem": 2, "dimm": 128, "balloon": 2}


class Walk:
    def __init__(self, guest: Witness, technology: str, seed: int) -> None:
        self.guest = guest
        self.step_mib = STEPS_MIB[technology]
        self.source = random.Random(seed)
        self.refused = 0

    def resize(self, most_mib: int) -> None:
        """To any size the technology has; what its modules cannot come to is refused with sizes
        that they can, of which one is taken instead."""
        vm, step = self.guest.vm, self.step_mib
        vcpus = self.source.randint(1, 4)
        memory_mib = X + step * self.source.randint(0, (most_mib - X) // step)
        code, answer = vm.ask(cpu=str(vcpus), memory=f"{memory_mib}Mi")
        assert code == 200, answer
        vm.until(lambda: vm.state.get("phase") in ("Done", "None", "Error"), "it has ended", 60)
        if vm.state["phase"] == "Error":
            nearest = re.search(r"nearest sizes? (?:is|are) (\d+)", vm.state["message"])
            assert nearest, vm.state
            self.refused += 1
            memory_mib = int(nearest[1]) // MIB
            vm.resize(cpu=str(vcpus), memory=f"{memory_mib}Mi")
        self.guest.holds(vcpus, memory_mib)
        self.size = vcpus, memory_mib

    def reboot(self) -> None:
        """And from here on the guest is compared with what it says after it."""
        vcpus, memory_mib = self.size
        vm = self.guest.vm
        self.guest.reboots(memory_mib)
        vm.until(lambda: vm.online_vcpus() == vcpus, "the guest uses its vCPUs", 60)
        vm.check(vcpus, memory_mib)
        self.guest = Witness(vm, memory_mib)


@only("dimm")
@pytest.mark.parametrize(
    ("seed", "resizes", "most_mib"),
    [
        pytest.param(7, 15, 768, id="15"),
        pytest.param(8, 100, MOST_MIB, id="100", marks=pytest.mark.matrix),
    ],
)
def test_a_random_walk_with_a_reboot_in_it(
    guest: Witness, technology: str, seed: int, resizes: int, most_mib: int
) -> None:
    walk = Walk(guest, technology, seed)
    for number in range(resizes):
        walk.resize(most_mib)
        if number % 50 == resizes // 2 % 50:
            walk.reboot()
    walk.guest.vm.resize(cpu=str(C), memory=f"{X}Mi")
    walk.guest.holds(C, X)


@only("dimm")
def test_it_boots_again_at_its_last_allocated_size(guest: Witness) -> None:
    """ARK, Future works: "dynamically determine boot VM with its previously allocated memory
    instead of bootTimeMemoryAllocation" (F90). QEMU itself is killed."""
    vm = guest.vm
    guest.reaches(C + 1, 896)
    restarts = vm.status["restartCount"]
    vm.kill_qemu()
    vm.wait_ready(restarts + 1)
    vm.until(lambda: vm.plugged_bytes() == 896 * MIB, "the guest has its memory", 60)
    vm.until(lambda: vm.state.get("phase") in ("Done", "None"), "nothing is under way", 60)
    vm.check(C + 1, 896)
    after = Witness(vm, 896)
    after.reaches(C, X)
