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


def ask_in_vain(vm: Vm, memory_mib: int) -> None:
    """Of a guest that does nothing: the request is taken, and stays under way."""
    code, answer = vm.ask(memory=f"{memory_mib}Mi")
    assert code == 200, answer
    vm.until(lambda: vm.condition("PodResizeInProgress"), "it is under way")
    said = vm.says("guest")
    assert vm.state["phase"] in ("InProgress", "Error"), vm.state
    assert "does not" in said or "has not" in said, said


def is_quick(vm: Vm) -> None:
    """CPUs of another VM on the same node do not wait for this one's memory."""
    other = Vm(vm.up, "other")
    other.create("1", f"{X}Mi", memory=MEMORY)
    try:
        other.resize(cpu="2")
        assert other.online_vcpus() == 2
    finally:
        other.delete()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(X, X + DELTA, id="grow"),
        pytest.param(X + DELTA, X, id="shrink"),
    ],
)
def test_a_guest_hangs_in_the_middle(guest: Witness, before: int, after: int) -> None:
    vm = guest.vm
    guest.reaches(C, before)
    with vm.suspended():
        ask_in_vain(vm, after)
    vm.wait_resized()
    guest.holds(C, after)


@only("dimm")
def test_another_guest_does_not_wait_for_one_that_hangs(guest: Witness) -> None:
    vm = guest.vm
    guest.reaches(C, X + DELTA)
    with vm.suspended():
        ask_in_vain(vm, X)
        is_quick(vm)
        assert vm.plugged_bytes() == (X + DELTA) * MIB
    vm.wait_resized()
    guest.holds(C, X)
