"""Drives one pod on the machine to what is allocated, and reports to the API server how it goes.

The driver decides whether there is anything to do and runs one attempt. After a failure it reports
phase Error with the machine's message, backs off with jitter, and begins again from what the
machine says. A newer promise resets the wait: going back to an old size need not wait for a shrink
that cannot finish. The driver brings limits that drifted from a finished resize back without a
report.
"""

from __future__ import annotations

from dataclasses import dataclass

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.judge import Judge
from livesize.agent.observation import PodSnapshot
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.resize.answers import (
    accept_body,
    error_body,
    event_message,
    failure_message,
    refusal_body,
)
from livesize.agent.resize.attempt import (
    POST_ERRORS,
    REPORT_ERRORS,
    WORLD_ERRORS,
    AttemptOutcome,
    PodActions,
    ResizeAttempt,
    Restart,
)
from livesize.agent.resize.progress import ProgressLine
from livesize.agent.resize.restarts import Overdue, is_due, plan_restarts
from livesize.agent.shape import MachineWork, ProgressObserver, Shape
from livesize.api.objects import Object, lookup
from livesize.api.reasons import EventReason
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_deadline import OnDeadline, deadline_of, fallback_seconds
from livesize.api.resize_phase import APPLYING
from livesize.api.resize_state import UNFINISHED, ResizePhase, phase_of, resize_state
from livesize.api.resources import init_containers_of, resizable_of, size_of
from livesize.api.times import parse_time
from livesize.machinery.steps import Backoff, Step, StepWaitsError, run_steps
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import ContainerPhase

log = get_logger("agent.resize")

NEVER = float("inf")
_FALLS_BACK = (
    "The resize could not be applied in place in time: all containers restart with their new sizes"
    " (resizeAction InPlaceResizePreferred)"
)


@dataclass(frozen=True)
class NodeAdmission:
    """Shared by all pods of the node: the ledger of promises, and the judge."""

    ledger: Ledger
    judge: Judge


class ResizeDriver:
    def __init__(
        self,
        dependencies: AgentDependencies,
        admission: NodeAdmission,
        record: PodRecord,
        entry: SecuredEntry,
        actions: PodActions,
        shape: Shape,
    ) -> None:
        settings = dependencies.settings
        self._dependencies = dependencies
        self._admission = admission
        self._record = record
        self._entry = entry
        self._actions = actions
        self._shape = shape
        self._resize_backoff = Backoff(
            settings.resize_backoff_seconds,
            settings.resize_backoff_maximum_seconds,
            dependencies.context.random,
        )
        # A resize that only waits to be told goes on as soon as one that waits for the machine.
        longest_seconds = settings.resize_backoff_maximum_seconds
        self._post_backoff = Backoff(
            min(settings.post_backoff_seconds, longest_seconds),
            min(settings.post_backoff_maximum_seconds, longest_seconds),
            dependencies.context.random,
        )
        self._generation = 0
        self._failures = 0
        self._retry_at = 0.0

    async def drive(self, target: Allocation, snapshot: PodSnapshot) -> float:
        """One attempt where one is due; return in how many seconds the next one is."""
        if target.generation != self._generation:
            self._generation, self._failures, self._retry_at = target.generation, 0, 0.0
        target = self._decide_restarts(target, snapshot)
        restarts = _due_restarts(self._record.pod, target, snapshot)
        unfinished = not target.settled or self._awaits_report(target)
        wait_seconds = self._retry_at - self._dependencies.clock.monotonic()
        if unfinished and wait_seconds > 0:
            return wait_seconds
        leaving = {one.container for one in restarts}
        line = ProgressLine(self._dependencies.settings.progress_seconds)
        observer = ProgressObserver(lambda: self._is_overtaken(target), line.report)
        work = await self._shape.plan(target, snapshot, leaving, observer)
        if unfinished and work.waits_for:
            outcome = await self._hold(target, work.waits_for)
        elif unfinished:
            outcome = await self._attempt(target, work, restarts, line)
        elif not work.changing:
            return NEVER
        elif wait_seconds > 0:
            return wait_seconds
        else:
            outcome = await self._drive_back(target, work)
        return await self._after(target, outcome)

    async def post_refusal(self) -> None:
        """Say that the resize was deferred or is infeasible, once for each verdict."""
        pod = self._record.pod
        uid = pod["metadata"]["uid"]
        refusal, entry = self._admission.judge.refusal(uid), self._admission.ledger.get(uid)
        if refusal is None or entry is None or self._record.gone:
            return
        state = resize_state(pod)
        heard = int(state.get("observedGeneration", 0)) >= refusal.generation
        is_reported = heard and phase_of(pod) is refusal.phase  # by us, not only by the scheduler
        is_reported = is_reported and state.get("allocated") == list(entry.allocated)
        if state.get("generation") != refusal.generation or is_reported:
            return
        body = refusal_body(pod, refusal.phase, refusal.generation, refusal.message, entry)
        deferred = refusal.phase is ResizePhase.DEFERRED
        reason = EventReason.RESIZE_DEFERRED if deferred else EventReason.RESIZE_INFEASIBLE
        sizes = [size_of(container) for container in resizable_of(pod)]
        what = "deferred" if deferred else "infeasible"
        event = event_message(what, pod, sizes, refusal.generation, refusal.message)
        await self._record.post_resizing(body, (reason, event))

    def is_unfinished(self) -> bool:
        """The API server has no final report of this pod's resize."""
        return phase_of(self._record.pod) in UNFINISHED and not self._record.gone

    def _awaits_report(self, target: Allocation) -> bool:
        """The API server has no final report of what was promised."""
        pod = self._record.pod
        is_newest = resize_state(pod).get("generation") == target.generation
        return is_newest and phase_of(pod) in UNFINISHED and not self._record.gone

    def _decide_restarts(self, target: Allocation, snapshot: PodSnapshot) -> Allocation:
        pod, overdue = self._record.pod, self._overdue(target)
        restarting = plan_restarts(pod, target, snapshot.containers, overdue=overdue)
        if restarting == target.restarting:
            return target
        if overdue is Overdue.ALL:
            self._dependencies.record_event(pod, EventReason.RESIZE_RESTARTS, _FALLS_BACK)
        target = target.with_restarts(restarting)
        self._admission.ledger.record(target)
        return target

    def _overdue(self, target: Allocation) -> Overdue:
        """What restarts rather than to wait any longer."""
        pod, state = self._record.pod, resize_state(self._record.pod)
        if "requestedTime" not in state or not self._awaits_report(target):
            return Overdue.NOTHING
        deadline = deadline_of(pod)
        if deadline is not None and deadline.action is OnDeadline.RESTART:
            return Overdue.CHANGED if self._waited_for(deadline.seconds) else Overdue.NOTHING
        failing = phase_of(pod) is ResizePhase.ERROR
        preferred = failing and state.get("action") == RequestedAction.IN_PLACE_PREFERRED
        seconds = fallback_seconds(pod) if preferred else None
        late = seconds is not None and self._waited_for(seconds)
        return Overdue.ALL if late else Overdue.NOTHING

    def _waited_for(self, seconds: float) -> bool:
        """Since it was asked. Times are written in whole seconds, rounded down."""
        requested_at = parse_time(resize_state(self._record.pod)["requestedTime"])
        return self._dependencies.clock.now() > requested_at + 1 + seconds

    def _is_overtaken(self, target: Allocation) -> bool:
        """A newer promise was made, or the pod is on its way out."""
        current = self._admission.ledger.get(target.uid)
        leaving = lookup(self._record.pod, "metadata", "deletionTimestamp") or self._record.gone
        return bool(leaving) or current is None or not current.promises_the_same(target)

    async def _hold(self, target: Allocation, why: str) -> AttemptOutcome:
        """The machine is not ready for it: the promise is durable, and the API hears why it takes
        longer. The machine tells when it is ready, and then there is something to attempt."""
        steps: list[Step] = []
        if not self._entry.holds(target):
            steps.append(Step("checkpoint", lambda: self._secure(target)))
        state = resize_state(self._record.pod)
        is_reported = (
            phase_of(self._record.pod) is ResizePhase.IN_PROGRESS and state["message"] == why
        )
        if self._awaits_report(target) and not is_reported:
            steps.append(Step("accept", lambda: self._accept_later(target, why)))
        outcome = await run_steps(
            "resize",
            steps,
            clock=self._dependencies.clock,
            points=self._dependencies.points,
            errors=WORLD_ERRORS + POST_ERRORS,
        )
        return AttemptOutcome(outcome.records, outcome.failure)

    async def _secure(self, target: Allocation) -> None:
        self._entry.secure(target)
        await self._entry.durable()

    async def _accept_later(self, target: Allocation, why: str) -> None:
        pod = self._record.pod
        if phase_of(pod) not in APPLYING:
            event = event_message("started", pod, target.allocated, target.generation)
            self._dependencies.record_event(pod, EventReason.RESIZE_STARTED, event)
        await self._record.post_resizing(accept_body(pod, target, why))

    async def _attempt(
        self,
        target: Allocation,
        work: MachineWork,
        restarts: tuple[Restart, ...],
        line: ProgressLine,
    ) -> AttemptOutcome:
        attempt = ResizeAttempt(
            self._dependencies,
            self._admission.ledger,
            self._record,
            target,
            work,
            restarts,
            self._actions,
            self._entry,
            line,
        )
        return await attempt.run()

    async def _drive_back(self, target: Allocation, work: MachineWork) -> AttemptOutcome:
        changes = ",".join(work.changing)
        if work.follows:
            log.info("machine follows", pod=target.name, what=work.follows, changes=changes)
        else:
            log.warning("machine drifted", pod=target.name, changes=changes)
        outcome = await run_steps(
            "drift",
            work.steps,
            clock=self._dependencies.clock,
            points=self._dependencies.points,
            errors=WORLD_ERRORS,
        )
        return AttemptOutcome(outcome.records, outcome.failure)

    async def _after(self, target: Allocation, outcome: AttemptOutcome) -> float:
        if outcome.failure is None:
            self._failures = 0
            return NEVER
        self._failures += 1
        is_post = isinstance(outcome.failure, POST_ERRORS)
        backoff = self._post_backoff if is_post else self._resize_backoff
        wait_seconds = backoff.seconds(self._failures)
        self._retry_at = self._dependencies.clock.monotonic() + wait_seconds
        log.warning(
            "resize not done yet",
            pod=target.name,
            generation=target.generation,
            reason=str(outcome.failure),
            seconds=wait_seconds,
        )
        if isinstance(outcome.failure, StepWaitsError):
            await self._post_waiting(target, str(outcome.failure))
        elif not is_post and not isinstance(outcome.failure, CheckpointError):
            await self._post_error(target, outcome, outcome.failure)
        return wait_seconds

    async def _post_waiting(self, target: Allocation, why: str) -> None:
        """Nothing failed, and it may take for ever: what it waits for is said, once."""
        pod = self._record.pod
        state = resize_state(pod)
        is_reported = phase_of(pod) is ResizePhase.IN_PROGRESS and state.get("message") == why
        if is_reported or not self._awaits_report(target):
            return
        try:
            await self._record.post_resizing(accept_body(pod, target, why))
        except REPORT_ERRORS as refusal:
            log.warning("waiting not posted", pod=target.name, reason=str(refusal))

    async def _post_error(
        self, target: Allocation, outcome: AttemptOutcome, failure: Exception
    ) -> None:
        pod, message = self._record.pod, failure_message(outcome.records, failure)
        state = resize_state(pod)
        if not self._awaits_report(target):
            return
        if state.get("phase") == ResizePhase.ERROR and state.get("message") == message:
            return
        if self._failures == 1:
            event = event_message("error", pod, target.allocated, target.generation, message)
            self._dependencies.record_event(pod, EventReason.RESIZE_ERROR, event)
        body = error_body(pod, target, message, outcome.records, self._actions.build_status(None))
        try:
            await self._record.post_resizing(body)
        except REPORT_ERRORS as refusal:
            log.warning("error not posted", pod=target.name, reason=str(refusal))


def _due_restarts(pod: Object, target: Allocation, snapshot: PodSnapshot) -> tuple[Restart, ...]:
    """In the order in which they start: sidecars first."""
    views = snapshot.containers
    starting = [one["name"] for one in init_containers_of(pod) if one["name"] in views]
    names = [*starting, *sorted(views.keys() - starting)]
    return tuple(
        Restart(name, target.restarting[name], views[name].phase is ContainerPhase.RUNNING)
        for name in names
        if is_due(target, views[name])
    )
