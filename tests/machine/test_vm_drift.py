"""Each of the three places that have a VM's size is changed behind the agent's back, for each
memory technology, and all of them come back to what is allocated (F50).

ARK: "ensure they are synchronized [...] The ContainerStatus() function will sync up the vmConfig
and Libvirt domain definition if they are out of sync."
"""

from __future__ import annotations

import libvirt
import pytest

from booted_guests import C, X, only
from system.vm import MIB, Vm
from system.vm_sizes import is_clear
from system.vm_witness import Witness

pytestmark = pytest.mark.vms

DELTA = 256
HELD = X + DELTA
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


def change_groups(vm: Vm, _technology: str) -> None:
    """1. Update CGroup"""
    for group in (vm.group.pod(), vm.group):
        group.set_memory_limit(5 * X * MIB)
    vm.group.set_cpu_quota(50_000)


def change_note(vm: Vm, _technology: str) -> None:
    """2. [...] vmConfig"""
    vm.write_note(3 * X * MIB)


def change_running(vm: Vm, technology: str) -> None:
    """2. [...] domainDef: as the domain is now."""
    with vm.domain() as domain:
        if technology == "virtio-mem":
            vm.request_memory(2 * DELTA)
        elif technology == "dimm":
            domain.attachDeviceFlags(dimm_xml(DELTA), LIVE)
        else:
            domain.setMemoryFlags((HELD + DELTA) * 1024, LIVE)
    vm.until(lambda: vm.plugged_bytes() != HELD * MIB, "the guest follows whoever asks", 10)


def change_persistent(vm: Vm, technology: str) -> None:
    """2. [...] domainDef: as it would start again."""
    vm.persist_vcpus(3)
    with vm.domain() as domain:
        if technology == "virtio-mem":
            vm.request_memory(2 * DELTA, persistent=True)
        elif technology == "dimm":
            domain.attachDeviceFlags(dimm_xml(DELTA), CONFIG)
        else:
            domain.setMemoryFlags((HELD + DELTA) * 1024, CONFIG)


def dimm_xml(mib: int) -> str:
    """Without an alias of ours: whoever does it by hand gives none."""
    return (
        f"<memory model='dimm'><target><size unit='MiB'>{mib}</size><node>0</node></target>"
        "</memory>"
    )


PLACES = [change_groups, change_note, change_running, change_persistent]


@only()
def test_what_was_changed_by_hand_comes_back(guest: Witness, technology: str) -> None:
    """One after the other, on a guest that has something to lose."""
    vm = guest.vm
    guest.reaches(C, HELD)
    for change in PLACES:
        change(vm, technology)
        vm.until(lambda: not drifted(vm), f"it is back: {change.__doc__}", 60)
        vm.until(lambda: vm.state.get("phase") in ("Done", "None"), "nothing is under way", 60)
        guest.holds(C, HELD)


def drifted(vm: Vm) -> list[str]:
    """The places that do not have what is allocated."""
    found, limit = vm.sizes(), HELD * MIB + vm.overhead
    places = {
        "groups": (found.pod_limit, found.vm_limit, found.vm_quota_us)
        == (limit, limit, 100_000 * C),
        "note": is_clear(found.note),
        "running": (found.requested, found.plugged) == (HELD * MIB, HELD * MIB),
        "persistent": (found.persistent_memory, found.persistent) == (HELD * MIB, C),
    }
    return [place for place, holds in places.items() if not holds]
