"""One attempt to bring a pod to what is allocated, from what the machine says, step by step.

    checkpoint   the promise is written on this node
    accept       the API hears of it while the machine is changed, unless that is done at once
    stop:NAME    containers that restart by policy
    clear:NAME   what they left in volumes in memory, which would count in the smaller pod
    pod:cpu …    the machine, in the order the plan of the pod's shape gives
    freed:cpu    the CPU it gave up is others' before anything waits for memory
    start:NAME
    actuated     what was applied is in the ledger, and on disk soon
    report       Done, with allocated, actual as read back, the steps and their times, in one
                 request

Each is a step of machinery.steps, so a crash point lies between any two, and a new attempt from
wherever the last one stopped goes on from there: what is done already has no step. The API server
may be away: accept is then left out, and only report has to wait for it. While a step of the
machine takes long, the API hears how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.pods.plan import stop_order
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.report import caught_up
from livesize.agent.resize.answers import (
    accept_body,
    done_body,
    event_message,
    progress_body,
    waiting_body,
)
from livesize.agent.resize.plan import PodObservation
from livesize.agent.resize.progress import ProgressLine
from livesize.agent.shape import MachineWork, Progress
from livesize.api.container_state import yet_to_run
from livesize.api.errors import StatusError
from livesize.api.objects import Object
from livesize.api.reasons import EventReason
from livesize.api.resize_state import UNFINISHED, ResizePhase, phase_of, resize_state
from livesize.api.resources import sidecars_of
from livesize.machinery.steps import Step, StepFailedError, StepRecord, run_steps
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import RuntimeCallError

log = get_logger("agent.resize")

WORLD_ERRORS: tuple[type[Exception], ...] = (StepFailedError, RuntimeCallError, CheckpointError)
POST_ERRORS: tuple[type[Exception], ...] = (ConnectionError, StatusError)
REPORT_ERRORS: tuple[type[Exception], ...] = (
    *POST_ERRORS,
    CheckpointError,
)  # the agent reports nothing that a crash could take

NOT_RUNNING = "Allocated. The resize is done when what does not run now runs at its new size:"
_ACCEPTED = (ResizePhase.IN_PROGRESS, ResizePhase.ERROR, ResizePhase.DONE)


class Restart(msgspec.Struct, frozen=True):
    """A container that gets its new size by starting again."""

    container: str
    attempt: int
    running: bool


@dataclass(frozen=True)
class PodActions:
    """What an attempt asks of the pod's worker."""

    stop: Callable[[str], Awaitable[None]]
    mounts_memory: Callable[[str], bool]
    clear: Callable[[str], Awaitable[None]]  # what it left in volumes in memory
    start: Callable[[str, int, Allocation], Awaitable[None]]
    build_status: Callable[[PodObservation | None], Object]  # None: read the machine for it
    room_appeared: Callable[[], None]


class AttemptOutcome(msgspec.Struct, frozen=True):
    records: tuple[StepRecord, ...]
    failure: Exception | None = None


@dataclass
class ResizeAttempt:
    dependencies: AgentDependencies
    ledger: Ledger
    record: PodRecord
    target: Allocation
    work: MachineWork
    restarts: tuple[Restart, ...]
    actions: PodActions
    entry: SecuredEntry
    line: ProgressLine
    _accepting: asyncio.Task[None] | None = None
    _accept_later: asyncio.TimerHandle | None = None
    _accept_settled: asyncio.Event = field(default_factory=asyncio.Event)
    _is_at_once: bool = False
    _records: list[StepRecord] = field(default_factory=list)

    async def run(self) -> AttemptOutcome:
        async with asyncio.TaskGroup() as tasks:
            self.line.begin(tasks, self._post_progress)
            try:
                outcome = await run_steps(
                    "resize",
                    self._steps(tasks),
                    clock=self.dependencies.clock,
                    points=self.dependencies.points,
                    errors=WORLD_ERRORS + POST_ERRORS,
                    progress=self._records.append,
                )
            finally:
                failed_at_once = self._cancels_accept()
            if failed_at_once:
                self.dependencies.record_event(self.record.pod, *self._started())
            await self.line.end()
        return AttemptOutcome(outcome.records, outcome.failure)

    def _steps(self, tasks: asyncio.TaskGroup) -> list[Step]:
        steps: list[Step] = []
        if not self.entry.holds(self.target):
            steps.append(Step("checkpoint", self._checkpoint))
        if self._may_report() and phase_of(self.record.pod) not in _ACCEPTED:
            steps.append(Step("accept", self._accept_in(tasks)))
        steps += [self._stop(name) for name in self._stopping()]
        mounts_memory = self.actions.mounts_memory
        steps += [self._clear(one) for one in self.restarts if mounts_memory(one.container)]
        steps += self._machine_steps()
        steps += [self._start(one) for one in self.restarts]
        if not self.target.settled or self.target.restarting:
            steps.append(Step("actuated", self._actuate))
        if self._may_report():
            steps.append(Step("report", self._report))
        return steps

    def _stopping(self) -> list[str]:
        """Sidecars last; they also start first: ``restarts`` is in that order."""
        running = tuple(one.container for one in self.restarts if one.running)
        together = stop_order(running, sidecars_of(self.record.pod))
        return [name for names in together for name in names]

    def _machine_steps(self) -> list[Step]:
        steps, of_cpu = list(self.work.steps), self.work.cpu_steps
        if of_cpu is None or of_cpu == len(steps) or not self.target.holds_cpu:
            return steps
        return [*steps[:of_cpu], Step("freed:cpu", self._free_cpu), *steps[of_cpu:]]

    def _may_report(self) -> bool:
        """The API asks about the very generation being applied, and has no final answer."""
        generation = resize_state(self.record.pod).get("generation")
        unfinished = phase_of(self.record.pod) in UNFINISHED
        return generation == self.target.generation and unfinished and not self.record.gone

    async def _checkpoint(self) -> None:
        self.entry.secure(self.target)

    def _accept_in(self, tasks: asyncio.TaskGroup) -> Callable[[], Awaitable[None]]:
        """What is applied at once is told by report alone, as accepted and done in one."""

        def begin() -> None:
            self._accept_later = None
            self._accepting = tasks.create_task(self._accept())
            self._accept_settled.set()

        async def begin_unless_done() -> None:
            delay_seconds = self.dependencies.settings.accept_delay_seconds
            if delay_seconds <= 0:
                begin()
                return
            delay_seconds = max(delay_seconds, self.work.quick_seconds)
            self._accept_later = asyncio.get_running_loop().call_later(delay_seconds, begin)

        return begin_unless_done

    def _cancels_accept(self) -> bool:
        """True where it was still to come: it all went at once."""
        if self._accept_later is None:
            return False
        self._accept_later.cancel()
        self._accept_later = None
        self._is_at_once = True
        self._accept_settled.set()
        return True

    def _started(self) -> tuple[EventReason, str]:
        return EventReason.RESIZE_STARTED, self._event("started")

    def _event(self, what: str) -> str:
        sizes, generation = self.target.allocated, self.target.generation
        return event_message(what, self.record.pod, sizes, generation)

    async def _accept(self) -> None:
        pod, target = self.record.pod, self.target
        try:
            await self.entry.durable()
            self.dependencies.record_event(pod, *self._started())
            await self.record.post_resizing(accept_body(pod, target))
        except REPORT_ERRORS as failure:
            # The node's ledger is the truth: the resize goes on, and report tells it all.
            log.warning("accept not posted", pod=target.name, reason=str(failure))

    async def _post_progress(self, progress: Progress) -> None:
        if self._accept_later is not None:
            await self._accept_settled.wait()
        if self._accepting is not None:
            await self._accepting
        if self._is_at_once:
            return
        # What failed and does not move stays an error; a retry alone is no news.
        stuck = phase_of(self.record.pod) is ResizePhase.ERROR and not progress.moved
        if stuck or not self._may_report():
            return
        pod, status = self.record.pod, self.actions.build_status(None)
        body = progress_body(pod, self.target, progress, self._records, status)
        try:
            await self.record.post_resizing(body)
        except REPORT_ERRORS as failure:
            log.warning("progress not posted", pod=self.target.name, reason=str(failure))

    def _stop(self, container: str) -> Step:
        async def stop() -> None:
            await self.actions.stop(container)

        return Step(f"stop:{container}", stop)

    def _clear(self, restart: Restart) -> Step:
        async def clear() -> None:
            await self.actions.clear(restart.container)

        return Step(f"clear:{restart.container}", clear)

    def _start(self, restart: Restart) -> Step:
        async def start() -> None:
            # At the size the pod's group was just made ready for: there may be a newer promise.
            await self.actions.start(restart.container, restart.attempt, self.target)

        return Step(f"start:{restart.container}", start)

    async def _actuate(self) -> None:
        """This does not wait for the disk: after a crash the machine itself says what was applied,
        and it is reported once more. What others get of the room is noted after this, so it
        cannot be durable without it."""
        self._record_applied(self._current().applied(self.target.allocated))

    async def _free_cpu(self) -> None:
        self._record_applied(self._current().cpu_applied(self.target))

    def _current(self) -> Allocation:
        current = self.ledger.get(self.target.uid)
        assert current is not None, "only the pod's worker forgets it"
        return current

    def _record_applied(self, applied: Allocation) -> None:
        used = self.ledger.used
        self.ledger.record(applied)
        self.entry.note_applied(applied)
        if self.ledger.used != used:
            self.actions.room_appeared()

    async def _report(self) -> None:
        started = [self._started()] if self._cancels_accept() else []
        await self.line.end()
        if self._accepting is not None:
            await self._accepting
        is_reported = False
        try:
            await self.entry.reportable_as_done()
            if self._may_report():  # no newer request came meanwhile: only the newest counts
                await self._report_done(started)
                is_reported = True
        finally:
            for one in () if is_reported else started:
                self.dependencies.record_event(self.record.pod, *one)

    async def _report_done(self, news: list[tuple[EventReason, str]]) -> None:
        pod = self.record.pod
        groups = None if self.work.groups is None or self.restarts else self.work.groups()
        status = caught_up(pod, self.actions.build_status(groups))
        desired = [size["name"] for size in resize_state(pod).get("desired") or ()]
        waiting = yet_to_run({**pod, "status": status}, desired)
        if waiting:
            await self._report_waiting(f"{NOT_RUNNING} {waiting}", news, status)
            return
        message = self._event("completed")
        remark = "" if self.work.remark is None else self.work.remark()
        body = done_body(pod, self.target, self._records, status, remark)
        await self.record.post_done(body, *news, (EventReason.RESIZE_COMPLETED, message))

    async def _report_waiting(
        self, why: str, news: list[tuple[EventReason, str]], status: Object
    ) -> None:
        """All is ready for it; what does not run gets its size when it starts."""
        pod, state = self.record.pod, resize_state(self.record.pod)
        if phase_of(pod) is not ResizePhase.IN_PROGRESS or state.get("message") != why:
            body = waiting_body(pod, self.target, why, self._records, status)
            await self.record.post_resizing(body, *news)
