"""Assigns CPUs to containers for the judge, from what the ledger has promised."""

from __future__ import annotations

from livesize.agent.allocation.ledger import Ledger
from livesize.agent.cpus.plan import (
    Assignment,
    Cpus,
    CpuSupply,
    cpus_of,
    exclusive_counts,
    plan_exclusive,
    shared_pool,
)
from livesize.api.objects import Object, uid_of


class CpuAssigner:
    def __init__(self, supply: CpuSupply, ledger: Ledger) -> None:
        self._supply = supply
        self._ledger = ledger

    def assign(self, pod: Object, sizes: tuple[Object, ...]) -> Assignment:
        """The CPUs that the pod's containers would have alone at these sizes."""
        uid = uid_of(pod)
        entry = self._ledger.get(uid)
        others = {
            cpu for other in self._ledger.entries() if other.uid != uid for cpu in cpus_of(other)
        }
        before = {} if entry is None else entry.cpus
        held = {} if entry is None else entry.held_cpus
        counts = exclusive_counts(pod, sizes)
        return plan_exclusive(counts, before, held, others, self._supply)

    def shared(self) -> Cpus:
        """The CPUs of all other containers; never empty."""
        return shared_pool(self._supply, self._ledger.entries())
