"""A guest before a test: nothing of it may restart, and its own words are compared with these."""

from __future__ import annotations

from collections.abc import Mapping

import libvirt

from system.groups import start_time
from system.vm import MIB, READY_SECONDS, Vm


class Witness:
    """``memory_mib`` and ``cells`` (by id, MiB): what it has now."""

    def __init__(self, vm: Vm, memory_mib: int, cells: Mapping[int, int] | None = None) -> None:
        self.vm = vm
        self.memory_mib = memory_mib
        self.cells = dict(cells or {})
        self.qemu = start_time(vm.status["pid"])
        self.meet()

    def meet(self) -> None:
        """After a boot that a test meant to happen: from here on it is compared with this one."""
        self.boot_id = self.vm.boot_id()
        self.total = self.vm.memory_total()
        self.by_node = self.vm.memory_by_node(len(self.cells))

    def reaches(self, vcpus: int, memory_mib: int, cells: Mapping[int, int] | None = None) -> None:
        """By one request that names the cells that change."""
        named = {number: f"{mib}Mi" for number, mib in (cells or {}).items()}
        self.vm.resize(named, cpu=str(vcpus), memory=f"{memory_mib}Mi")
        self.holds(vcpus, memory_mib, cells)

    def holds(self, vcpus: int, memory_mib: int, cells: Mapping[int, int] | None = None) -> None:
        """The guest's own figures have moved by just that, in the cells that were named only."""
        self.vm.check(vcpus, memory_mib)
        moved = (memory_mib - self.memory_mib) * MIB
        assert self.vm.memory_total() - self.total == moved
        after = {**self.cells, **(cells or {})}
        by_node = self.vm.memory_by_node(len(self.cells))
        found = {number: by_node[number] - self.by_node[number] for number in self.cells}
        assert found == {number: (after[number] - self.cells[number]) * MIB for number in after}
        self.lives()

    def lives(self) -> None:
        """The same boot of the same QEMU."""
        assert self.vm.boot_id() == self.boot_id
        assert start_time(self.vm.status["pid"]) == self.qemu

    def reboots(self, memory_mib: int, *, by_guest: bool = False) -> None:
        """In place, and until it has its memory again."""
        restarts, boot_id = self.vm.status["restartCount"], self.boot_id
        self.vm.reboot() if by_guest else self.vm.reset()

        def is_back() -> bool:
            guest = self.vm.status["guest"]
            if guest.get("bootId") in (None, boot_id):
                return False
            return bool(guest["memoryPlugged"] == f"{memory_mib}Mi" and _answers(self.vm))

        self.vm.until(is_back, "the guest has booted again with its memory", READY_SECONDS)
        assert self.vm.status["restartCount"] == restarts
        assert start_time(self.vm.status["pid"]) == self.qemu, "QEMU goes on"


def _answers(vm: Vm) -> bool:
    try:
        vm.boot_id()
    except libvirt.libvirtError:
        return False
    return True
