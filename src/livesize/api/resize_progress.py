"""What a pod says about its resize in the words of any Kubernetes: conditions, spec, status. Pure.

    PodResizePending, Infeasible      it never fits the node
    PodResizePending, Deferred        it waits for room
    PodResizeInProgress               the node applies it
    PodResizeInProgress, Error        the node failed to, and tries again
    none of them, and the status is   the node has not judged it yet
    about an older generation with
    other sizes

Controllers read it here, so that they run on any cluster.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resources import VM_NAME, cells_of, is_vm, same_quantities, stays

Sizes: TypeAlias = dict[str, Object]
"""By container: {requests, limits}; of a virtual machine also {cells: [{id, memory}]}."""


class ResizeProgress(enum.Enum):
    SETTLED = "settled"
    UNJUDGED = "unjudged"
    IN_PROGRESS = "in progress"
    ERROR = "error"
    DEFERRED = "deferred"
    INFEASIBLE = "infeasible"


class ReportedResize(msgspec.Struct, frozen=True):
    """``message`` and ``since`` (a time as text): the node's own; empty where it says nothing."""

    progress: ResizeProgress
    message: str = ""
    since: str = ""


SETTLED = ReportedResize(ResizeProgress.SETTLED)
UNJUDGED = ReportedResize(ResizeProgress.UNJUDGED)


def report_of(pod: Object) -> ReportedResize:
    pending = _true_condition(pod, ConditionType.POD_RESIZE_PENDING)
    if pending is not None:
        if _is_outdated(pending, pod):
            return UNJUDGED
        never = pending.get("reason") == Reason.INFEASIBLE
        return _said(pending, ResizeProgress.INFEASIBLE if never else ResizeProgress.DEFERRED)
    applying = _true_condition(pod, ConditionType.POD_RESIZE_IN_PROGRESS)
    if applying is not None:
        failed = applying.get("reason") == Reason.ERROR
        return _said(applying, ResizeProgress.ERROR if failed else ResizeProgress.IN_PROGRESS)
    return UNJUDGED if _awaits_verdict(pod) else SETTLED


def progress_of(pod: Object) -> ResizeProgress:
    return report_of(pod).progress


def resizable_containers(pod: Object) -> list[tuple[str, Object]]:
    """Containers and sidecars, each with the field of the spec that lists it."""
    spec = pod.get("spec") or {}
    found = [("containers", one) for one in spec.get("containers") or ()]
    sidecars = [one for one in spec.get("initContainers") or () if stays(one)]
    return [*found, *(("initContainers", one) for one in sidecars)]


def desired_sizes(pod: Object) -> Sizes:
    """Of a virtual machine of ours with NUMA cells, {cells} too."""
    sizes = {one["name"]: _size(one.get("resources")) for _, one in resizable_containers(pod)}
    return _with_cells(
        sizes, cells_of(pod["spec"]["virtualMachine"]) if is_vm(pod) else [], "memory"
    )


def actual_sizes(pod: Object) -> Sizes:
    """As the node reports them, of the containers for which it does."""
    statuses = _statuses(pod)
    sizes = {
        one["name"]: _size(statuses[one["name"]]["resources"])
        for _, one in resizable_containers(pod)
        if (statuses.get(one["name"]) or {}).get("resources")
    }
    told = lookup(pod, "status", "virtualMachineStatus", "cells", default=[])
    return _with_cells(sizes, told, "plugged")


def _said(condition: Object, progress: ResizeProgress) -> ReportedResize:
    since = condition.get("lastTransitionTime")
    return ReportedResize(progress, str(condition.get("message") or ""), str(since or ""))


def _is_outdated(condition: Object, pod: Object) -> bool:
    about = condition.get("observedGeneration")
    return about is not None and about != generation_of(pod)


def _awaits_verdict(pod: Object) -> bool:
    observed = lookup(pod, "status", "observedGeneration")
    if observed is not None and observed >= generation_of(pod):
        return False
    statuses = _statuses(pod)
    for name, size in desired_sizes(pod).items():
        status = statuses.get(name) or {}
        allocated = status.get("allocatedResources")
        if allocated is not None and not _same(size.get("requests"), allocated):
            return True
        limits = lookup(status, "resources", "limits")
        if observed is not None and limits and not _same(size.get("limits"), limits):
            return True
    return False


def _true_condition(pod: Object, kind: ConditionType) -> Object | None:
    condition = find_condition(pod, kind)
    return condition if condition is not None and condition.get("status") == "True" else None


def _statuses(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    lists = ("containerStatuses", "initContainerStatuses")
    return {one["name"]: one for name in lists for one in status.get(name) or ()}


def _size(resources: Object | None) -> Object:
    given = resources or {}
    return {side: given[side] for side in ("requests", "limits") if given.get(side)}


def _with_cells(sizes: Sizes, cells: list[Object], field: str) -> Sizes:
    if not cells or VM_NAME not in sizes:
        return sizes
    given = [{"id": cell.get("id"), "memory": cell.get(field)} for cell in cells]
    return {**sizes, VM_NAME: {**sizes[VM_NAME], "cells": given}}


def _same(left: Object | None, right: Object | None) -> bool:
    names = ("cpu", "memory")
    one, other = left or {}, right or {}
    return same_quantities(
        {name: one[name] for name in names if name in one},
        {name: other[name] for name in names if name in other},
    )
