"""The one state of a resize, ``status.resizeState``, and everything that may move it.

The API server asks (``request_resize``) from any phase; the rest comes through ``pods/X/resizing``
(``apply_resizing``): scheduler and node answer, and an answer to an older request is a conflict
that changes nothing. ``bind_allocated`` starts the record when a pod is bound to a node.

Answers may be posted twice; the second changes nothing but its message and steps.
"""

from __future__ import annotations

from collections.abc import Collection

from livesize.api.errors import conflict
from livesize.api.kinds.pod_resource import PODS
from livesize.api.objects import Object, evolve, generation_of, name_of, uid_of, version_of
from livesize.api.requested_action import RequestedAction, requested_action_of
from livesize.api.resize_deadline import deadline_of
from livesize.api.resize_phase import (
    APPLYING,
    MESSAGES,
    PENDING,
    REQUEST_STATUS,
    TRANSITIONS,
    UNFINISHED,
    IllegalTransitionError,
    RequestStatus,
    ResizePhase,
    check_transition,
)
from livesize.api.resizing import ResizeReport, parse_resizing
from livesize.api.resources import resizable_of, same_size, size_of

__all__ = [
    "MAXIMUM_STEPS",
    "PENDING",
    "REQUEST_STATUS",
    "TRANSITIONS",
    "UNFINISHED",
    "IllegalTransitionError",
    "RequestStatus",
    "ResizePhase",
    "accepted_on_the_way",
    "allocated_sizes",
    "apply_resizing",
    "bind_allocated",
    "check_transition",
    "is_bound",
    "is_terminal",
    "order_of_request",
    "phase_of",
    "remember_request",
    "request_resize",
    "requested_state",
    "resize_state",
]

MAXIMUM_STEPS = 100
_REQUESTED = ResizePhase.REQUESTED.value
_STATE = ("status", "resizeState")


def resize_state(pod: Object) -> Object:
    """The stored state; empty for a pod that was never bound."""
    return (pod.get("status") or {}).get("resizeState") or {}


def phase_of(pod: Object) -> ResizePhase:
    return ResizePhase(resize_state(pod).get("phase", ResizePhase.NONE))


def is_bound(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def is_terminal(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def allocated_sizes(pod: Object) -> dict[str, Object]:
    """Allocated by container (sidecars last), as {name, requests, limits}; until bound it follows
    the spec."""
    allocated = {size["name"]: size for size in resize_state(pod).get("allocated") or []}
    return {
        container["name"]: allocated.get(container["name"]) or size_of(container)
        for container in resizable_of(pod)
    }


def bind_allocated(stored_pod: Object) -> Object:
    """What the API server adds when it binds a pod: allocated is what the spec asks then."""
    if resize_state(stored_pod):
        return stored_pod
    state: Object = {
        "generation": generation_of(stored_pod),
        "phase": ResizePhase.NONE.value,
        "allocated": [size_of(container) for container in resizable_of(stored_pod)],
    }
    return evolve(stored_pod, _STATE, state)


def request_resize(
    stored_pod: Object, new_spec_pod: Object, *, requested_by: str, now: str
) -> Object:
    """``new_spec_pod`` with the asked part of the state, where it asks for other resources.

    The request gets the generation after the stored pod's: a change of resources is a change of
    the spec. Of a pod that is not bound, or has ended, nobody needs to be asked.
    """
    before = {one["name"]: size_of(one) for one in resizable_of(stored_pod)}
    changed = [
        size["name"]
        for size in map(size_of, resizable_of(new_spec_pod))
        if not same_size(size, before.get(size["name"], {}))
    ]
    asked = requested_state(stored_pod, new_spec_pod, changed, requested_by=requested_by, now=now)
    return new_spec_pod if asked is None else evolve(new_spec_pod, _STATE, asked)


def requested_state(
    stored_pod: Object,
    new_spec_pod: Object,
    changed: Collection[str],
    *,
    requested_by: str,
    now: str,
) -> Object | None:
    """The state once these containers have been given other sizes; None where it stays as it is."""
    if not changed or not is_bound(stored_pod) or is_terminal(stored_pod):
        return None
    allocated = allocated_sizes(stored_pod)
    # A container whose earlier change is unfinished is still part of what is asked.
    desired = [
        size
        for size in map(size_of, resizable_of(new_spec_pod))
        if size["name"] in changed or not same_size(size, allocated.get(size["name"], {}))
    ]
    state: Object = {
        "generation": generation_of(stored_pod) + 1,
        "requestedBy": requested_by,
        "desired": desired,
        "allocated": list(allocated.values()),
        "phase": _REQUESTED,
        "message": MESSAGES[ResizePhase.REQUESTED],
        "transitionTime": now,
        "steps": [],
    }
    if deadline_of(new_spec_pod) is not None:
        state["requestedTime"] = now
        state["previous"] = _previous(stored_pod, allocated)
    action = requested_action_of(new_spec_pod)
    if action is not None:
        state["action"] = action.value
    if action is RequestedAction.IN_PLACE_PREFERRED:
        state["requestedTime"] = now
    return state


def remember_request(stored_pod: Object, new_pod: Object) -> Object:
    """``new_pod``, where a resize is asked that ``stored_pod`` asks already, with the version at
    which it was asked (``requestedVersion``). A request cannot know its own version; whoever
    writes the pod next does, since until then the pod has that very version."""
    state, before = resize_state(new_pod), resize_state(stored_pod)
    is_first = before.get("phase") == _REQUESTED and "requestedVersion" not in before
    if not is_first or state.get("generation") != before.get("generation"):
        return new_pod
    return evolve(new_pod, (*_STATE, "requestedVersion"), version_of(stored_pod))


def order_of_request(pod: Object) -> int:
    """Requests in the order in which the API server took them: no two have the same number, and
    it outlives every process."""
    return int(resize_state(pod).get("requestedVersion") or version_of(pod) or 0)


def _previous(pod: Object, allocated: dict[str, Object]) -> list[Object]:
    """What the pod had before anything was asked that is not done yet: where it can go back to."""
    before: list[Object] | None = resize_state(pod).get("previous")
    if before is not None and phase_of(pod) in UNFINISHED:
        return before
    return list(allocated.values())


def apply_resizing(
    stored_pod: Object, resizing: Object, *, now: str, from_node: bool = True
) -> Object:
    """What POST pods/X/resizing makes of the pod; raises StatusError and changes nothing.

    From the node: Accepted means allocated and being applied, and allocated is what the answer
    says, or all that the spec asks. From the scheduler (``from_node`` False): only Accepted or
    Rejected, and neither allocated nor status.
    """
    answer = parse_resizing(stored_pod, resizing, from_node=from_node)
    _check_addressed(stored_pod, answer)
    if not from_node:
        _check_not_judged(stored_pod)
    try:
        check_transition(phase_of(stored_pod), answer.phase)
    except IllegalTransitionError as error:
        raise conflict(PODS, name_of(stored_pod), str(error)) from error

    state = _answered(resize_state(stored_pod), answer, now)
    if from_node:
        state["observedGeneration"] = answer.generation or state["generation"]
        state["allocated"] = _allocated_after(stored_pod, answer)
    status = {**(stored_pod.get("status") or {}), **answer.status}
    return {**stored_pod, "status": {**status, "resizeState": state}}


def accepted_on_the_way(stored_pod: Object, answered_pod: Object) -> Object | None:
    """The pod between the two, where the answer was Done and nobody was told Accepted before:
    allocated as the answer says, the machine as it was. Whoever watches is shown both, in order
    (IBM: Requested, Accepted, Done). None where there is nothing in between."""
    if phase_of(answered_pod) is not ResizePhase.DONE or phase_of(stored_pod) in APPLYING:
        return None
    state: Object = {
        **resize_state(answered_pod),
        "phase": ResizePhase.IN_PROGRESS.value,
        "message": MESSAGES[ResizePhase.IN_PROGRESS],
        "steps": resize_state(stored_pod).get("steps", []),
    }
    state.pop("reason", None)
    return evolve(stored_pod, _STATE, state)


def _answered(state: Object, answer: ResizeReport, now: str) -> Object:
    moved = state.get("phase") != answer.phase
    answered: Object = {
        **state,
        "phase": answer.phase.value,
        "message": answer.message or MESSAGES[answer.phase],
        "transitionTime": now if moved else state.get("transitionTime", now),
    }
    answered.pop("reason", None)
    if answer.reason:
        answered["reason"] = answer.reason
    if answer.steps is not None:
        answered["steps"] = answer.steps[-MAXIMUM_STEPS:]
    return answered


def _allocated_after(pod: Object, answer: ResizeReport) -> list[Object]:
    sizes = allocated_sizes(pod)
    if answer.allocated is not None:
        given = {size["name"]: size for size in answer.allocated}
        return [given.get(name, size) for name, size in sizes.items()]
    if answer.phase in APPLYING:
        return [size_of(container) for container in resizable_of(pod)]
    return list(sizes.values())


def _check_addressed(pod: Object, answer: ResizeReport) -> None:
    """The answer is for this pod, and for what it asks now."""
    name, state = name_of(pod), resize_state(pod)
    asked, judged = state.get("generation", 0), answer.generation
    if answer.uid and answer.uid != uid_of(pod):
        why = f"the answer is for the pod with uid {answer.uid}, this one has {uid_of(pod)}"
        raise conflict(PODS, name, why)
    if judged is not None and judged < asked:
        why = f"the answer is for generation {judged}, generation {asked} has been asked since"
        raise conflict(PODS, name, why)
    if judged is not None and judged > generation_of(pod):
        why = f"the answer is for generation {judged}, the pod has {generation_of(pod)}"
        raise conflict(PODS, name, why)
    desired = state.get("desired") or []
    if answer.new_resources is not None and not _same_sizes(answer.new_resources, desired):
        raise conflict(PODS, name, "the answer is for other resources than those asked")


def _check_not_judged(pod: Object) -> None:
    """The node's own verdict outranks a scheduler's that comes late (decisions 5)."""
    state = resize_state(pod)
    if state.get("observedGeneration", 0) >= state.get("generation", 0) > 0:
        raise conflict(PODS, name_of(pod), "the pod's node has judged this resize already")


def _same_sizes(left: list[Object], right: list[Object]) -> bool:
    by_name = {size["name"]: size for size in right}
    return len(left) == len(right) and all(
        size["name"] in by_name and same_size(size, by_name[size["name"]]) for size in left
    )
