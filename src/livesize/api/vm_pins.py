"""The CPUs that the threads of a virtual machine are pinned to. Pure."""

from __future__ import annotations

import msgspec


class VmPins(msgspec.Struct, frozen=True):
    """CPUs of the machine by number, in order: those of each vCPU that is plugged in, and those of
    QEMU's own threads. Empty: pinned to none in particular."""

    vcpus: tuple[tuple[int, ...], ...] = ()
    emulator: tuple[int, ...] = ()

    def of(self, plugged_vcpus: int) -> VmPins:
        """With so many vCPUs: one that was plugged in later is pinned to none in particular."""
        if self == UNPINNED:
            return self
        missing = ((),) * (plugged_vcpus - len(self.vcpus))
        vcpus = (*self.vcpus, *missing)[:plugged_vcpus]
        return VmPins(vcpus, self.emulator) if any(vcpus) or self.emulator else UNPINNED


UNPINNED = VmPins()
