"""What a memory technology decides, and nothing else. Pure.

A technology is told what the VM has and what it is to have. It answers with changes of named
devices, or that it has to wait, or that this size cannot be had. agent/vm/plan.py puts the changes
into the order of groups, marks, notes and confirmations, which is the same for all technologies.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.api.vm_changes import DeviceChange, VmDevice
from livesize.api.vm_size import CellSize, VmSize


class MemoryTarget(msgspec.Struct, frozen=True):
    """``most_bytes``: the largest size that the groups hold as they are now. ``cells``: what each
    is to have, by id, ``wanted_bytes`` together; empty: the VM has one. ``min_bytes``: the least
    that the balloon leaves. ``max_bytes``: the most the VM may ever have; 0: its devices say it."""

    wanted_bytes: int
    most_bytes: int
    cells: tuple[CellSize, ...] = ()
    min_bytes: int = 0
    max_bytes: int = 0


class MemoryStage(msgspec.Struct, frozen=True):
    """Changes after which the guest holds ``requested_bytes``: it has to confirm that before
    anything that follows. ``is_short``: a NUMA cell cannot get yet what another has to give."""

    requested_bytes: int
    live: tuple[DeviceChange, ...] = ()
    is_short: bool = False


class MemoryPlan(msgspec.Struct, frozen=True):
    """``live``: the changes after which the guest holds ``requested_bytes``, in an order of which
    every prefix leaves it the smaller of what it has and what it is to have. ``requested_bytes`` is
    more than wanted while the guest cannot spare the rest. ``persistent``: those for its next
    start. ``first``: stages before ``live``, each confirmed by the guest before the next."""

    requested_bytes: int
    live: tuple[DeviceChange, ...] = ()
    persistent: tuple[DeviceChange, ...] = ()
    first: tuple[MemoryStage, ...] = ()
    is_short: bool = False

    @property
    def stages(self) -> tuple[MemoryStage, ...]:
        return (*self.first, MemoryStage(self.requested_bytes, self.live, self.is_short))


class MemoryWait(msgspec.Struct, frozen=True):
    """A change under way has to end first; ``why`` says which, and what the guest does."""

    why: str


class MemoryRefusal(msgspec.Struct, frozen=True):
    """This size cannot be had; the nearest that can."""

    why: str
    nearest_bytes: tuple[int, ...] = ()


MemoryDecision: TypeAlias = MemoryPlan | MemoryWait | MemoryRefusal


class MemoryTechnology(Protocol):
    @property
    def name(self) -> str: ...

    def boot_bytes(self, size: VmSize, /) -> int:
        """What a domain of this size boots with."""
        ...

    def initial_devices(self, size: VmSize, /) -> tuple[VmDevice, ...]:
        """The devices that a domain of this size is made with."""
        ...

    def initial_balloon(self, size: VmSize, /) -> int | None:
        """What the balloon of such a domain leaves of its boot memory; None: it has no balloon."""
        ...

    def plan(self, facts: MemoryFacts, target: MemoryTarget) -> MemoryDecision: ...
