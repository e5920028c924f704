"""What differs between a pod of containers and a virtual machine; all else is the same code (B1).

Judging, promising, accepting, retrying, reporting and history know no shape. A shape says what the
groups are to hold and how to get there: agent/resize/shape.py and agent/vm/shape.py.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observation import PodSnapshot
from livesize.agent.resize.plan import PodObservation
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.steps import Step
from livesize.runtime.vm_config import VmConfig


class MachineWork(msgspec.Struct, frozen=True):
    """Ordered steps on the machine. ``changing`` names those that do more than wait: without
    any, a pod whose resize is finished is in step. ``waits_for`` says why there are none yet:
    the machine wakes the pod's worker when that has changed. ``cpu_steps``: after so many the pod
    has no more CPU than it was promised, whatever becomes of the rest; None: only after all.
    ``quick_seconds``: what is done by then is told as accepted and done in one.
    ``follows``: what all of it only follows, so that it is nobody's doing when it was in step
    before. ``groups``: what the steps have read back so far, and before them; None: not known.
    ``remark``: when all is done, what is to be known of it beforehand; empty: nothing."""

    steps: tuple[Step, ...] = ()
    changing: tuple[str, ...] = ()
    waits_for: str = ""
    cpu_steps: int | None = None
    quick_seconds: float = 0.0
    follows: str = ""
    groups: Callable[[], PodObservation] | None = None
    remark: Callable[[], str] | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a step is that takes long. ``moved``: it has come closer since it began."""

    step: str
    message: str
    moved: bool


@dataclass(frozen=True)
class ProgressObserver:
    """Follows the steps of one attempt. A step asks ``is_overtaken`` whether waiting for the
    machine has lost its point, and calls ``report`` with its progress as often as it likes."""

    is_overtaken: Callable[[], bool]
    report: Callable[[Progress], None]


class StartSize(msgspec.Struct, frozen=True):
    """What one start of a container gets; ``vm`` where it is a virtual machine."""

    limits: KernelLimits
    vm: VmConfig | None = None


class Shape(Protocol):
    def pod_limits(self, entry: Allocation) -> KernelLimits:
        """What the pod's group is to hold."""
        ...

    def start_size(self, entry: Allocation, name: str, *, in_full: bool) -> StartSize:
        """``in_full``: all that is allocated, for which the pod's group has room. Else, in the
        middle of a resize, the smaller of old and new: as if its own decrease were done and its
        increase were not, which keeps within the pod's limit whatever has been applied."""
        ...

    async def plan(
        self,
        entry: Allocation,
        snapshot: PodSnapshot,
        leaving: AbstractSet[str],
        observer: ProgressObserver,
    ) -> MachineWork:
        """From what the machine says to what is allocated. ``leaving``: containers about to
        restart, which get their size with their new group."""
        ...
