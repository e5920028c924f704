"""The phases of a resize, and which may follow which, as data.

    None ──ask──► Requested ──► Accepted (by the scheduler) ──► InProgress ◄──► Error
                   │    │                    │                   │               │
                   │    └──► Deferred ◄──────┤                   └──► Done ◄─────┘
                   └───────► Infeasible ◄────┘        (Deferred and Infeasible may be retried)

A request of a client goes from any phase to Requested; every other arrow is an answer of the
scheduler or the node and stands in TRANSITIONS. An illegal answer raises and changes nothing.
"""

from __future__ import annotations

import enum


class ResizePhase(enum.StrEnum):
    NONE = "None"
    REQUESTED = "Requested"
    INFEASIBLE = "Infeasible"
    DEFERRED = "Deferred"
    ACCEPTED = "Accepted"  # by the scheduler; the node has not judged yet
    IN_PROGRESS = "InProgress"
    ERROR = "Error"
    DONE = "Done"


class RequestStatus(enum.StrEnum):
    """IBM's words for it."""

    NONE = "None"
    REQUESTED = "Requested"
    ACCEPTED = "Accepted"
    REJECTED = "Rejected"
    DONE = "Done"


REQUEST_STATUS: dict[ResizePhase, RequestStatus] = {
    ResizePhase.NONE: RequestStatus.NONE,
    ResizePhase.REQUESTED: RequestStatus.REQUESTED,
    ResizePhase.INFEASIBLE: RequestStatus.REJECTED,
    ResizePhase.DEFERRED: RequestStatus.REJECTED,
    ResizePhase.ACCEPTED: RequestStatus.ACCEPTED,
    ResizePhase.IN_PROGRESS: RequestStatus.ACCEPTED,
    ResizePhase.ERROR: RequestStatus.ACCEPTED,
    ResizePhase.DONE: RequestStatus.DONE,
}

_JUDGED = frozenset(
    {
        ResizePhase.INFEASIBLE,
        ResizePhase.DEFERRED,
        ResizePhase.ACCEPTED,
        ResizePhase.IN_PROGRESS,
        ResizePhase.ERROR,
        ResizePhase.DONE,
    }
)
APPLYING = frozenset({ResizePhase.IN_PROGRESS, ResizePhase.ERROR, ResizePhase.DONE})

# What an answer may turn each phase into. Once the node has allocated (InProgress), nobody can
# reject any more: a resize that cannot be finished is an Error, and going back is a new request.
TRANSITIONS: dict[ResizePhase, frozenset[ResizePhase]] = {
    ResizePhase.NONE: frozenset(),
    ResizePhase.REQUESTED: _JUDGED,
    ResizePhase.INFEASIBLE: _JUDGED,
    ResizePhase.DEFERRED: _JUDGED,
    ResizePhase.ACCEPTED: _JUDGED,
    ResizePhase.IN_PROGRESS: APPLYING,
    ResizePhase.ERROR: APPLYING,
    ResizePhase.DONE: frozenset({ResizePhase.DONE}),
}

UNFINISHED = frozenset(ResizePhase) - {ResizePhase.NONE, ResizePhase.DONE}
PENDING = frozenset({ResizePhase.INFEASIBLE, ResizePhase.DEFERRED})
SCHEDULER_PHASES = PENDING | {ResizePhase.ACCEPTED}

MESSAGES: dict[ResizePhase, str] = {
    ResizePhase.NONE: "",
    ResizePhase.REQUESTED: "The resize has been asked for and not judged yet.",
    ResizePhase.INFEASIBLE: "The node can never hold the desired resources.",
    ResizePhase.DEFERRED: "The node has no room now; the resize is tried again when it has.",
    ResizePhase.ACCEPTED: "The scheduler accepted the resize; the node has not judged it yet.",
    ResizePhase.IN_PROGRESS: "The node has allocated the desired resources and is applying them.",
    ResizePhase.ERROR: "Applying the resize failed; the node tries again.",
    ResizePhase.DONE: "The machine reports the desired resources.",
}


class IllegalTransitionError(ValueError):
    """The resize cannot go from this phase to that one."""

    def __init__(self, current: ResizePhase, wanted: ResizePhase) -> None:
        super().__init__(f"a resize that is {current} cannot become {wanted}")
        self.current = current
        self.wanted = wanted


def check_transition(current: ResizePhase, wanted: ResizePhase) -> None:
    """Raise IllegalTransitionError unless an answer may turn ``current`` into ``wanted``."""
    if wanted not in TRANSITIONS[current]:
        raise IllegalTransitionError(current, wanted)
