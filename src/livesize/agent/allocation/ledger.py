"""What this node has promised: the truth about allocated, in memory.

One ``Allocation`` per admitted pod, replaced as a whole, never changed. The checkpoint makes each
new one durable before anything is touched; after a restart the ledger begins with what was loaded.

Promise (design 5.2): the footprints of all admitted pods together fit the node's allocatable,
unless allocatable itself was lowered or the agent found a pod running that no checkpoint had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from livesize.api.accounting import most_before
from livesize.api.objects import Object
from livesize.api.resources import (
    NOTHING,
    ZERO,
    Amounts,
    ResourceName,
    add,
    maximum,
    or_zero,
    parse_amounts,
    parse_resources,
    same_size,
    total,
)


class StartingSize(msgspec.Struct, frozen=True):
    """An init container. ``stays``: it is a sidecar, whose size is among the allocated ones; here
    stands only its place in the order."""

    size: Object
    stays: bool


class Allocation(msgspec.Struct, frozen=True):
    """What one pod was promised. Sizes are {name, requests, limits} in the user's own quantities,
    one for each container in spec order, then one for each sidecar; that of a virtual machine with
    NUMA cells has {cells: [{id, memory}]} too."""

    uid: str
    namespace: str
    name: str
    generation: int  # the newest generation whose resize was accepted
    allocated: tuple[Object, ...]
    actuated: tuple[Object, ...]  # what was last applied in full
    held: Amounts = NOTHING  # requests that parts of the pod may still have, until applied
    restarting: dict[str, int] = {}  # containers that restart to get it, and with which attempt
    cpus: dict[str, tuple[int, ...]] = {}  # that containers have alone, oldest first
    held_cpus: dict[str, tuple[int, ...]] = {}  # that they may still have, until applied
    overhead: Object = msgspec.field(default_factory=dict)
    arrival: int = 0  # order in which pods came to this node
    starting: tuple[StartingSize, ...] = ()  # init containers in their order, sidecars among them
    held_starting: Amounts = NOTHING  # as ``held``, of what runs before the containers start

    @property
    def settled(self) -> bool:
        """Nothing is being applied: actuated says what allocated says, and nothing is held that a
        promise in between, taken back before it was applied, may have left."""
        return sizes_equal(self.allocated, self.actuated) and not self._holds_more

    @property
    def _holds_more(self) -> bool:
        if self._holds_more_cpus:
            return True
        if self.held == NOTHING and self.held_starting == NOTHING:
            return False
        promised = requests_total(self.allocated)
        starting = starting_total(self.starting, self.allocated)
        return (
            maximum(promised, self.held) != promised
            or maximum(starting, self.held_starting) != starting
        )

    @property
    def _holds_more_cpus(self) -> bool:
        return any(
            not set(cpus).issubset(self.cpus.get(name, ())) for name, cpus in self.held_cpus.items()
        )

    def promises_the_same(self, other: Allocation) -> bool:
        """One generation may be promised twice: more of it was accepted (decisions 9)."""
        return self.generation == other.generation and self.allocated == other.allocated

    def sizes(self) -> tuple[Object, ...]:
        """Of all its containers, those that start before the others too."""
        return (*self.allocated, *self._fixed())

    def size(self, container: str) -> Object:
        return next(size for size in self.sizes() if size["name"] == container)

    def size_before(self, container: str) -> Object:
        known = (*self.actuated, *self._fixed())
        return next(size for size in known if size["name"] == container)

    def _fixed(self) -> tuple[Object, ...]:
        return tuple(one.size for one in self.starting if not one.stays)

    def completed(self) -> Allocation:
        """With sizes of its sidecars: what older agents wrote has them as fixed as those of other
        init containers."""
        known = {size["name"] for size in self.allocated}
        missing = tuple(
            one.size for one in self.starting if one.stays and one.size["name"] not in known
        )
        if not missing:
            return self
        return msgspec.structs.replace(
            self, allocated=(*self.allocated, *missing), actuated=(*self.actuated, *missing)
        )

    def accepted(
        self,
        sizes: Iterable[Object],
        generation: int,
        cpus: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> Allocation:
        """The pod is promised ``sizes``, and ``cpus`` to containers alone. Until they are applied
        it may still have what it had before, or any part of a promise that was being applied."""
        return msgspec.structs.replace(
            self,
            allocated=tuple(sizes),
            generation=generation,
            held=maximum(self.held, requests_total(self.allocated)),
            held_starting=maximum(
                self.held_starting, starting_total(self.starting, self.allocated)
            ),
            cpus=dict(cpus),
            held_cpus=_united(self.held_cpus, self.cpus),
        )

    def applied(self, sizes: tuple[Object, ...]) -> Allocation:
        """The machine has all of ``sizes``, which a newer promise may have overtaken."""
        settled = sizes_equal(sizes, self.allocated)
        held = NOTHING if settled else requests_total(sizes)
        held_cpus = {} if settled else self.held_cpus
        return msgspec.structs.replace(
            self,
            actuated=sizes,
            held=held,
            held_starting=NOTHING if settled else starting_total(self.starting, sizes),
            held_cpus=held_cpus,
            restarting={},
        )

    @property
    def holds_cpu(self) -> bool:
        """It may still have CPU, as the ledger has it, that it is no longer promised."""
        promised = requests_total(self.allocated).cpu_milli or 0
        starting = starting_total(self.starting, self.allocated).cpu_milli or 0
        return (
            (self.held.cpu_milli or 0) > promised
            or (self.held_starting.cpu_milli or 0) > starting
            or self._holds_more_cpus
        )

    def cpu_applied(self, target: Allocation) -> Allocation:
        """The machine has the CPU of ``target``, which a newer promise may have overtaken, and no
        more; of the memory nothing is known yet."""
        cpu_milli = requests_total(target.allocated).cpu_milli
        starting = starting_total(target.starting, target.allocated).cpu_milli
        overtaken = not self.promises_the_same(target)
        return msgspec.structs.replace(
            self,
            held=Amounts(cpu_milli, self.held.memory_bytes),
            held_starting=Amounts(starting, self.held_starting.memory_bytes),
            held_cpus=self.held_cpus if overtaken else {},
        )

    def with_restarts(self, restarting: dict[str, int]) -> Allocation:
        return msgspec.structs.replace(self, restarting=restarting)


def sizes_equal(left: tuple[Object, ...], right: tuple[Object, ...]) -> bool:
    return len(left) == len(right) and all(
        one["name"] == other["name"] and same_size(one, other)
        for one, other in zip(left, right, strict=True)
    )


def with_resource(
    sizes: Iterable[Object], other: Iterable[Object], resource: ResourceName
) -> tuple[Object, ...]:
    """``sizes`` with one resource, on both sides, as in ``other``, which has the same names."""
    return tuple(
        _with_resource(size, taken, resource) for size, taken in zip(sizes, other, strict=True)
    )


def _with_resource(size: Object, taken: Object, resource: ResourceName) -> Object:
    made: Object = {"name": size["name"]}
    for side in ("requests", "limits"):
        amounts = {name: text for name, text in size.get(side, {}).items() if name != resource}
        if resource in taken.get(side, {}):
            amounts[resource.value] = taken[side][resource]
        if amounts:
            made[side] = amounts
    with_memory = taken if resource is ResourceName.MEMORY else size
    return {**made, "cells": with_memory["cells"]} if "cells" in with_memory else made


def requests_total(sizes: Iterable[Object]) -> Amounts:
    return or_zero(total(parse_resources(size).requests for size in sizes))


def starting_total(starting: Iterable[StartingSize], sizes: Iterable[Object]) -> Amounts:
    """The most that init containers need, each beside the sidecars that have started before it."""
    by_name: dict[str, Object] | None = None
    requests: list[tuple[Amounts, bool]] = []
    for one in starting:
        if by_name is None:
            by_name = {size["name"]: size for size in sizes}
        size = by_name.get(one.size["name"], one.size) if one.stays else one.size
        requests.append((parse_resources(size).requests, one.stays))
    return most_before(requests) if requests else NOTHING


def pod_requests(allocation: Allocation, sizes: Iterable[Object]) -> Amounts:
    """What the whole pod asks for at these sizes; with its overhead."""
    sizes = tuple(sizes)
    most = maximum(requests_total(sizes), starting_total(allocation.starting, sizes))
    return add(most, parse_amounts(allocation.overhead))


def footprint_of(allocation: Allocation) -> Amounts:
    """Allocated, raised to what is still held while a shrink is unfinished, and the overhead."""
    held = maximum(allocation.held, allocation.held_starting)
    promised = pod_requests(allocation, allocation.allocated)
    if held == NOTHING:
        return promised
    return maximum(promised, add(held, parse_amounts(allocation.overhead)))


class Ledger:
    def __init__(self, allocatable: Amounts, loaded: Iterable[Allocation] = ()) -> None:
        self.allocatable = or_zero(allocatable)
        self._entries: dict[str, Allocation] = {}
        self._footprints: dict[str, Amounts] = {}
        self._used = ZERO
        for entry in loaded:
            self.record(entry)

    def get(self, uid: str) -> Allocation | None:
        return self._entries.get(uid)

    def entries(self) -> tuple[Allocation, ...]:
        """In order of arrival."""
        return tuple(sorted(self._entries.values(), key=lambda entry: (entry.arrival, entry.uid)))

    def next_arrival(self) -> int:
        return 1 + max((entry.arrival for entry in self._entries.values()), default=0)

    @property
    def used(self) -> Amounts:
        """The footprints of all admitted pods together."""
        return self._used

    def footprint(self, uid: str) -> Amounts:
        """Of an admitted pod."""
        return self._footprints[uid]

    def used_by_others(self, uid: str) -> Amounts:
        return _subtract(self._used, self._footprints.get(uid, ZERO))

    def record(self, entry: Allocation) -> None:
        """Keep ``entry`` in place of what was known of that pod."""
        before = self._footprints.get(entry.uid, ZERO)
        after = footprint_of(entry)
        self._entries[entry.uid] = entry
        self._footprints[entry.uid] = after
        self._used = add(_subtract(self._used, before), after)

    def promise(self, entry: Allocation) -> None:
        """Record an entry that was judged to fit; what it grows by must really fit."""
        before = self._footprints.get(entry.uid, ZERO)
        self.record(entry)
        grown = _subtract(self._footprints[entry.uid], before)
        for amount, used, limit in (
            (grown.cpu_milli, self._used.cpu_milli, self.allocatable.cpu_milli),
            (grown.memory_bytes, self._used.memory_bytes, self.allocatable.memory_bytes),
        ):
            assert amount is not None
            assert used is not None
            assert limit is not None
            assert amount <= 0 or used <= limit, f"{entry.uid} was promised more than there is"

    def release(self, uid: str) -> bool:
        """Forget a pod; False where it was not known."""
        footprint = self._footprints.pop(uid, None)
        self._entries.pop(uid, None)
        if footprint is None:
            return False
        self._used = _subtract(self._used, footprint)
        return True


def _united(
    left: Mapping[str, tuple[int, ...]], right: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(dict.fromkeys((*left.get(name, ()), *right.get(name, ()))))
        for name in sorted({*left, *right})
    }


def _subtract(left: Amounts, right: Amounts) -> Amounts:
    return Amounts(
        (left.cpu_milli or 0) - (right.cpu_milli or 0),
        (left.memory_bytes or 0) - (right.memory_bytes or 0),
    )
