"""What a pod says about its resize in the words of any Kubernetes: conditions, spec, status. Pure.

    PodResizePending, Infeasible      it never fits the node
    PodResizePending, Deferred        it waits for room
    PodResizeInProgress               the node applies it, or failed to and tries again
    none of them, and the status is   the node has not judged it yet
    about an older generation with
    other sizes

A controller needs two things that no field has: since when a resize is asked, and the sizes before
it. It keeps both in the annotation ``livesize.dev/resize-began``, so that the next controller knows
them, and takes the annotation off when the resize is done or its deadline is taken back. Whoever
may write a pod may write that annotation too: one that makes no sense counts as none.
"""

from __future__ import annotations

import enum
import json
from typing import TypeAlias

import msgspec

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resources import same_quantities, same_size, stays
from livesize.api.schema.fields import schema_of
from livesize.api.schema.resources import ResourceRequirements
from livesize.api.schema.shapes import check_shape
from livesize.api.times import parse_time

BEGAN = "livesize.dev/resize-began"

Sizes: TypeAlias = dict[str, Object]
"""By container: {requests, limits}."""


class ResizeProgress(enum.Enum):
    SETTLED = "settled"
    UNFINISHED = "unfinished"
    INFEASIBLE = "infeasible"


class ResizeBegan(msgspec.Struct, frozen=True):
    """``time``: when the controller saw the request; ``former``: the sizes before it, and
    ``desired``: those it asks for."""

    generation: int
    time: str
    former: Sizes
    desired: Sizes = {}


def progress_of(pod: Object) -> ResizeProgress:
    pending = _true_condition(pod, ConditionType.POD_RESIZE_PENDING)
    if pending is not None:
        about = pending.get("observedGeneration") or generation_of(pod)
        never = pending.get("reason") == Reason.INFEASIBLE and about == generation_of(pod)
        return ResizeProgress.INFEASIBLE if never else ResizeProgress.UNFINISHED
    if _true_condition(pod, ConditionType.POD_RESIZE_IN_PROGRESS) or _awaits_verdict(pod):
        return ResizeProgress.UNFINISHED
    return ResizeProgress.SETTLED


def resizable_containers(pod: Object) -> list[tuple[str, Object]]:
    """Containers and sidecars, each with the field of the spec that lists it."""
    spec = pod.get("spec") or {}
    found = [("containers", one) for one in spec.get("containers") or ()]
    sidecars = [one for one in spec.get("initContainers") or () if stays(one)]
    return [*found, *(("initContainers", one) for one in sidecars)]


def desired_sizes(pod: Object) -> Sizes:
    return {one["name"]: _size(one.get("resources")) for _, one in resizable_containers(pod)}


def actual_sizes(pod: Object) -> Sizes:
    """As the node reports them, of the containers for which it does."""
    statuses = _statuses(pod)
    return {
        one["name"]: _size(statuses[one["name"]]["resources"])
        for _, one in resizable_containers(pod)
        if (statuses.get(one["name"]) or {}).get("resources")
    }


def said_since(pod: Object) -> str:
    """Since when the node says what it says of the resize; empty where it says nothing."""
    for kind in (ConditionType.POD_RESIZE_PENDING, ConditionType.POD_RESIZE_IN_PROGRESS):
        condition = _true_condition(pod, kind)
        if condition is not None:
            return str(condition.get("lastTransitionTime") or "")
    return ""


def is_noted(pod: Object) -> bool:
    return BEGAN in lookup(pod, "metadata", "annotations", default=())


def began_of(pod: Object) -> ResizeBegan | None:
    """As the annotation says; None without one, or where it makes no sense."""
    if not is_noted(pod):
        return None
    try:
        began = msgspec.json.decode(pod["metadata"]["annotations"][BEGAN], type=ResizeBegan)
        parse_time(began.time)
    except ValueError:
        return None
    sizes = (*began.former.values(), *began.desired.values())
    return None if any(check_shape(_RESOURCES, size) for size in sizes) else began


_RESOURCES = schema_of(ResourceRequirements)


def has_come_true(began: ResizeBegan, pod: Object) -> bool:
    """Whether the node reports all that was asked then."""
    actual = actual_sizes(pod)
    return bool(began.desired) and all(
        name in actual and same_size(size, actual[name]) for name, size in began.desired.items()
    )


def format_began(began: ResizeBegan) -> str:
    return json.dumps(msgspec.to_builtins(began), sort_keys=True, separators=(",", ":"))


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


def _same(left: Object | None, right: Object | None) -> bool:
    names = ("cpu", "memory")
    one, other = left or {}, right or {}
    return same_quantities(
        {name: one[name] for name in names if name in one},
        {name: other[name] for name in names if name in other},
    )
