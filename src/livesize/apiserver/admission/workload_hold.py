"""Holds a workload in the very write that resizes it, so that no controller rolls it out. Pure.

The controller of a StatefulSet or Deployment acts milliseconds after a new template. So the hold is
part of the write: a StatefulSet's partition becomes its number of replicas, a Deployment is paused,
and the annotation ``livesize.dev/held`` says what is put back. The controller in_place resizes the
pods then, and takes the hold off (livesize.controllers.in_place).

    not held, asks, only sizes or policies change    hold
    not held, asks, and less is kept back than       hold: what was kept back may be a resize
      before (partition lowered, resumed)
    a rollout is under way                           no hold: it goes on with the new sizes
    held, and partition, type or paused are written  that is what will be put back; the hold stays
    held, and more than a resize is written          the hold ends in this write: a rollout

It may hold more than it has to: in_place lets go of what is not a resize. It touches nothing under
OnDelete, nor a Deployment that its user has paused. Only controllers write the annotation.
"""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of, without
from livesize.api.workload_resize import (
    HELD,
    PREVIOUS,
    RESIZE_STATUS,
    Hold,
    TemplateChange,
    asks_in_place,
    format_hold,
    format_sizes,
    hold_of,
    recreates,
    template_change,
    template_of,
)

_STRATEGY = ("spec", "updateStrategy")
_PAUSED = ("spec", "paused")
_ANNOTATIONS = ("metadata", "annotations")
_SERVER_NOTES = (HELD, PREVIOUS, RESIZE_STATUS)


def without_notes(new: Object) -> Object:
    """A new workload, which may be the copy of one that is being resized."""
    for name in _SERVER_NOTES:
        new = without(new, (*_ANNOTATIONS, name))
    return new


def hold_workload(old: Object, new: Object) -> Object:
    """``new``, as a user writes it, with the hold that it needs. ``old``: as it is stored."""
    new = _noted(new, lookup(old, *_ANNOTATIONS, HELD))
    hold, change = hold_of(old), template_change(template_of(old), template_of(new))
    if change is TemplateChange.RESIZE:
        new = evolve(new, (*_ANNOTATIONS, PREVIOUS), format_sizes(template_of(old)))
    if hold is not None:
        hold = _put_aside(hold, old, new)
        if change is TemplateChange.ROLLOUT:
            return released(new, hold)
        return _held(new, hold)
    if not asks_in_place(new) or _is_suspended(new) or _is_rolling_out(old):
        return new
    if change is TemplateChange.NONE:
        begins = _lets_go(old, new)
    else:
        begins = change is not TemplateChange.ROLLOUT and not recreates(new, template_of(old))
    return _begin(old, new) if begins else new


def released(workload: Object, hold: Hold) -> Object:
    """The workload as its user wants it, without the hold."""
    if _is_deployment(workload):
        workload = evolve(workload, _PAUSED, True) if hold.paused else without(workload, _PAUSED)
    else:
        workload = evolve(workload, _STRATEGY, hold.strategy)
    return _noted(workload, None)


def _begin(old: Object, new: Object) -> Object:
    hold = Hold(uid_of(old), generation_of(old) + 1)
    if not _is_deployment(new):
        hold = msgspec.structs.replace(
            hold, strategy=lookup(new, *_STRATEGY), partition=_replicas(old, new)
        )
    return _held(new, hold)


def _put_aside(hold: Hold, old: Object, new: Object) -> Hold:
    """The hold, with what the user wants to have once it is off. Who writes what stood there before
    has only read it."""
    if template_of(old) != template_of(new):
        hold = msgspec.structs.replace(
            hold, generation=generation_of(old) + 1, partition=_replicas(old, new)
        )
    if _is_deployment(new):
        return hold if lookup(new, *_PAUSED) else msgspec.structs.replace(hold, paused=False)
    wanted, before = lookup(new, *_STRATEGY, default={}), lookup(old, *_STRATEGY, default={})
    if wanted == before:
        return hold
    if _partition(wanted) == _partition(before):
        wanted = _with_partition(wanted, _partition(hold.strategy or {}))
    return msgspec.structs.replace(hold, strategy=wanted)


def _held(new: Object, hold: Hold) -> Object:
    if _is_deployment(new):
        new = evolve(new, _PAUSED, True)
    else:
        rolling = {**(hold.strategy or {}), "type": "RollingUpdate"}
        new = evolve(new, _STRATEGY, _with_partition(rolling, hold.partition))
    return _noted(new, format_hold(hold))


def _noted(workload: Object, held: str | None) -> Object:
    path = (*_ANNOTATIONS, HELD)
    return without(workload, path) if held is None else evolve(workload, path, held)


def _is_suspended(new: Object) -> bool:
    """Its user keeps every change from its pods."""
    return bool(lookup(new, *_PAUSED)) or lookup(new, *_STRATEGY, "type") == "OnDelete"


def _lets_go(old: Object, new: Object) -> bool:
    """The write gives pods free that were kept back before."""
    if _is_deployment(new):
        return bool(lookup(old, *_PAUSED))
    before, after = lookup(old, *_STRATEGY, default={}), lookup(new, *_STRATEGY, default={})
    pending = lookup(old, "status", "updateRevision") != lookup(old, "status", "currentRevision")
    lowered = before.get("type") == "OnDelete" or _partition(after) < _partition(before)
    return pending and lowered


def _is_rolling_out(old: Object) -> bool:
    """A rollout has begun that its controller has not finished."""
    if _is_suspended(old):
        return False
    status, replicas = old.get("status") or {}, lookup(old, "spec", "replicas", default=1)
    updated = status.get("updatedReplicas") or 0
    if _is_deployment(old):
        return bool(status.get("replicas")) and not updated == replicas == status["replicas"]
    if status.get("updateRevision") == status.get("currentRevision"):
        return False
    return bool(updated < replicas - _partition(lookup(old, *_STRATEGY, default={})))


def _replicas(old: Object, new: Object) -> int:
    """No pod that there is, or may still be, has an ordinal of so much or more."""
    counts = [lookup(one, "spec", "replicas", default=1) for one in (old, new)]
    return int(max(*counts, lookup(old, "status", "replicas", default=0)))


def _partition(strategy: Object) -> int:
    value: Any = lookup(strategy, "rollingUpdate", "partition", default=0)
    return value if isinstance(value, int) else 0


def _with_partition(strategy: Object, partition: int) -> Object:
    return evolve(strategy, ("rollingUpdate", "partition"), partition)


def _is_deployment(workload: Object) -> bool:
    return workload.get("kind") == "Deployment"
