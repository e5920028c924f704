"""Decides what to do next with one pod: run, restart, end, remove, or wait, and how long. Pure.

    admitted ──► Run (make the group, start what is missing, restart what ended) ──► Finish
        │                                                                              │
    rejected ──► Rest ◄────────────────────────────────────────────────────────────────┘
    deleted or gone, from anywhere ──► Remove

A container restarts only by its own exit (restartPolicy) or because its definition, resources and
resizePolicy aside, was changed; a resize that restarts by policy is planned in agent/resize.
The first exit restarts at once; each further one in a row waits twice as long as the one before.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec


class RestartPolicy(enum.StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class Standing(enum.StrEnum):
    """What this node and the API have settled about the pod."""

    ADMITTED = "admitted"
    REJECTED = "rejected"
    ENDED = "ended"  # its status says Succeeded or Failed, for good
    LEAVING = "leaving"  # being deleted, or already gone from the API


class CrashBackoff(msgspec.Struct, frozen=True):
    initial_seconds: float
    maximum_seconds: float

    def seconds(self, exits_in_a_row: int) -> float:
        if exits_in_a_row <= 1:
            return 0.0
        return min(self.initial_seconds * 2.0 ** min(exits_in_a_row - 2, 32), self.maximum_seconds)


class Running(msgspec.Struct, frozen=True, tag=True):
    pass


class Exited(msgspec.Struct, frozen=True, tag=True):
    exit_code: int
    finished_at: float


class Missing(msgspec.Struct, frozen=True, tag=True):
    """The machine has nothing of it, though it may have been started ``starts`` times."""

    starts: int = 0


ContainerState: TypeAlias = Running | Exited | Missing


class ContainerFacts(msgspec.Struct, frozen=True):
    name: str
    state: ContainerState
    attempt: int = 0  # of the newest start
    definition_changed: bool = False
    exits_in_a_row: int = 0
    not_before: float = 0.0  # after a failed start: when to try again


class PodFacts(msgspec.Struct, frozen=True):
    standing: Standing
    restart_policy: RestartPolicy
    containers: tuple[ContainerFacts, ...]
    has_group: bool
    now: float
    backoff: CrashBackoff


class Start(msgspec.Struct, frozen=True):
    """``stop_first``: it still runs with the old definition."""

    container: str
    attempt: int
    stop_first: bool = False


class Run(msgspec.Struct, frozen=True, tag=True):
    """Make the group where it is missing, then start these; look again after the wait."""

    make_group: bool
    starts: tuple[Start, ...]
    wait_seconds: float | None


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Every container has ended for good."""

    succeeded: bool


class Remove(msgspec.Struct, frozen=True, tag=True):
    """Stop what runs, take the pod off the machine, and let its object go."""


class Rest(msgspec.Struct, frozen=True, tag=True):
    """Nothing to do until the object changes."""


PodPlan: TypeAlias = Run | Finish | Remove | Rest


def plan_pod(facts: PodFacts) -> PodPlan:
    match facts.standing:
        case Standing.LEAVING:
            return Remove()
        case Standing.REJECTED | Standing.ENDED:
            return Rest()
        case Standing.ADMITTED:
            return _plan_admitted(facts)


def restarts(policy: RestartPolicy, exit_code: int) -> bool:
    match policy:
        case RestartPolicy.ALWAYS:
            return True
        case RestartPolicy.ON_FAILURE:
            return exit_code != 0
        case RestartPolicy.NEVER:
            return False


def starts_at(container: ContainerFacts, policy: RestartPolicy, backoff: CrashBackoff) -> float:
    """When this container should start; infinity where it should not."""
    match container.state:
        case Missing():
            return container.not_before
        case Running():
            return 0.0 if container.definition_changed else float("inf")
        case Exited(exit_code=exit_code, finished_at=finished_at):
            if container.definition_changed:
                return container.not_before
            if not restarts(policy, exit_code):
                return float("inf")
            wait_seconds = backoff.seconds(container.exits_in_a_row)
            return max(container.not_before, finished_at + wait_seconds)


def _plan_admitted(facts: PodFacts) -> PodPlan:
    times = {
        container.name: starts_at(container, facts.restart_policy, facts.backoff)
        for container in facts.containers
    }
    if _all_ended(facts) and all(time == float("inf") for time in times.values()):
        return Finish(succeeded=all(_exit_code(one) == 0 for one in facts.containers))
    starts = tuple(
        _start(container) for container in facts.containers if times[container.name] <= facts.now
    )
    later = [time for time in times.values() if facts.now < time < float("inf")]
    wait_seconds = min(later) - facts.now if later else None
    return Run(not facts.has_group, starts, wait_seconds)


def _start(container: ContainerFacts) -> Start:
    match container.state:
        case Missing(starts=starts):
            return Start(container.name, starts)
        case Running():
            return Start(container.name, container.attempt + 1, stop_first=True)
        case Exited():
            return Start(container.name, container.attempt + 1)


def _all_ended(facts: PodFacts) -> bool:
    return all(isinstance(container.state, Exited) for container in facts.containers)


def _exit_code(container: ContainerFacts) -> int:
    assert isinstance(container.state, Exited)
    return container.state.exit_code
