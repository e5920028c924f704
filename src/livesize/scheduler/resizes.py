"""The scheduler's word on a resize, where the setting resizeJudge asks for it (IBM). Pure.

Whether the node has room is judged as the node does it, from what the API says. The node has the
last word: it judges again from its own books, and alone where nothing is said in time.
"""

from __future__ import annotations

from livesize.api.accounting import Fits, NeverFits, NoRoomNow, fits_growing, footprint, requests_of
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.resize_phase import REQUEST_STATUS, ResizePhase
from livesize.api.resize_state import is_bound, is_terminal, phase_of, resize_state
from livesize.api.resources import Amounts


def awaits_word(pod: Object) -> bool:
    """A resize was asked that nobody has judged yet."""
    leaves = lookup(pod, "metadata", "deletionTimestamp") or is_terminal(pod)
    return phase_of(pod) is ResizePhase.REQUESTED and is_bound(pod) and not leaves


def answer_resize(pod: Object, used_by_others: Amounts, allocatable: Amounts) -> Object:
    """The body for POST pods/X/resizing."""
    verdict = fits_growing(requests_of(pod), footprint(pod), used_by_others, allocatable)
    match verdict:
        case Fits():
            return _body(pod, ResizePhase.ACCEPTED, "")
        case NoRoomNow():
            return _body(pod, ResizePhase.DEFERRED, verdict.sentence())
        case NeverFits():
            return _body(pod, ResizePhase.INFEASIBLE, verdict.sentence())


def _body(pod: Object, phase: ResizePhase, message: str) -> Object:
    return {
        "kind": "Resizing",
        "apiVersion": "v1",
        "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
        "request": {"requestStatus": REQUEST_STATUS[phase].value},
        "phase": phase.value,
        "generation": resize_state(pod)["generation"],
        "message": message,
    }
