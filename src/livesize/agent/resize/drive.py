"""Drives one pod on the machine to what is allocated, and tells the API how it goes.

Decides whether there is anything to do, runs one attempt, and on failure says so (phase Error,
with what the machine said), backs off with jitter, and begins again from what the machine says.
A newer promise resets the wait: going back to an old size need not wait for a shrink that cannot
finish. Limits that drifted from a finished resize are driven back without a word to the API.
"""

from __future__ import annotations

from dataclasses import dataclass

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.judge import Judge
from livesize.agent.observe import PodSnapshot
from livesize.agent.outside import Outside
from livesize.agent.pods.post import PodRecord
from livesize.agent.resize.answers import (
    accept_body,
    error_body,
    event_message,
    failure_words,
    refusal_body,
)
from livesize.agent.resize.attempt import (
    POST_ERRORS,
    TELL_ERRORS,
    WORLD_ERRORS,
    AttemptOutcome,
    PodHands,
    ResizeAttempt,
    Restart,
)
from livesize.agent.resize.progress import ProgressLine
from livesize.agent.resize.restarts import Overdue, is_due, plan_restarts
from livesize.agent.shape import MachineWork, Onlookers, Shape
from livesize.api.objects import Object, lookup
from livesize.api.reasons import EventReason
from livesize.api.resize_deadline import OnDeadline, deadline_of, fallback_seconds
from livesize.api.resize_phase import APPLYING
from livesize.api.resize_state import UNFINISHED, ResizePhase, phase_of, resize_state
from livesize.api.resize_wish import Wish
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
class NodeBooks:
    """The node-wide books: what was promised, and who judges."""

    ledger: Ledger
    judge: Judge


class ResizeDriver:
    def __init__(
        self,
        outside: Outside,
        books: NodeBooks,
        record: PodRecord,
        entry: SecuredEntry,
        hands: PodHands,
        shape: Shape,
    ) -> None:
        settings = outside.settings
        self._outside = outside
        self._books = books
        self._record = record
        self._entry = entry
        self._hands = hands
        self._shape = shape
        self._resize_backoff = Backoff(
            settings.resize_backoff_seconds,
            settings.resize_backoff_maximum_seconds,
            outside.context.random,
        )
        # A resize that only waits to be told goes on as soon as one that waits for the machine.
        longest_seconds = settings.resize_backoff_maximum_seconds
        self._post_backoff = Backoff(
            min(settings.post_backoff_seconds, longest_seconds),
            min(settings.post_backoff_maximum_seconds, longest_seconds),
            outside.context.random,
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
        unfinished = not target.settled or self._is_asked(target)
        wait_seconds = self._retry_at - self._outside.clock.monotonic()
        if unfinished and wait_seconds > 0:
            return wait_seconds
        leaving = {one.container for one in restarts}
        line = ProgressLine(self._outside.settings.progress_seconds)
        onlookers = Onlookers(lambda: self._is_overtaken(target), line.tell)
        work = await self._shape.plan(target, snapshot, leaving, onlookers)
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
        refusal, entry = self._books.judge.refusal(uid), self._books.ledger.get(uid)
        if refusal is None or entry is None or self._record.gone:
            return
        state = resize_state(pod)
        heard = int(state.get("observedGeneration", 0)) >= refusal.generation
        is_told = heard and phase_of(pod) is refusal.phase  # by us, not only by the scheduler
        is_told = is_told and state.get("allocated") == list(entry.allocated)
        if state.get("generation") != refusal.generation or is_told:
            return
        body = refusal_body(pod, refusal.phase, refusal.generation, refusal.message, entry)
        deferred = refusal.phase is ResizePhase.DEFERRED
        reason = EventReason.RESIZE_DEFERRED if deferred else EventReason.RESIZE_INFEASIBLE
        sizes = [size_of(container) for container in resizable_of(pod)]
        what = "deferred" if deferred else "infeasible"
        told = event_message(what, pod, sizes, refusal.generation, refusal.message)
        await self._record.post_resizing(body, (reason, told))

    def is_unfinished(self) -> bool:
        """Somebody waits for the answer to a resize of this pod."""
        return phase_of(self._record.pod) in UNFINISHED and not self._record.gone

    def _is_asked(self, target: Allocation) -> bool:
        """The API still waits for the answer to what was promised."""
        pod = self._record.pod
        asked = resize_state(pod).get("generation") == target.generation
        return asked and phase_of(pod) in UNFINISHED and not self._record.gone

    def _decide_restarts(self, target: Allocation, snapshot: PodSnapshot) -> Allocation:
        pod, overdue = self._record.pod, self._overdue(target)
        restarting = plan_restarts(pod, target, snapshot.containers, overdue=overdue)
        if restarting == target.restarting:
            return target
        if overdue is Overdue.ALL:
            self._outside.tell(pod, EventReason.RESIZE_RESTARTS, _FALLS_BACK)
        target = target.with_restarts(restarting)
        self._books.ledger.record(target)
        return target

    def _overdue(self, target: Allocation) -> Overdue:
        """What restarts rather than to wait any longer."""
        pod, state = self._record.pod, resize_state(self._record.pod)
        if "requestedTime" not in state or not self._is_asked(target):
            return Overdue.NOTHING
        deadline = deadline_of(pod)
        if deadline is not None and deadline.action is OnDeadline.RESTART:
            return Overdue.CHANGED if self._waited_for(deadline.seconds) else Overdue.NOTHING
        failing = phase_of(pod) is ResizePhase.ERROR
        preferred = failing and state.get("action") == Wish.IN_PLACE_PREFERRED
        seconds = fallback_seconds(pod) if preferred else None
        late = seconds is not None and self._waited_for(seconds)
        return Overdue.ALL if late else Overdue.NOTHING

    def _waited_for(self, seconds: float) -> bool:
        """Since it was asked. Times are written in whole seconds, rounded down."""
        asked = parse_time(resize_state(self._record.pod)["requestedTime"])
        return self._outside.clock.now() > asked + 1 + seconds

    def _is_overtaken(self, target: Allocation) -> bool:
        """A newer promise was made, or the pod is on its way out."""
        current = self._books.ledger.get(target.uid)
        leaving = lookup(self._record.pod, "metadata", "deletionTimestamp") or self._record.gone
        return bool(leaving) or current is None or not current.promises_the_same(target)

    async def _hold(self, target: Allocation, why: str) -> AttemptOutcome:
        """The machine is not ready for it: the promise is durable, and the API hears why it takes
        longer. The machine tells when it is ready, and then there is something to attempt."""
        steps: list[Step] = []
        if not self._entry.holds(target):
            steps.append(Step("checkpoint", lambda: self._secure(target)))
        state = resize_state(self._record.pod)
        told = phase_of(self._record.pod) is ResizePhase.IN_PROGRESS and state["message"] == why
        if self._is_asked(target) and not told:
            steps.append(Step("accept", lambda: self._accept_later(target, why)))
        outcome = await run_steps(
            "resize",
            steps,
            clock=self._outside.clock,
            points=self._outside.points,
            errors=WORLD_ERRORS + POST_ERRORS,
        )
        return AttemptOutcome(outcome.records, outcome.failure)

    async def _secure(self, target: Allocation) -> None:
        self._entry.secure(target)
        await self._entry.durable()

    async def _accept_later(self, target: Allocation, why: str) -> None:
        pod = self._record.pod
        if phase_of(pod) not in APPLYING:
            told = event_message("started", pod, target.allocated, target.generation)
            self._outside.tell(pod, EventReason.RESIZE_STARTED, told)
        await self._record.post_resizing(accept_body(pod, target, why))

    async def _attempt(
        self,
        target: Allocation,
        work: MachineWork,
        restarts: tuple[Restart, ...],
        line: ProgressLine,
    ) -> AttemptOutcome:
        attempt = ResizeAttempt(
            self._outside,
            self._books.ledger,
            self._record,
            target,
            work,
            restarts,
            self._hands,
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
            clock=self._outside.clock,
            points=self._outside.points,
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
        self._retry_at = self._outside.clock.monotonic() + wait_seconds
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
        told = phase_of(pod) is ResizePhase.IN_PROGRESS and state.get("message") == why
        if told or not self._is_asked(target):
            return
        try:
            await self._record.post_resizing(accept_body(pod, target, why))
        except TELL_ERRORS as refusal:
            log.warning("waiting not posted", pod=target.name, reason=str(refusal))

    async def _post_error(
        self, target: Allocation, outcome: AttemptOutcome, failure: Exception
    ) -> None:
        pod, message = self._record.pod, failure_words(outcome.records, failure)
        state = resize_state(pod)
        if not self._is_asked(target):
            return
        if state.get("phase") == ResizePhase.ERROR and state.get("message") == message:
            return
        if self._failures == 1:
            told = event_message("error", pod, target.allocated, target.generation, message)
            self._outside.tell(pod, EventReason.RESIZE_ERROR, told)
        body = error_body(pod, target, message, outcome.records, self._hands.build_status(None))
        try:
            await self._record.post_resizing(body)
        except TELL_ERRORS as refusal:
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
