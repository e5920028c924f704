"""What a pod counts for: on its node, in a fit and in a quota. The only place that knows (5.2).

- ``requests_of``: what the spec asks, with overhead;
- ``footprint``: what the node has to keep for it: allocated, raised to the actual requests while
  a shrink is unfinished, with overhead; of a pod not yet admitted, its requests;
- ``charge``: what a quota counts;
- ``whole_pod``: what containers need together with those that start before them;
- ``fits``: whether desired requests fit beside the footprints of the others;
- ``fits_growing``: the same for a pod that is there already.

A virtual machine counts as one container; what QEMU needs beside the guest is in spec.overhead.
One with a balloon counts with all that it boots with until its guest has given it back.
All sums are complete: None never comes out of here, except for limits in ``charge``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.resize_phase import UNFINISHED, ResizePhase
from livesize.api.resize_state import allocated_sizes, is_terminal, phase_of
from livesize.api.resources import (
    NOTHING,
    VM_NAME,
    ZERO,
    Amounts,
    ResourceName,
    Resources,
    add,
    containers_of,
    init_containers_of,
    is_vm,
    maximum,
    moments,
    or_zero,
    parse_amounts,
    parse_resources,
    resizable_of,
    resources_of,
    stays,
    total,
)
from livesize.api.vm_balloon import held_by_guest
from livesize.api.vm_status import resizable_statuses_of


class Fits(msgspec.Struct, frozen=True, tag=True):
    pass


class NoRoomNow(msgspec.Struct, frozen=True, tag=True):
    """It would fit an emptier node: deferred. Amounts in milli-CPUs or bytes."""

    resource: ResourceName
    requested: int
    used: int
    capacity: int

    def sentence(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested},"
            f" used: {self.used}, capacity: {self.capacity}"
        )


class NeverFits(msgspec.Struct, frozen=True, tag=True):
    """It would not fit the empty node: infeasible. Amounts in milli-CPUs or bytes."""

    resource: ResourceName
    requested: int
    capacity: int

    def sentence(self) -> str:
        return (
            f"Node didn't have enough capacity: {self.resource}, requested: {self.requested},"
            f" capacity: {self.capacity}"
        )


Verdict: TypeAlias = Fits | NoRoomNow | NeverFits


def fits(others: Iterable[Amounts], desired: Amounts, allocatable: Amounts) -> Verdict:
    """Σ footprint of the others + desired requests and overhead of this pod ≤ allocatable.

    A resource that is not asked for does not have to fit. "Never" outweighs "not now".
    """
    used = or_zero(total(others))
    no_room: Verdict = Fits()
    for resource in ResourceName:
        requested = desired.amount(resource) or 0
        capacity = allocatable.amount(resource) or 0
        already = used.amount(resource) or 0
        if requested == 0:
            continue
        if requested > capacity:
            return NeverFits(resource, requested, capacity)
        if already + requested > capacity and isinstance(no_room, Fits):
            no_room = NoRoomNow(resource, requested, already, capacity)
    return no_room


def fits_growing(
    desired: Amounts, held: Amounts, used_by_others: Amounts, allocatable: Amounts
) -> Verdict:
    """Whether a pod whose footprint is ``held`` may grow to ``desired``; both with its overhead.
    Each resource is judged alone, and only what grows has to fit (decisions 6 and 9)."""
    growing = Amounts(
        _if_larger(desired.cpu_milli, held.cpu_milli),
        _if_larger(desired.memory_bytes, held.memory_bytes),
    )
    return fits([used_by_others], growing, allocatable)


def whole_pod(running: Amounts, starting: Iterable[tuple[Amounts, bool]]) -> Amounts:
    """The most that the pod needs at any moment. ``running``: its containers together;
    ``starting``: its init containers in order, and whether each is a sidecar, which stays."""
    return _most(moments([running], starting))


def most_before(starting: Iterable[tuple[Amounts, bool]]) -> Amounts:
    """The same, of the moments before the containers start alone."""
    _, *before = moments([NOTHING], starting)
    return _most(before)


def _most(moments_of_pod: Iterable[Iterable[Amounts]]) -> Amounts:
    most = NOTHING
    for together in moments_of_pod:
        most = maximum(most, total(together))
    return most


def pod_overhead(pod: Object) -> Amounts:
    return or_zero(parse_amounts(lookup(pod, "spec", "overhead")))


def requests_of(pod: Object) -> Amounts:
    """Desired requests, with overhead."""
    return _with_overhead(pod, _whole_pod(pod, lambda c: resources_of(c).requests))


def footprint(pod: Object) -> Amounts:
    """What the node keeps for the pod; nothing once it has ended."""
    if is_terminal(pod):
        return ZERO
    allocated = _allocated(pod)
    if phase_of(pod) in UNFINISHED:
        actual = actual_resources(pod)
        allocated = {
            name: maximum(size, actual.get(name, Resources()).requests)
            for name, size in allocated.items()
        }
    held = _held_by_guest(pod)
    return _with_overhead(pod, _whole_pod(pod, lambda c: maximum(allocated[c["name"]], held)))


def charge(pod: Object) -> Resources:
    """What a quota counts: the largest of desired (unless Infeasible), allocated and actual
    requests, and of desired and actual limits (decisions 7)."""
    if is_terminal(pod):
        return Resources(ZERO, ZERO)
    actual, allocated = actual_resources(pod), _allocated(pod)
    refused = phase_of(pod) is ResizePhase.INFEASIBLE
    sizes, guest = allocated_sizes(pod), _held_by_guest(pod)

    def requests(container: Object) -> Amounts:
        name = container["name"]
        held = maximum(allocated[name], actual.get(name, Resources()).requests)
        held = maximum(held, guest)
        return held if refused else maximum(held, resources_of(container).requests)

    def limits(container: Object) -> Amounts:
        name = container["name"]
        held = actual.get(name, Resources()).limits
        desired = parse_resources(sizes[name]) if refused else resources_of(container)
        limits = maximum(held, desired.limits)
        return limits if limits.memory_bytes is None else maximum(limits, guest)

    return Resources(
        requests=_with_overhead(pod, _whole_pod(pod, requests)),
        limits=add(_whole_pod(pod, limits, side="limits"), _limit_overhead(pod)),
    )


def actual_resources(pod: Object) -> dict[str, Resources]:
    """What the machine reported, by container; a container without a status is left out."""
    return {
        status["name"]: parse_resources(status["resources"])
        for status in resizable_statuses_of(pod)
        if status.get("resources")
    }


def _if_larger(requested: int | None, held: int | None) -> int | None:
    return requested if requested is not None and requested > (held or 0) else None


def _allocated(pod: Object) -> dict[str, Amounts]:
    return {name: parse_resources(size).requests for name, size in allocated_sizes(pod).items()}


def _held_by_guest(pod: Object) -> Amounts:
    """Of a virtual machine, its only container."""
    if not is_vm(pod):
        return NOTHING
    return Amounts(memory_bytes=held_by_guest(pod, allocated_sizes(pod)[VM_NAME]))


def _with_overhead(pod: Object, amounts: Amounts) -> Amounts:
    return or_zero(add(amounts, pod_overhead(pod)))


def _limit_overhead(pod: Object) -> Amounts:
    """Kubernetes adds overhead only to limits that are set."""
    overhead = pod_overhead(pod)
    limited = total(resources_of(container).limits for container in containers_of(pod))
    return Amounts(
        None if limited.cpu_milli is None else overhead.cpu_milli,
        None if limited.memory_bytes is None else overhead.memory_bytes,
    )


def _whole_pod(
    pod: Object, amounts_of: Callable[[Object], Amounts], side: str = "requests"
) -> Amounts:
    """``amounts_of`` is asked for what can be resized; of other init containers the spec counts."""
    amounts = {one["name"]: amounts_of(one) for one in resizable_of(pod)}
    starting = []
    for one in init_containers_of(pod):
        size = resources_of(one)
        fixed = size.requests if side == "requests" else size.limits
        starting.append((amounts.get(one["name"], fixed), stays(one)))
    return whole_pod(total(amounts[one["name"]] for one in containers_of(pod)), starting)
