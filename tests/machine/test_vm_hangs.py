"""Guests that hang in the middle of a change of their memory, of each technology: the condition
says what the guest does not do, nothing of Livesize waits for it, and the change goes on by itself
when the guest does."""

from __future__ import annotations

import pytest

from booted_guests import MEMORY, C, X, only
from system.vm import MIB, Vm
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

DELTA = 256


def says_what_it_waits_for(vm: Vm) -> None:
    """It stays under way, and says whose turn it is."""
    vm.until(lambda: vm.condition("PodResizeInProgress"), "it is under way")
    vm.says("memory:")
    assert vm.state["phase"] in ("InProgress", "Error"), vm.state


def is_quick(vm: Vm) -> None:
    """CPUs of another VM on the same node do not wait for this one's memory."""
    other = Vm(vm.up, "other")
    other.create("1", f"{X}Mi", memory=MEMORY)
    try:
        other.resize(cpu="2")
        assert other.online_vcpus() == 2
    finally:
        other.delete()


@only("virtio-mem", "balloon")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(X, X + DELTA, id="grow", marks=pytest.mark.matrix),
        pytest.param(X + DELTA, X, id="shrink"),
    ],
)
def test_a_guest_hangs_in_the_middle(guest: Witness, before: int, after: int) -> None:
    vm = guest.vm
    guest.reaches(C, before)
    with vm.suspended_while_resizing(memory=f"{after}Mi"):
        says_what_it_waits_for(vm)
    vm.wait_resized()
    guest.holds(C, after)


@only("dimm")
def test_another_guest_does_not_wait_for_one_that_hangs(guest: Witness) -> None:
    vm = guest.vm
    guest.reaches(C, X + DELTA)
    with vm.suspended_while_resizing(memory=f"{X}Mi"):
        says_what_it_waits_for(vm)
        is_quick(vm)
        assert vm.plugged_bytes() == (X + DELTA) * MIB
    vm.wait_resized()
    guest.holds(C, X)
