"""Decides what to do next with one pod: run, restart, end, remove, or wait, and how long. Pure.

    admitted ──► Run (make the group, start what is missing, restart what ended) ──► Finish
        │                                                                              │
    rejected ──► Rest ◄────────────────────────────────────────────────────────────────┘
    deleted or gone, from anywhere ──► Remove

A container restarts only by its own exit (its restartPolicyRules, its restartPolicy, else its
pod's), because its liveness probe failed, or because its definition, resources and resizePolicy
aside, was changed; a resize that restarts by policy is planned in agent/resize. The first exit
restarts at once; each further one in a row waits twice as long as the one before.

Init containers run one after the other before all others, each until it succeeds. A sidecar is an
init container that stays: the next one waits only until it has started, and it is stopped when all
the pod's own containers have ended for good. When the machine was started anew, init containers run
again: what they had prepared may be gone.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.restart_policy import RestartPolicy, RestartRule, restarts
from livesize.api.times import parse_time


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


LocalState: TypeAlias = Running | Exited | Missing


class ContainerFacts(msgspec.Struct, frozen=True):
    name: str
    state: LocalState
    attempt: int = 0  # of the newest start
    definition_changed: bool = False
    exits_in_a_row: int = 0
    not_before: float = 0.0  # after a failed start: when to try again
    is_init: bool = False
    stays: bool = False  # an init container that is a sidecar
    own_policy: RestartPolicy | None = None  # in place of the pod's
    rules: tuple[RestartRule, ...] = ()  # before either
    has_started: bool = True  # where it runs: its startup probe has succeeded
    unhealthy: str = ""  # where it runs: why it has to be stopped
    stop_seconds: float | None = None  # and within which grace; None: the pod's
    before_boot: bool = False  # the machine was started anew since


class PodFacts(msgspec.Struct, frozen=True):
    standing: Standing
    restart_policy: RestartPolicy
    containers: tuple[ContainerFacts, ...]
    has_group: bool
    now: float
    backoff: CrashBackoff
    starting: tuple[ContainerFacts, ...] = ()  # init containers and sidecars, in their order


class StartContainer(msgspec.Struct, frozen=True):
    """``stop_first``: it still runs with the old definition."""

    container: str
    attempt: int
    stop_first: bool = False


class StopContainer(msgspec.Struct, frozen=True):
    """``grace_seconds`` None: the pod's."""

    container: str
    why: str
    grace_seconds: float | None = None


class RunPod(msgspec.Struct, frozen=True, tag=True):
    """Make the group where it is missing, stop and then start these; look again after the wait."""

    make_group: bool
    starts: tuple[StartContainer, ...]
    wait_seconds: float | None
    stops: tuple[StopContainer, ...] = ()


GO_ON = RunPod(make_group=False, starts=(), wait_seconds=None)
"""All of it runs, and nothing is to be started or stopped."""


class FinishPod(msgspec.Struct, frozen=True, tag=True):
    """Every container has ended for good."""

    succeeded: bool


class RemovePod(msgspec.Struct, frozen=True, tag=True):
    """Stop what runs, take the pod off the machine, and let its object go."""


class Idle(msgspec.Struct, frozen=True, tag=True):
    """Nothing to do until the object changes."""


PodPlan: TypeAlias = RunPod | FinishPod | RemovePod | Idle


def plan_pod(facts: PodFacts) -> PodPlan:
    match facts.standing:
        case Standing.LEAVING:
            return RemovePod()
        case Standing.REJECTED | Standing.ENDED:
            return Idle()
        case Standing.ADMITTED:
            return _plan_admitted(facts)


def starts_at(container: ContainerFacts, policy: RestartPolicy, backoff: CrashBackoff) -> float:
    """When this container should start; infinity where it should not."""
    match container.state:
        case Missing():
            return container.not_before
        case Running():
            return 0.0 if container.definition_changed else float("inf")
        case Exited(exit_code=exit_code, finished_at=finished_at):
            if container.definition_changed or (container.is_init and container.before_boot):
                return container.not_before
            succeeded = container.is_init and not container.stays and exit_code == 0
            if succeeded or not restarts(policy, exit_code, container.rules):
                return float("inf")
            wait_seconds = backoff.seconds(container.exits_in_a_row)
            return max(container.not_before, finished_at + wait_seconds)


def policy_of(container: ContainerFacts, policy: RestartPolicy) -> RestartPolicy:
    """Its own, else the pod's. A sidecar always restarts; an init container that has succeeded
    never does."""
    if container.stays:
        return RestartPolicy.ALWAYS
    policy = container.own_policy or policy
    if not container.is_init:
        return policy
    return RestartPolicy.NEVER if policy is RestartPolicy.NEVER else RestartPolicy.ON_FAILURE


def is_initialized(facts: PodFacts) -> bool:
    """Every init container has done its work, and every sidecar has started."""
    return _has_begun(facts) or all(_is_through(one) for one in facts.starting)


def stop_order(names: tuple[str, ...], sidecars: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """What is stopped at the same time, first to last: sidecars after the others, in the reverse
    of the order in which they start."""
    others = tuple(name for name in names if name not in sidecars)
    last = tuple((name,) for name in reversed(sidecars) if name in names)
    return (others, *last) if others else last


def _plan_admitted(facts: PodFacts) -> PodPlan:
    ended = _ending(facts)
    if ended is not None:
        return _close(facts, ended)
    candidates = _candidates(facts)
    times = {
        one.name: starts_at(one, policy_of(one, facts.restart_policy), facts.backoff)
        for one in candidates
    }
    starts = tuple(_start(one) for one in candidates if times[one.name] <= facts.now)
    later = [time for time in times.values() if facts.now < time < float("inf")]
    wait_seconds = min(later) - facts.now if later else None
    stops = tuple(
        StopContainer(one.name, one.unhealthy, one.stop_seconds)
        for one in (*facts.starting, *facts.containers)
        if isinstance(one.state, Running) and one.unhealthy
    )
    return RunPod(not facts.has_group, starts, wait_seconds, stops)


def _ending(facts: PodFacts) -> bool | None:
    """Whether it has succeeded, where all of it has ended for good; None: it has not."""
    if any(_has_failed_for_good(one, facts) for one in facts.starting):
        return False
    for one in facts.containers:
        time = starts_at(one, policy_of(one, facts.restart_policy), facts.backoff)
        if not isinstance(one.state, Exited) or time < float("inf"):
            return None
    return all(_exit_code(one) == 0 for one in facts.containers)


def _close(facts: PodFacts, succeeded: bool) -> PodPlan:
    """Sidecars are not waited for: they end with what they are beside."""
    left = [one.name for one in facts.starting if isinstance(one.state, Running)]
    if not left:
        return FinishPod(succeeded)
    stops = tuple(StopContainer(name, "the pod's containers have ended") for name in reversed(left))
    return RunPod(not facts.has_group, (), None, stops)


def _candidates(facts: PodFacts) -> list[ContainerFacts]:
    """Those that may start now, were it not for backoffs."""
    begun = _has_begun(facts)
    candidates: list[ContainerFacts] = []
    for one in facts.starting:
        if one.stays or not (begun or _is_through(one)):
            candidates.append(one)
        if not begun and not _is_through(one):
            return candidates
    return [*candidates, *facts.containers]


def _has_begun(facts: PodFacts) -> bool:
    """A container was started, and the machine has not been started anew since."""
    return any(
        not isinstance(one.state, Missing) and not one.before_boot for one in facts.containers
    )


def _is_through(init_container: ContainerFacts) -> bool:
    """The next one may start."""
    match init_container.state:
        case Running():
            return init_container.stays and init_container.has_started
        case Exited(exit_code=exit_code):
            done = exit_code == 0 and not init_container.before_boot
            return done and not init_container.stays
        case Missing():
            return False


def _has_failed_for_good(init_container: ContainerFacts, facts: PodFacts) -> bool:
    if init_container.stays or not isinstance(init_container.state, Exited):
        return False
    policy = policy_of(init_container, facts.restart_policy)
    time = starts_at(init_container, policy, facts.backoff)
    return _exit_code(init_container) != 0 and time == float("inf")


def _start(container: ContainerFacts) -> StartContainer:
    match container.state:
        case Missing(starts=starts):
            return StartContainer(container.name, starts)
        case Running():
            return StartContainer(container.name, container.attempt + 1, stop_first=True)
        case Exited():
            return StartContainer(container.name, container.attempt + 1)


def _exit_code(container: ContainerFacts) -> int:
    assert isinstance(container.state, Exited)
    return container.state.exit_code


DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


def deadline_at(pod: Object) -> float:
    """Infinity: it has none, or has not begun; what is begun now is told first."""
    seconds, started = (
        lookup(pod, "spec", "activeDeadlineSeconds"),
        lookup(pod, "status", "startTime"),
    )
    if seconds is None or not started:
        return float("inf")
    return parse_time(started) + float(seconds)
