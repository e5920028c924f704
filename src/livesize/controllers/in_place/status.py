"""What the annotation ``livesize.dev/resize-status`` says of a workload's resize. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.objects import name_of
from livesize.api.reasons import EventReason
from livesize.api.times import format_micro_time, parse_time
from livesize.api.workload_status import MOST_UNFINISHED, ResizeStatus, feasible_size
from livesize.controllers.in_place.pod_plan import PodStanding, PodState

FINISHED = (PodStanding.DONE, PodStanding.COUNTED)
STUCK = (PodStanding.WAITS, PodStanding.REVERT, PodStanding.RECREATE, PodStanding.FAILED)
_EVENTS = {
    "Infeasible": EventReason.RESIZE_INFEASIBLE,
    "Invalid": EventReason.RESIZE_INFEASIBLE,
    "Error": EventReason.RESIZE_ERROR,
    "NotReady": EventReason.RESIZE_ERROR,
}


def build_status(generation: int, states: Iterable[PodState], now: float) -> ResizeStatus:
    states = list(states)
    left = [state for state in states if state.standing not in FINISHED]
    left.sort(key=lambda state: state.standing is PodStanding.QUEUED)
    updated = len(states) - len(left)
    return ResizeStatus(
        generation,
        format_micro_time(now),
        len(states),
        updated,
        [_said(state) for state in left[:MOST_UNFINISHED]],
        _sentence(states, left),
    )


def says_the_same(one: ResizeStatus | None, other: ResizeStatus) -> bool:
    return one is not None and msgspec.structs.replace(one, time=other.time) == other


def seconds_since(status: ResizeStatus | None, now: float) -> float:
    return now if status is None else now - parse_time(status.time)


def stuck_event(
    before: ResizeStatus | None, after: ResizeStatus, states: Iterable[PodState]
) -> EventReason | None:
    """Of what is stuck now, unless the last report has said it."""
    stuck = [state for state in states if state.standing in STUCK]
    if not stuck or (before is not None and before.message == after.message):
        return None
    return _EVENTS.get(stuck[0].reason, EventReason.RESIZE_DEFERRED)


def _said(state: PodState) -> dict[str, str]:
    return {"pod": name_of(state.pod), "reason": state.reason, "message": state.message}


def _sentence(states: list[PodState], left: list[PodState]) -> str:
    said = f"{len(states) - len(left)} of {len(states)} pods have the sizes of the template"
    stuck = [state for state in left if state.standing in STUCK]
    if not stuck:
        return said
    reasons = sorted({state.reason for state in stuck})
    said += f"; {len(stuck)} cannot have them now ({', '.join(reasons)})"
    if any(state.standing is PodStanding.FAILED for state in stuck):
        return f"{said}: no other pod is begun before {name_of(stuck[0].pod)} is ready"
    if any(state.reason in ("Infeasible", "Deferred") for state in stuck):
        size = feasible_size(state.message for state in stuck)
        said += f": ask for the former sizes, or for {size}"
    return said
