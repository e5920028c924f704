"""How long a resize may take, and what is done then: two annotations of the pod (decisions 13).

    livesize.dev/resize-deadline   a duration from when it was asked: 30s, 5m, 1h30m
    livesize.dev/on-deadline       Keep     goes on trying (the default)
                                   Revert   back to the sizes before it
                                   Restart  the containers that do not have it yet restart with it
                                   Evict    the pod goes; its replacement has the new size

With an action and without a duration it is 30 s; with a duration and without an action nothing is
done. What can never fit its node is not waited for. Pure.

A resize that was asked with resizeAction InPlaceResizePreferred falls back to a restart of all
containers after the same time, where applying it fails (``fallback_seconds``; decisions 37).
"""

from __future__ import annotations

import enum

import msgspec

from livesize.api.duration import parse_duration
from livesize.api.objects import Object

DEADLINE = "livesize.dev/resize-deadline"
ON_DEADLINE = "livesize.dev/on-deadline"
DEFAULT_SECONDS = 30.0


class OnDeadline(enum.StrEnum):
    KEEP = "Keep"
    REVERT = "Revert"
    RESTART = "Restart"
    EVICT = "Evict"


_ACTIONS = {one.value: one for one in OnDeadline if one is not OnDeadline.KEEP}
_NONE: Object = {}


class Deadline(msgspec.Struct, frozen=True):
    seconds: float
    action: OnDeadline


def deadline_of(pod: Object) -> Deadline | None:
    """None: nothing is ever done. What validation would refuse counts as not said."""
    annotations = (pod.get("metadata") or _NONE).get("annotations")
    if not annotations:
        return None
    action = _ACTIONS.get(annotations.get(ON_DEADLINE, ""))
    if action is None:
        return None
    seconds = parse_duration(annotations.get(DEADLINE, ""))
    return Deadline(DEFAULT_SECONDS if seconds is None else seconds, action)


def fallback_seconds(pod: Object) -> float | None:
    """How long a resize that is preferred in place is tried, before the pod's containers restart
    for it; None: for ever. Whoever says what is to be done at a deadline has said it; a pod that
    has an owner is its owner's; and what never restarts does not do so now."""
    metadata, spec = pod.get("metadata") or _NONE, pod.get("spec") or _NONE
    annotations = metadata.get("annotations") or _NONE
    owned = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    if ON_DEADLINE in annotations or owned or spec.get("restartPolicy") == "Never":
        return None
    seconds = parse_duration(annotations.get(DEADLINE, ""))
    return DEFAULT_SECONDS if seconds is None else seconds
