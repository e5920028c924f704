"""The annotation ``livesize.dev/resize-status`` of a workload: how its resize stands. Pure.

A JSON text:

    generation   of the write that began the resize
    time         of the report
    pods         how many the resize is about
    updated      how many of them have the template's sizes
    unfinished   at most 20 of the others: pod, reason, message
    message      a sentence
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

from livesize.api.objects import name_of
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.reasons import EventReason
from livesize.api.times import format_micro_time, parse_time
from livesize.controllers.in_place.pod_plan import PodStanding, PodState

MOST_UNFINISHED = 20
FINISHED = (PodStanding.DONE, PodStanding.COUNTED)
STUCK = (PodStanding.WAITS, PodStanding.REVERT, PodStanding.RECREATE, PodStanding.FAILED)
_CAPACITY = re.compile(r"(cpu|memory), requested: \d+, capacity: (\d+)")
_EVENTS = {
    "Infeasible": EventReason.RESIZE_INFEASIBLE,
    "Invalid": EventReason.RESIZE_INFEASIBLE,
    "Error": EventReason.RESIZE_ERROR,
    "NotReady": EventReason.RESIZE_ERROR,
}


class ResizeStatus(msgspec.Struct, frozen=True):
    generation: int
    time: str
    pods: int
    updated: int
    unfinished: list[dict[str, str]]
    message: str


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


def format_status(status: ResizeStatus) -> str:
    return json.dumps(msgspec.to_builtins(status), sort_keys=True, separators=(",", ":"))


def parse_status(text: str | None) -> ResizeStatus | None:
    try:
        return msgspec.json.decode(text or "", type=ResizeStatus)
    except msgspec.DecodeError:
        return None


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
        said += f": ask for the former sizes, or for a size feasible on all the nodes{_most(stuck)}"
    return said


def _most(stuck: list[PodState]) -> str:
    """The largest size that is feasible on the nodes which have said how much they have."""
    least: dict[str, int] = {}
    for state in stuck:
        for resource, capacity in _CAPACITY.findall(state.message):
            least[resource] = min(int(capacity), least.get(resource, int(capacity)))
    if not least:
        return ""
    words = {"cpu": format_cpu, "memory": format_memory}
    said = [f"{resource} {words[resource](amount)}" for resource, amount in sorted(least.items())]
    return f" (at most {' and '.join(said)} for all containers of a pod)"
