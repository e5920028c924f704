"""Remembers how the starts of a pod's containers went: exits in a row, and starts that failed."""

from __future__ import annotations

import msgspec

from livesize.agent.pods.plan import (
    ContainerFacts,
    CrashBackoff,
    Exited,
    LocalState,
    Missing,
    Running,
    policy_of,
    starts_at,
)
from livesize.agent.report import WaitingReason
from livesize.agent.volumes.sources import ContainerConfigError
from livesize.api.reasons import Reason
from livesize.api.restart_policy import RestartPolicy
from livesize.runtime.interface import (
    ContainerPhase,
    ContainerView,
    ImageMissingError,
    StartRefusedError,
)


class StartFailure(msgspec.Struct, frozen=True):
    reason: Reason
    message: str
    failures: int
    not_before: float


class StartHistory:
    """Kept in memory only: after a restart of the agent a container begins with a clean slate."""

    def __init__(
        self, backoff: CrashBackoff, forgotten_seconds: float, object_seconds: float
    ) -> None:
        self._backoff = backoff
        self._object_seconds = object_seconds
        self._forgotten_seconds = forgotten_seconds
        self._exits: dict[str, tuple[int, int]] = {}  # container: (attempt, exits in a row)
        self._failures: dict[str, StartFailure] = {}
        self.ended: dict[str, ContainerView] = {}  # the newest end of each that was seen

    @property
    def any_failed(self) -> bool:
        """Whether a container could not be started, and has not been since."""
        return bool(self._failures)

    def facts(
        self, name: str, view: ContainerView | None, *, definition_changed: bool, starts: int = 0
    ) -> ContainerFacts:
        """``starts``: how often it was started before, where the machine no longer knows."""
        self.saw(view)
        failure = self._failures.get(name)
        return ContainerFacts(
            name=name,
            state=container_state(view, starts),
            attempt=0 if view is None else view.attempt,
            definition_changed=definition_changed,
            exits_in_a_row=self._exits_in_a_row(view),
            not_before=0.0 if failure is None else failure.not_before,
            before_boot=view is not None and view.before_boot,
        )

    def saw(self, view: ContainerView | None) -> None:
        if view is not None and view.phase is ContainerPhase.EXITED:
            self.ended[view.name] = view

    def started(self, name: str) -> None:
        self._failures.pop(name, None)

    def failed(self, name: str, error: Exception, now: float) -> StartFailure:
        """The container could not be started; the next try waits, longer each time."""
        before = self._failures.get(name)
        failures = 1 if before is None else before.failures + 1
        is_config = isinstance(error, ContainerConfigError)
        wait_seconds = self._object_seconds if is_config else self._backoff.seconds(failures + 1)
        failure = StartFailure(_reason(error), str(error), failures, now + wait_seconds)
        self._failures[name] = failure
        return failure

    def waiting(
        self, containers: tuple[ContainerFacts, ...], policy: RestartPolicy
    ) -> dict[str, WaitingReason]:
        """Why each container that should run does not run."""
        shown: dict[str, WaitingReason] = {}
        for container in containers:
            failure = self._failures.get(container.name)
            if failure is not None:
                shown[container.name] = WaitingReason(failure.reason, failure.message)
            elif self._will_restart(container, policy_of(container, policy)):
                seconds = self._backoff.seconds(container.exits_in_a_row)
                if not seconds:
                    continue  # it starts again at once: until then it has ended
                message = f"back-off {seconds:g}s restarting container {container.name}"
                shown[container.name] = WaitingReason(Reason.CRASH_LOOP_BACK_OFF, message)
        return shown

    def _will_restart(self, container: ContainerFacts, policy: RestartPolicy) -> bool:
        time = starts_at(container, policy, self._backoff)
        return isinstance(container.state, Exited) and time < float("inf")

    def _exits_in_a_row(self, view: ContainerView | None) -> int:
        if view is None:
            return 0
        attempt, exits = self._exits.get(view.name, (-1, 0))
        if view.phase is not ContainerPhase.EXITED or attempt == view.attempt:
            return exits
        finished_at = view.started_at if view.finished_at is None else view.finished_at
        ran_long = finished_at - view.started_at >= self._forgotten_seconds
        exits = 1 if ran_long else exits + 1
        self._exits[view.name] = (view.attempt, exits)
        return exits


def _reason(error: Exception) -> Reason:
    match error:
        case ImageMissingError():
            return Reason.IMAGE_MISSING
        case ContainerConfigError() | StartRefusedError():
            return Reason.CONFIG_FAILED
        case _:
            return Reason.CREATE_FAILED


def container_state(view: ContainerView | None, starts: int = 0) -> LocalState:
    if view is None:
        return Missing(starts)
    if view.phase is ContainerPhase.RUNNING:
        return Running()
    finished_at = view.started_at if view.finished_at is None else view.finished_at
    return Exited(0 if view.exit_code is None else view.exit_code, finished_at)
