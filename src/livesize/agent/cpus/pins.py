"""Decides to which CPUs the threads of a virtual machine are pinned. Pure.

A VM that has its CPUs alone has as many of them as vCPUs: each vCPU gets one, in the order in which
the VM got them. A VM that grows keeps its CPUs and plugs in the next vCPU, one that shrinks keeps
the oldest and switches off the highest: so no vCPU that stays ever moves. vCPUs beyond that, which
are plugged in and switched off, and QEMU's own threads, may use the whole set; they stay within the
VM's CPUs and take from nobody else. A VM that shares is pinned to the pool, all of it alike.
"""

from __future__ import annotations

from livesize.agent.cpus.plan import Cpus
from livesize.api.vm_pins import VmPins


def plan_pins(cpus: Cpus, plugged_vcpus: int, *, alone: bool) -> VmPins:
    """``cpus``: what the VM may run on; those it has alone in the order in which it got them."""
    everything = tuple(sorted(cpus))
    own = [(cpu,) for cpu in cpus] if alone else []
    others = [everything] * max(0, plugged_vcpus - len(own))
    return VmPins(tuple((*own, *others)[:plugged_vcpus]), everything)
