"""Decides who gets which CPUs under the static policy, and in which order they move. Pure.

A container or virtual machine of a Guaranteed pod that asks for whole CPUs gets them for itself;
everything else runs in the shared pool, which is what is left. Reserved CPUs are always in the
pool, and there is at least one of them, so that the pool is never empty.

Promises, whatever is asked and in whatever order:
- no CPU belongs to two containers, and none of the pool to any;
- a container that grows keeps all it has and gets more; one that shrinks keeps the oldest;
- what a container gives up belongs to its pod until it has really left it.

``plan_binding`` orders the writes of one pod so that every prefix is safe: first the CPUs that
containers give up, then the pool is narrowed, and only then containers grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.api.cpu_list import format_cpu_list
from livesize.api.objects import Object
from livesize.api.qos import qos_class
from livesize.api.resources import parse_resources, sidecars_of
from livesize.api.vm_pins import VmPins

MILLI = 1000

Cpus: TypeAlias = tuple[int, ...]
"""By number; those of a container in the order in which it got them."""


class CpuSupply(msgspec.Struct, frozen=True):
    """What the machine has, and which of it no container gets alone."""

    usable: Cpus
    reserved: Cpus

    @property
    def assignable(self) -> Cpus:
        return tuple(cpu for cpu in self.usable if cpu not in self.reserved)


class Assigned(msgspec.Struct, frozen=True, tag=True):
    """The CPUs of each container that has its own."""

    cpus: dict[str, Cpus]


class TooFew(msgspec.Struct, frozen=True, tag=True):
    """There are not as many CPUs as one pod asks for; ``capacity``: of the empty node."""

    requested: int
    free: int
    capacity: int

    @property
    def ever_fits(self) -> bool:
        return self.requested <= self.capacity

    def sentence(self) -> str:
        return (
            f"Node didn't have enough exclusive CPUs (static CPU policy): requested:"
            f" {self.requested}, free: {self.free}, capacity: {self.capacity}"
        )


Assignment: TypeAlias = Assigned | TooFew


def make_supply(usable: Cpus, reserved: Cpus) -> CpuSupply:
    """Nothing reserved: the first CPU is. Raises ValueError where it leaves nothing to give."""
    usable = tuple(sorted(usable))
    supply = CpuSupply(usable, reserved or usable[:1])
    absent = [cpu for cpu in supply.reserved if cpu not in usable]
    if absent:
        raise ValueError(
            f"this machine has the CPUs {format_cpu_list(usable)}, and not"
            f" {format_cpu_list(absent)}"
        )
    if not supply.assignable:
        raise ValueError(
            f"of the CPUs {format_cpu_list(usable)} none would be left to be given to containers"
            " alone: reserve fewer, or choose --cpu-policy none"
        )
    return supply


def exclusive_counts(pod: Object, sizes: Iterable[Object]) -> dict[str, int]:
    """How many CPUs each container is to have alone; those that share, sidecars among them, are
    left out."""
    if qos_class(pod) != "Guaranteed":
        return {}
    sidecars = sidecars_of(pod)
    requested = {
        size["name"]: parse_resources(size).requests.cpu_milli or 0
        for size in sizes
        if size["name"] not in sidecars
    }
    return {
        name: milli // MILLI for name, milli in requested.items() if milli and not milli % MILLI
    }


def plan_exclusive(
    counts: Mapping[str, int],
    before: Mapping[str, Cpus],
    held: Mapping[str, Cpus],
    others: AbstractSet[int],
    supply: CpuSupply,
) -> Assignment:
    """``before``: what each container was promised last; ``held``: what it may still have of older
    promises; ``others``: the CPUs of other pods. What a container has anyhow comes first, then what
    its pod has, so that as little as possible moves."""
    given: dict[str, Cpus] = dict.fromkeys(counts, ())
    of_pod = tuple(cpu for owned in (before, held) for cpus in owned.values() for cpu in cpus)
    for source in (before, held, dict.fromkeys(counts, (*of_pod, *sorted(supply.assignable)))):
        for name, count in counts.items():
            taken = {cpu for cpus in given.values() for cpu in cpus}.union(others)
            if source is held:  # what a sibling was promised last it keeps
                taken = taken.union(*(cpus for one, cpus in before.items() if one in counts))
            more = [
                cpu
                for cpu in dict.fromkeys(source.get(name, ()))
                if cpu in supply.assignable and cpu not in taken
            ]
            given[name] = (*given[name], *more)[:count]
    requested, found = sum(counts.values()), sum(map(len, given.values()))
    if found < requested:
        return TooFew(requested, found, len(supply.assignable))
    return Assigned(given)


def cpus_of(entry: Allocation) -> set[int]:
    """All that the pod was promised or may still have."""
    both = (*entry.cpus.values(), *entry.held_cpus.values())
    return {cpu for cpus in both for cpu in cpus}


def shared_pool(supply: CpuSupply, entries: Iterable[Allocation]) -> Cpus:
    taken = {cpu for entry in entries for cpu in cpus_of(entry)}
    return tuple(cpu for cpu in supply.usable if cpu not in taken)


def start_cpus(entry: Allocation, container: str, observed: Mapping[str, Cpus | None]) -> Cpus:
    """What a container that starts now may have alone: in the middle of a resize not yet those
    that another container of the pod, by what is ``observed``, has to give up for it. Empty: it
    shares."""
    theirs = {cpu for name, cpus in observed.items() if name != container for cpu in cpus or ()}
    return tuple(cpu for cpu in entry.cpus.get(container, ()) if cpu not in theirs)


def settle_loaded(entry: Allocation, supply: CpuSupply | None) -> Allocation:
    """What a new agent makes of a promise it finds: without the policy no container has CPUs alone,
    and what this machine no longer gives away is given away no more."""
    if not entry.cpus and not entry.held_cpus:
        return entry
    if supply is None:
        return msgspec.structs.replace(entry, cpus={}, held_cpus={})
    cpus, held = (
        {
            name: left
            for name, cpus in owned.items()
            if (left := tuple(cpu for cpu in cpus if cpu in supply.assignable))
        }
        for owned in (entry.cpus, entry.held_cpus)
    )
    return msgspec.structs.replace(entry, cpus=cpus, held_cpus=held)


def not_whole(desired: Iterable[Object], known: Iterable[Iterable[Object]]) -> str:
    """Why a resize to ``desired`` is refused (ARK: "only integral values of CPU resize are
    allowed"), or nothing. CPU that stays as in one of the ``known`` sizes is not resized."""
    sides = [{size["name"]: _cpu_of(size) for size in sizes} for sizes in known]
    for size in desired:
        name, requested = size["name"], _cpu_of(size)
        if any(side.get(name) == requested for side in sides):
            continue
        for word, amounts in zip(("request", "limit"), requested, strict=True):
            if (amounts or 0) % MILLI:
                return (
                    f"container {name}: the CPU {word} of {amounts}m is not whole, and this node's"
                    " CPU policy is static: ask for whole CPUs"
                )
    return ""


class Bind(msgspec.Struct, frozen=True, tag=True):
    """Bind one container to these CPUs."""

    container: str
    cpus: Cpus

    @property
    def name(self) -> str:
        return f"container:{self.container}:cpuset"


class NarrowPool(msgspec.Struct, frozen=True, tag=True):
    """All that share leave the CPUs that were promised to one container."""

    name: str = "node:shared-cpus"


BindingStep: TypeAlias = Bind | NarrowPool


def plan_binding(
    observed: Mapping[str, Cpus | None], wanted: Mapping[str, Cpus], pool: Cpus
) -> tuple[BindingStep, ...]:
    """From the CPUs that a pod's containers have to those they are to have alone. Observed None:
    it has none of its own. ``pool``: what is shared."""
    now = {name: set(observed[name] or ()) for name in sorted(wanted.keys() & observed.keys())}
    changing = [name for name, cpus in now.items() if cpus != set(wanted[name])]
    if not changing:
        return ()
    steps: list[BindingStep] = []
    for name in changing:
        remaining = now[name].intersection(wanted[name])
        if remaining and remaining != now[name]:
            steps.append(Bind(name, tuple(sorted(remaining))))
            now[name] = remaining
    steps.append(NarrowPool())
    return (*steps, *_plan_growth(now, wanted, pool))


def _plan_growth(
    now: dict[str, set[int]], wanted: Mapping[str, Cpus], pool: Cpus
) -> Iterator[Bind]:
    """Whoever wants nothing that a sibling has still goes first. Where all wait for each other,
    one of them shares for a moment, which frees another: wanted sets have nothing in common."""
    growing = [name for name, cpus in now.items() if not cpus.issuperset(wanted[name])]
    while growing:
        free = [name for name in growing if not _is_waiting(name, now, wanted)]
        holding = [name for name in growing if now[name]]
        if holding and not free:
            now[holding[0]] = set()
            yield Bind(holding[0], pool)
            continue
        name = (free or growing)[0]
        growing.remove(name)
        now[name] = set(wanted[name])
        yield Bind(name, tuple(sorted(wanted[name])))


def _is_waiting(name: str, now: Mapping[str, set[int]], wanted: Mapping[str, Cpus]) -> bool:
    theirs = set[int]().union(*(cpus for one, cpus in now.items() if one != name))
    return not theirs.isdisjoint(wanted[name])


def _cpu_of(size: Object) -> tuple[int | None, int | None]:
    resources = parse_resources(size)
    return resources.requests.cpu_milli, resources.limits.cpu_milli


def plan_pins(cpus: Cpus, plugged_vcpus: int, *, alone: bool) -> VmPins:
    """The CPUs of a virtual machine's threads. ``cpus``: what the VM may run on; those it has alone
    in the order in which it got them.

    A VM that has its CPUs alone has as many of them as vCPUs, and each vCPU gets one. A VM that
    grows keeps its CPUs and plugs in the next vCPU; one that shrinks keeps the oldest and switches
    off the highest. So no vCPU that stays ever moves. vCPUs that are plugged in and switched off,
    and QEMU's own threads, may use the whole set. All threads of a VM that shares have the pool."""
    everything = tuple(sorted(cpus))
    own = [(cpu,) for cpu in cpus] if alone else []
    others = [everything] * max(0, plugged_vcpus - len(own))
    return VmPins(tuple((*own, *others)[:plugged_vcpus]), everything)
