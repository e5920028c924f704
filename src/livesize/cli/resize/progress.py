"""Where a resize stands, read from Kubernetes-shaped status only, so that it is true anywhere.

ResizeDone means: the node has seen this generation, no resize condition is left, and what every
container really has is what its spec asks, by value. Pure.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.conditions import find_condition
from livesize.api.container_state import yet_to_run
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.quantity import memory_bytes
from livesize.api.resources import (
    NOTHING,
    Amounts,
    ResourceName,
    Resources,
    container_resources,
    parse_amounts,
)
from livesize.cli.resize.held_memory import held_memory
from livesize.cli.resize.plan import ResizePatch
from livesize.cli.sizes import container_sizes
from livesize.cli.vm_words import desired_cells

OVERTAKEN = "somebody else asked for another size meanwhile; theirs counts now"


class ResizeDone(msgspec.Struct, frozen=True, tag=True):
    """It has happened. ``note`` says so where nothing had to be applied."""

    note: str = ""


class ResizeWaiting(msgspec.Struct, frozen=True, tag=True):
    """It has not happened yet; ``word`` changes when something moves."""

    word: str
    message: str = ""


class ResizeRefused(msgspec.Struct, frozen=True, tag=True):
    """It will not happen: the node can never hold it, or the spec has another size by now."""

    sentence: str
    infeasible: bool = True


Progress: TypeAlias = ResizeDone | ResizeWaiting | ResizeRefused


def progress_of(pod: Object, generation: int, patch: ResizePatch) -> Progress:
    """How far the change made at ``generation`` is."""
    if not still_wanted(pod, patch):
        return ResizeRefused(OVERTAKEN, infeasible=False)
    ended = _nothing_to_apply(pod)
    return ended or _pending(pod, generation, patch) or _applied(pod, generation, patch)


def verdict_is_known(waiting: ResizeWaiting) -> bool:
    """The node has said that it waits; what it has accepted is mostly done a moment later."""
    return waiting.word not in ("Requested", "Accepted", "InProgress")


def _nothing_to_apply(pod: Object) -> ResizeDone | None:
    if not lookup(pod, "spec", "nodeName"):
        return ResizeDone("is on no node yet and will start with this size")
    phase = lookup(pod, "status", "phase", default="")
    if phase in ("Succeeded", "Failed"):
        return ResizeDone(f"has ended ({phase}); nothing runs that could be resized")
    return None


def _applied(pod: Object, generation: int, patch: ResizePatch) -> Progress:
    running = find_condition(pod, "PodResizeInProgress")
    if running is not None and running.get("status") == "True":
        return _applying(pod, running, patch)
    if _observed(pod) < generation:
        return ResizeWaiting("Requested")
    if waiting := _not_running(pod, patch):
        return waiting
    sizes = [one for one in container_sizes(pod).values() if one.runs]  # others have ended
    if any(one.actual != one.desired for one in sizes):
        return ResizeWaiting("InProgress")
    return ResizeDone()


def _applying(pod: Object, running: Object, patch: ResizePatch) -> ResizeWaiting:
    message = str(running.get("message") or "")
    if held := held_memory(message):
        return ResizeWaiting("Held", held)
    if running.get("reason"):
        return ResizeWaiting(str(running["reason"]), message)
    return _not_running(pod, patch) or ResizeWaiting("InProgress", message)


def _pending(pod: Object, generation: int, patch: ResizePatch) -> Progress | None:
    pending = find_condition(pod, "PodResizePending")
    if pending is None or pending.get("status") != "True":
        return None
    # A verdict on an earlier size says nothing about this one.
    if int(pending.get("observedGeneration") or generation) < generation:
        return ResizeWaiting("Requested")
    message = str(pending.get("message") or "")
    if pending.get("reason") == "Infeasible":
        return _in_part(pod, patch, message) or ResizeRefused(
            message or "the node can never hold it"
        )
    if waiting := yet_to_run(pod, [patch.container]):
        message = f"{message}; nor does it run: {waiting}"
    return ResizeWaiting(str(pending.get("reason") or "Deferred"), message)


def _not_running(pod: Object, patch: ResizePatch) -> ResizeWaiting | None:
    waiting = yet_to_run(pod, [patch.container])
    return ResizeWaiting("NotRunning", waiting) if waiting else None


def _in_part(pod: Object, patch: ResizePatch, refusal: str) -> Progress | None:
    """An earlier request for the other resource may be what is refused: each is judged alone."""
    sizes = container_sizes(pod)[patch.container]
    asked = parse_amounts(patch.resources.get("requests"))
    if sizes.allocated is None or asked == NOTHING or not covers(sizes.allocated, asked):
        return None
    actual = Resources() if sizes.actual is None else sizes.actual
    limits = parse_amounts(patch.resources.get("limits"))
    if covers(actual.requests, asked) and covers(actual.limits, limits):
        return ResizeDone(f"has this size; what was asked before is still refused: {refusal}")
    return ResizeWaiting("InProgress")


def _observed(pod: Object) -> int:
    """Servers before 1.33 do not say; then the sizes alone decide."""
    return int(lookup(pod, "status", "observedGeneration", default=generation_of(pod)))


def still_wanted(pod: Object, patch: ResizePatch) -> bool:
    """The pod, or the template, asks for what the patch says."""
    desired = container_resources(pod).get(patch.container)
    if desired is None or not _cells_wanted(pod, patch):
        return False
    return covers(desired.requests, parse_amounts(patch.resources.get("requests"))) and covers(
        desired.limits, parse_amounts(patch.resources.get("limits"))
    )


def _cells_wanted(pod: Object, patch: ResizePatch) -> bool:
    wanted = desired_cells(pod)
    return all(wanted.get(cell["id"]) == memory_bytes(cell["memory"]) for cell in patch.cells)


def covers(desired: Amounts, requested: Amounts) -> bool:
    """What the patch says is what is desired; what it does not say may be anything."""
    wanted = {resource: requested.amount(resource) for resource in ResourceName}
    return all(
        amount is None or amount == desired.amount(resource) for resource, amount in wanted.items()
    )
