"""CPU and memory of a container as exact integers, and the arithmetic on them.

``Amounts`` is one side (requests or limits); None means not set, zero means zero. Other resource
names stay in the JSON and are never touched here: only cpu and memory can be resized.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from livesize.api.objects import Object
from livesize.api.quantity import (
    QuantityError,
    cpu_milli,
    format_cpu,
    format_memory,
    memory_bytes,
    parse_quantity,
)

T = TypeVar("T")

VM_NAME = "vm"
"""What the virtual machine of a pod is called where containers have their names."""


class ResourceName(enum.StrEnum):
    CPU = "cpu"
    MEMORY = "memory"


class Amounts(msgspec.Struct, frozen=True):
    cpu_milli: int | None = None
    memory_bytes: int | None = None

    def amount(self, resource: ResourceName) -> int | None:
        match resource:
            case ResourceName.CPU:
                return self.cpu_milli
            case ResourceName.MEMORY:
                return self.memory_bytes


NOTHING = Amounts()
ZERO = Amounts(0, 0)


class Resources(msgspec.Struct, frozen=True):
    requests: Amounts = NOTHING
    limits: Amounts = NOTHING


def resources_of(container: Object) -> Resources:
    """The container's resources; a request that is absent is its limit, as Kubernetes defaults."""
    return parse_resources(container.get("resources"))


def parse_resources(resources: Object | None) -> Resources:
    """Read ``{requests, limits}``; raises QuantityError."""
    if not resources:
        return Resources()
    quantities = resources.get("limits")
    limits = parse_amounts(quantities)
    if resources.get("requests") == quantities:
        return Resources(limits, limits)
    asked = parse_amounts(resources.get("requests"))
    return Resources(requests=or_else(asked, limits), limits=limits)


def parse_amounts(quantities: Object | None) -> Amounts:
    """Read cpu and memory of a resource list; raises QuantityError."""
    if not quantities:
        return NOTHING
    cpu, memory = quantities.get("cpu"), quantities.get("memory")
    if isinstance(cpu, str) and isinstance(memory, str):
        return _usual_amounts(cpu, memory)  # one that cannot be read is not kept
    return Amounts(
        None if cpu is None else cpu_milli(cpu),
        None if memory is None else memory_bytes(memory),
    )


@functools.lru_cache(4096)
def _usual_amounts(cpu: str, memory: str) -> Amounts:
    """Kept, because sizes repeat."""
    return Amounts(cpu_milli(cpu), memory_bytes(memory))


def format_amounts(amounts: Amounts) -> Object:
    """The resource list that says the same; what is not set is left out."""
    written: Object = {}
    if amounts.cpu_milli is not None:
        written["cpu"] = format_cpu(amounts.cpu_milli)
    if amounts.memory_bytes is not None:
        written["memory"] = format_memory(amounts.memory_bytes)
    return written


def is_vm(pod: Object) -> bool:
    """The pod is a virtual machine: it has spec.virtualMachine instead of containers."""
    spec = pod.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("virtualMachine"), dict)


def vm_container(vm: Object) -> Object:
    """A virtual machine as the one container that it is to everything generic (B1)."""
    return {**vm, "name": VM_NAME}


def containers_of(pod: Object) -> list[Object]:
    """App containers, in spec order; of a VM pod the virtual machine, as one container."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return []
    if isinstance(spec.get("virtualMachine"), dict):
        return [vm_container(spec["virtualMachine"])]  # a container that is served is the same
    containers: list[Object] = spec.get("containers") or []
    return containers


def init_containers_of(pod: Object) -> list[Object]:
    """Those that start before the others, in their order; sidecars among them."""
    spec = pod.get("spec")
    starting: list[Object] = (spec.get("initContainers") or []) if isinstance(spec, dict) else []
    return starting


def stays(init_container: Object) -> bool:
    """It is a sidecar: it starts before the others, and runs as long as they do."""
    return init_container.get("restartPolicy") == "Always"


def sidecars_of(pod: Object) -> tuple[str, ...]:
    """Their names, in the order in which they start."""
    return tuple(one["name"] for one in init_containers_of(pod) if stays(one))


def resizable_of(pod: Object) -> list[Object]:
    """What a resize can change: app containers in spec order, then sidecars in theirs. Other init
    containers keep the size they were created with (Kubernetes 1.33 and later)."""
    containers = containers_of(pod)
    starting = init_containers_of(pod)
    return [*containers, *filter(stays, starting)] if starting else containers


def moments(running: Iterable[T], starting: Iterable[tuple[T, bool]]) -> list[list[T]]:
    """What a pod has at the same time, for each moment that counts: its containers and sidecars;
    and before, each init container with the sidecars that have started by then. The most of all
    moments is what the pod needs (Kubernetes' rule). ``starting``: init containers in their order,
    and whether each stays."""
    sidecars: list[T] = []
    found: list[list[T]] = []
    for one, kept in starting:
        found.append([*sidecars, one])
        if kept:
            sidecars.append(one)
    return [[*sidecars, *running], *found]


def container_resources(pod: Object) -> dict[str, Resources]:
    """Resources of what can be resized, by name: app containers, then sidecars."""
    return {container["name"]: resources_of(container) for container in resizable_of(pod)}


def cells_of(vm: Object) -> list[Object]:
    """The NUMA cells of a virtual machine, or of it as a container; none: it has one."""
    numa = vm.get("numa")
    cells = numa.get("cells") if isinstance(numa, dict) else None
    return cells if isinstance(cells, list) else []


def with_cells(vm: Object, cells: Iterable[Object]) -> Object:
    """The virtual machine with this memory in its NUMA cells; those that are not named keep
    theirs."""
    memory = {cell["id"]: cell["memory"] for cell in cells}
    if not memory:
        return vm
    changed = [
        {**cell, "memory": memory.get(cell.get("id"), cell.get("memory"))} for cell in cells_of(vm)
    ]
    return {**vm, "numa": {**vm["numa"], "cells": changed}}


def size_of(container: Object) -> Object:
    """A container as {name, requests, limits}: the shape of desired, allocated, newResources; of a
    virtual machine with NUMA cells also {cells: [{id, memory}]}."""
    resources = container.get("resources") or {}
    size: Object = {"name": container["name"]}
    if requests := resources.get("requests"):
        size["requests"] = requests
    if limits := resources.get("limits"):
        size["limits"] = limits
    if "numa" in container and (cells := cells_of(container)):
        size["cells"] = [{"id": cell.get("id"), "memory": cell.get("memory")} for cell in cells]
    return size


def same_quantities(left: Object | None, right: Object | None) -> bool:
    """Two resource lists ask for the same; "1000m" and "1" are the same."""
    left, right = left or {}, right or {}
    if left == right:
        return True
    if left.keys() != right.keys():
        return False
    return all(map(_same_quantity, left.values(), map(right.get, left)))


def same_size(left: Object, right: Object) -> bool:
    """Two resources (or sizes) ask for the same requests and limits, and for the same in each
    cell."""
    return (
        same_quantities(left.get("requests"), right.get("requests"))
        and same_quantities(left.get("limits"), right.get("limits"))
        and same_cells(left.get("cells"), right.get("cells"))
    )


def same_cells(left: list[Object] | None, right: list[Object] | None) -> bool:
    """Two lists of cells give each the same memory, in whatever order."""
    if not left and not right:
        return True
    return same_quantities(_memory_by_cell(left), _memory_by_cell(right))


def _memory_by_cell(cells: list[Object] | None) -> Object:
    return {str(cell.get("id")): cell.get("memory") for cell in cells or ()}


def add(left: Amounts, right: Amounts) -> Amounts:
    """Sum in which "not set" adds nothing: right for requests."""
    return Amounts(
        _add(left.cpu_milli, right.cpu_milli), _add(left.memory_bytes, right.memory_bytes)
    )


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Sum of many; nothing set anywhere stays not set."""
    result = NOTHING
    for one in amounts:
        result = add(result, one)
    return result


def maximum(left: Amounts, right: Amounts) -> Amounts:
    """The larger of each; "not set" is smaller than anything."""
    return Amounts(
        _maximum(left.cpu_milli, right.cpu_milli), _maximum(left.memory_bytes, right.memory_bytes)
    )


def or_else(first: Amounts, second: Amounts) -> Amounts:
    """``first``, and ``second`` where the first is not set."""
    return Amounts(
        second.cpu_milli if first.cpu_milli is None else first.cpu_milli,
        second.memory_bytes if first.memory_bytes is None else first.memory_bytes,
    )


def or_zero(amounts: Amounts) -> Amounts:
    return or_else(amounts, ZERO)


def _same_quantity(left: Any, right: Any) -> bool:
    if left == right:
        return True
    try:
        return parse_quantity(left) == parse_quantity(right)
    except QuantityError:
        return False


def _add(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


def _maximum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else max(left, right)
