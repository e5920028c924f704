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

import msgspec

from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of, without
from livesize.api.workload_resize import (
    ANNOTATIONS,
    HELD,
    PAUSED,
    PREVIOUS,
    RESIZE_STATUS,
    STRATEGY,
    Hold,
    TemplateChange,
    asks_in_place,
    format_sizes,
    held,
    hold_of,
    is_deployment,
    note_hold,
    partition_of,
    put_aside,
    recreates,
    released,
    template_change,
    template_of,
)

_SERVER_NOTES = (HELD, PREVIOUS, RESIZE_STATUS)


def without_notes(new: Object) -> Object:
    """A new workload, which may be the copy of one that is being resized."""
    for name in _SERVER_NOTES:
        new = without(new, (*ANNOTATIONS, name))
    return new


def hold_workload(old: Object, new: Object) -> Object:
    """``new``, as a user writes it, with the hold that it needs. ``old``: as it is stored."""
    new = note_hold(new, lookup(old, *ANNOTATIONS, HELD))
    hold, change = hold_of(old), template_change(template_of(old), template_of(new))
    if change is TemplateChange.RESIZE:
        new = evolve(new, (*ANNOTATIONS, PREVIOUS), format_sizes(template_of(old)))
    if hold is not None:
        hold = put_aside(hold, new)
        if change is TemplateChange.ROLLOUT:
            return released(new, hold)
        if change is not TemplateChange.NONE:
            hold = msgspec.structs.replace(
                hold, generation=generation_of(old) + 1, partition=_most_replicas(old, new)
            )
        return held(new, hold)
    if not asks_in_place(new) or _is_suspended(new) or _is_rolling_out(old):
        return new
    if change is TemplateChange.NONE:
        begins = _lets_go(old, new)
    else:
        begins = change is not TemplateChange.ROLLOUT and not recreates(new, template_of(old))
    return _begin(old, new) if begins else new


def _begin(old: Object, new: Object) -> Object:
    """Where the hold takes back all that was written, a partition that was lowered, the write makes
    no new generation."""
    hold = Hold(uid_of(old), generation_of(old) + 1)
    if not is_deployment(new):
        hold = msgspec.structs.replace(
            hold, strategy=lookup(new, *STRATEGY), partition=_most_replicas(old, new)
        )
    begun = held(new, hold)
    if begun["spec"] != old["spec"]:
        return begun
    return held(new, msgspec.structs.replace(hold, generation=generation_of(old)))


def _is_suspended(new: Object) -> bool:
    """Its user keeps every change from its pods."""
    return bool(lookup(new, *PAUSED)) or lookup(new, *STRATEGY, "type") == "OnDelete"


def _lets_go(old: Object, new: Object) -> bool:
    """The write gives pods free that were kept back before."""
    if is_deployment(new):
        return bool(lookup(old, *PAUSED))
    before, after = lookup(old, *STRATEGY, default={}), lookup(new, *STRATEGY, default={})
    status = old.get("status") or {}
    is_one = status.get("updateRevision") == status.get("currentRevision")
    are_all = status.get("updatedReplicas", 0) >= status.get("replicas", 0)
    pending = not (is_one and are_all and _is_seen(old))
    lowered = before.get("type") == "OnDelete" or partition_of(after) < partition_of(before)
    return pending and lowered


def _is_rolling_out(old: Object) -> bool:
    """A rollout has begun that its controller has not finished: of the pods there are, some that
    should have the new template do not. Scaling is no rollout. What the controller has not seen
    yet is not known: it may have been down since, and then it looks like a rollout after a resize,
    too. So it is held, and in_place finds out."""
    if _is_suspended(old) or not _is_seen(old):
        return False
    status = old.get("status") or {}
    if is_deployment(old):
        return bool(status.get("updatedReplicas", 0) < status.get("replicas", 0))
    if status.get("updateRevision") == status.get("currentRevision"):
        return False
    partition = partition_of(lookup(old, *STRATEGY, default={}))
    return bool(status.get("currentReplicas", 0) > partition)  # none that leaves is counted


def _is_seen(old: Object) -> bool:
    """Status tells of its newest generation."""
    seen = lookup(old, "status", "observedGeneration", default=generation_of(old))
    return bool(seen >= generation_of(old))


def _most_replicas(old: Object, new: Object) -> int:
    """No pod that there is, or may still be, has an index of so much or more."""
    counts = [lookup(one, "spec", "replicas", default=1) for one in (old, new)]
    return int(max(*counts, lookup(old, "status", "replicas", default=0)))
