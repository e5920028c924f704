"""The one owner of one pod on this node: observes, plans, acts, reports; then waits for a wake.

Each turn begins with what the machine and the object say now, so a turn may be cut off anywhere
and the next one goes on. A change of the object, an event of the machine and a verdict of the judge
wake the worker. A worker with nothing left to do waits without a timer: the agent has it read the
machine every ``recheck_seconds`` (``recheck``), and a limit changed by hand wakes it. Any other
worker has a turn at least that often.

The worker has its parts do the work: the observer looks (observer.py), ``PodMachine`` acts
(machine.py), the driver resizes (agent/resize/driver.py), the reporter posts (status_reporter.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from livesize.agent.admission.plan import Reject
from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.observation import PodSnapshot, observe_pod
from livesize.agent.pods.history import StartHistory
from livesize.agent.pods.machine import PodMachine, shape_of
from livesize.agent.pods.observer import PodObserver, crash_backoff
from livesize.agent.pods.plan import (
    DEADLINE_MESSAGE,
    FinishPod,
    Idle,
    RemovePod,
    RunPod,
    StartContainer,
    deadline_at,
)
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.pods.status_reporter import StatusReporter
from livesize.agent.pods.termination_messages import TerminationMessages
from livesize.agent.probes.watch import PodProbes
from livesize.agent.report import (
    Ending,
    ending_of,
    reported_status,
)
from livesize.agent.resize.attempt import POST_ERRORS, WORLD_ERRORS, PodActions
from livesize.agent.resize.driver import NEVER, NodeAdmission, ResizeDriver
from livesize.agent.resize.restarts import is_due
from livesize.agent.vm.report import only_time_passed
from livesize.agent.volumes.conversion import volumes_of
from livesize.agent.volumes.pod_volumes import PodVolumes
from livesize.api.objects import Object, name_of, namespace_of
from livesize.api.reasons import EventReason
from livesize.api.resources import containers_of
from livesize.machinery.steps import Backoff, Step, run_steps
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import GoneError, RuntimeCallError

log = get_logger("agent.pods")

STOPPED_SECONDS = 2.0
"""So long an agent that stops waits for the API server to hear that nothing runs."""
POD_GROUP_LOST = (
    "Another process removed the pod's control group; the agent makes it again, and starts"
    " containers as the pod's restartPolicy says"
)


class PodWorker:
    """``secured``: what the checkpoint is known to hold for this pod."""

    def __init__(
        self,
        dependencies: AgentDependencies,
        admission: NodeAdmission,
        pod: Object,
        secured: Allocation | None,
        room_appeared: Callable[[], None],
    ) -> None:
        settings = dependencies.settings
        self.uid = str(pod["metadata"]["uid"])
        self._dependencies = dependencies
        self._admission = admission
        self._room_appeared = room_appeared
        self._entry = SecuredEntry(dependencies.checkpoint, secured)
        self._record = PodRecord(dependencies, pod, self._entry)
        self._record.on_late_news = self.wake
        shape = shape_of(dependencies, self._record)
        self._volumes = PodVolumes(dependencies, admission.ledger.allocatable)
        messages = TerminationMessages(dependencies)
        self._machine = PodMachine(dependencies, self._record, shape, self._volumes, messages)
        self._probes = PodProbes(dependencies, self._record_event, self.wake)
        self._history = StartHistory(
            crash_backoff(settings), settings.crash_forgotten_seconds, settings.object_wait_seconds
        )
        self._observer = PodObserver(
            dependencies, admission.ledger, self._record, self._history, self._probes
        )
        self._reporter = StatusReporter(
            dependencies, admission.ledger, self._record, self._observer, messages
        )
        actions = PodActions(
            self._stop_for_size,
            self._machine.mounts_memory,
            self._machine.clear,
            self._start_at_size,
            self._reporter.build_with,
            room_appeared,
        )
        self._driver = ResizeDriver(
            dependencies, admission, self._record, self._entry, actions, shape
        )
        self._backoff = Backoff(
            settings.post_backoff_seconds,
            settings.post_backoff_maximum_seconds,
            dependencies.context.random,
        )
        self._machine_backoff = Backoff(
            settings.resize_backoff_seconds,
            settings.resize_backoff_maximum_seconds,
            dependencies.context.random,
        )
        self._failures = 0
        self._wake = asyncio.Event()
        self._last_look: PodSnapshot | None = None  # when all of it had ended
        self._idle_look: PodSnapshot | None = None  # when nothing was left to do
        self._is_new = True  # has not looked at the pod yet
        self._finished = False
        self._log = log.bind(pod=f"{namespace_of(pod)}/{name_of(pod)}")

    @property
    def is_leaving(self) -> bool:
        return self._record.is_leaving

    # What the agent tells this worker; none of it waits.

    def seen(self, pod: Object) -> None:
        if self._record.seen(pod):
            self._wake.set()

    def object_gone(self) -> None:
        self._record.vanished()
        self._wake.set()

    def reject(self, verdict: Reject) -> None:
        self._observer.ending = Ending("Failed", verdict.reason, verdict.message)
        known = verdict.reason in list(EventReason)
        reason = EventReason(verdict.reason) if known else EventReason.FAILED
        self._dependencies.record_event(self._record.pod, reason, verdict.message)
        self._log.warning("pod rejected", reason=verdict.reason, message=verdict.message)

    def wake(self) -> None:
        self._wake.set()

    def judged(self) -> None:
        """Its resize was judged. A new promise is written before it is planned."""
        entry = self._admission.ledger.get(self.uid)
        if entry is not None:
            self._entry.begin(entry)
        self._wake.set()

    async def run(self) -> None:
        """Until the pod is gone from the machine and from the API."""
        async with asyncio.TaskGroup() as tasks:
            self._probes.begin(tasks)
            while not self._finished:
                self._wake.clear()
                self._idle_look = None
                wait_seconds = await self._guarded_turn()
                if not self._finished:
                    await self._await_work(wait_seconds)
            self._probes.end()

    def recheck(self) -> None:
        """Wake the worker if it waits for work, and the machine does not read as it did when
        nothing was left to do."""
        look = None if self._wake.is_set() else self._idle_look
        if look is None or look.vm is not None:
            return
        try:
            is_same = observe_pod(self._dependencies.runtime, self.uid) == look
        except RuntimeCallError:
            is_same = False  # the turn meets the same, and says so
        if not is_same:
            self._wake.set()

    async def _await_work(self, wait_seconds: float) -> None:
        look = self._idle_look if wait_seconds == NEVER else None
        if look is None:
            await self._pause(wait_seconds)
        elif look.vm is None:
            await self._wake.wait()  # as most pods nearly always do
        else:
            await self._pause(NEVER)
            while not self._wake.is_set() and await self._guest_is_idle(look):
                await self._pause(NEVER)

    async def _guest_is_idle(self, look: PodSnapshot) -> bool:
        """The machine and the guest read as they did when nothing was left to do."""
        now = await self._observer.read_again(self._observer.observe())
        return only_time_passed(look, now)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self._dependencies.settings.recheck_seconds)):
                await self._wake.wait()

    async def _guarded_turn(self) -> float:
        """One turn; what fails is tried again later, and a bug ends only this turn."""
        try:
            wait_seconds = await self._turn()
        except WORLD_ERRORS as failure:
            backoff = self._machine_backoff
            self._log.warning("pod not in step yet", reason=str(failure))
            await self._try_to_report()  # what could not be done is not said to be so
        except POST_ERRORS as failure:
            unfinished = self._driver.is_unfinished()
            backoff = self._machine_backoff if unfinished else self._backoff
            self._log.warning("pod not in step yet", reason=str(failure))
        except Exception:
            backoff = self._backoff
            log.exception("a turn of the pod failed", pod=name_of(self._record.pod))
        else:
            self._failures = 0
            return wait_seconds
        self._failures += 1
        return backoff.seconds(self._failures)

    async def _try_to_report(self) -> None:
        """Where nothing else depends on it; the next turn tells what could not be told."""
        try:
            await self._reporter.report()
        except WORLD_ERRORS + POST_ERRORS as failure:
            self._log.warning("status not posted", reason=str(failure))
        except Exception:
            log.exception("the status of a pod was not told", pod=name_of(self._record.pod))

    async def _turn(self) -> float:
        snapshot = self._observer.observe()
        match self._observer.plan(snapshot):
            case RemovePod():
                await self._remove(snapshot)
            case Idle():
                await self._leave_ledger()
                await self._reporter.report()
                self._idle_look = snapshot
            case FinishPod(succeeded=succeeded):
                self._observer.ending = Ending("Succeeded" if succeeded else "Failed")
                await self._leave_ledger()
                await self._reporter.report()
            case RunPod() as run:
                return await self._run_pod(run, snapshot)
        return NEVER

    def _record_event(self, reason: EventReason, message: str) -> None:
        self._dependencies.record_event(self._record.pod, reason, message)

    # Running

    async def _run_pod(self, run: RunPod, snapshot: PodSnapshot) -> float:
        if deadline_at(self._record.pod) <= self._dependencies.clock.now():
            return await self._fail(EventReason.DEADLINE_EXCEEDED, DEADLINE_MESSAGE)
        wait_seconds = await self._run_in_time(run, snapshot)
        left_seconds = deadline_at(self._record.pod) - self._dependencies.clock.now()
        return max(0.0, min(left_seconds, wait_seconds))

    async def _run_in_time(self, run: RunPod, snapshot: PodSnapshot) -> float:
        if self._is_new and self._is_reported_ready() and (run.make_group or run.starts):
            await self._reporter.report(snapshot)  # of the start before: it takes a while to be so
        self._is_new = False
        if run.make_group:
            if snapshot.view is not None:
                self._record_event(EventReason.SANDBOX_CHANGED, POD_GROUP_LOST)
                self._log.warning("the pod's group was removed by another", uid=self.uid)
            await self._begin()
            snapshot = self._observer.observe()
        if snapshot.groups is None:
            raise GoneError(f"the group of pod {self.uid} cannot be read, though it was made")
        snapshot = await self._observer.read_again(snapshot)
        for stop in run.stops:
            await self._machine.stop(stop.container, stop.why, stop.grace_seconds)
        resize_seconds = await self._driver.drive(self._allocation(), snapshot)
        for start in run.starts:
            await self._start(start)
        await self._driver.post_refusal()
        await self._volumes.refresh(self._record.pod, self._allocation())
        await self._machine.refresh_hosts()
        too_full = await self._volumes.overfull(self._record.pod)
        if too_full:
            return await self._fail(EventReason.EVICTED, too_full)
        look = self._observer.observe()
        if await self._reporter.report(look):
            look = self._observer.observe()  # that took its time
        if run.starts and look.vm is not None:
            return 0.0  # its groups hold what it boots with, which may be more than its size
        return self._rest_seconds(look, resize_seconds)

    def _rest_seconds(self, look: PodSnapshot, resize_seconds: float) -> float:
        match self._observer.plan(look):
            case RunPod(starts=(), stops=(), wait_seconds=wait_seconds):
                self._idle_look = look if self._is_settled(look) else None
                next_seconds = NEVER if wait_seconds is None else wait_seconds
                return min(resize_seconds, next_seconds, self._observer.lost_group_seconds(look))
            case _:
                return 0.0  # something ended meanwhile

    def _is_settled(self, look: PodSnapshot) -> bool:
        """All runs, and there is nothing that ``look`` does not show: files, silent guests,
        probes."""
        is_silent = look.vm is not None and look.vm.guest is None
        is_simple = not (self._probes.any or is_silent or volumes_of(self._record.pod))
        is_done = self._observer.is_running(look) and not self._driver.is_unfinished()
        return is_simple and is_done and self._dependencies.cpus is None

    def _is_reported_ready(self) -> bool:
        pod = self._record.pod
        return any(reported_status(pod, one["name"]).get("ready") for one in containers_of(pod))

    def _allocation(self) -> Allocation:
        entry = self._admission.ledger.get(self.uid)
        assert entry is not None, "an admitted pod is in the ledger"
        return entry

    async def _begin(self) -> None:
        """The promise is durable before the machine is touched."""
        entry = self._allocation()

        async def checkpoint() -> None:
            self._entry.secure(entry)
            await self._entry.durable()

        async def group() -> None:
            await self._machine.make_group(entry)

        try:
            await self._run_steps("begin", [Step("checkpoint", checkpoint), Step("group", group)])
        except RuntimeCallError as failure:
            self._dependencies.record_event(
                self._record.pod, EventReason.FAILED_SANDBOX, str(failure)
            )
            raise

    async def _start(self, start: StartContainer) -> None:
        """One container that cannot start keeps none of the others from starting."""
        entry = self._allocation()
        view = self._observer.observe().containers.get(start.container)
        if view is not None and view.attempt >= start.attempt:
            return  # the resize of this very turn has started it

        async def begin() -> None:
            if start.stop_first:
                await self._machine.stop(start.container, "its definition was changed")
            if view is not None and is_due(entry, view):
                await self._machine.clear(start.container)  # a resize has stopped it
            await self._machine.start(start.container, start.attempt, entry, in_full=False)

        try:
            await self._run_steps("start", [Step(start.container, begin)])
        except RuntimeCallError as error:
            failure = self._history.failed(start.container, error, self._dependencies.clock.now())
            self._dependencies.record_event(self._record.pod, EventReason.FAILED, failure.message)
        else:
            self._history.started(start.container)
            self._log.info("container started", container=start.container, attempt=start.attempt)

    async def _stop_for_size(self, name: str) -> None:
        await self._machine.stop(name, "it gets its new size by a restart")
        self._history.saw(self._observer.observe().containers.get(name))

    async def _start_at_size(self, name: str, attempt: int, entry: Allocation) -> None:
        if self.is_leaving:
            raise GoneError(f"pod {name_of(self._record.pod)} was deleted meanwhile")
        await self._machine.start(name, attempt, entry, in_full=True)
        self._history.started(name)

    async def _run_steps(self, plan: str, steps: list[Step]) -> None:
        outcome = await run_steps(
            plan,
            steps,
            clock=self._dependencies.clock,
            points=self._dependencies.points,
            errors=WORLD_ERRORS + POST_ERRORS,
        )
        if outcome.failure is not None:
            raise outcome.failure

    # Ending

    async def _leave_ledger(self) -> None:
        """The pod needs nothing any more: what it had is free for others."""
        self._admission.judge.forget(self.uid)
        if self._admission.ledger.release(self.uid):
            await self._entry.forget(self.uid)
            self._room_appeared()

    async def _fail(self, reason: EventReason, message: str) -> float:
        """The pod takes more of the machine than it may, or longer: it fails, for good."""
        self._record_event(reason, message)
        view = self._dependencies.runtime.pod(self.uid)
        if view is not None:
            await self._machine.stop_all(view, message)
        self._observer.ending = Ending("Failed", reason, message)
        await self._leave_ledger()
        await self._reporter.report()
        return NEVER

    async def _remove(self, snapshot: PodSnapshot) -> None:
        steps: list[Step] = []
        view = snapshot.view
        if view is not None:

            async def stop() -> None:
                await self._machine.stop_all(view, "the pod is deleted")
                self._last_look = self._observer.observe()
                with contextlib.suppress(*POST_ERRORS):
                    await self._report_end()

            async def remove() -> None:
                await self._machine.remove(self.uid)

            steps += [Step("stop", stop), Step("remove", remove)]
        steps.append(Step("volumes", lambda: self._machine.remove_volumes(self.uid)))
        steps.append(Step("forget", self._leave_ledger))
        if not self._record.gone and not self._record.is_let_go:
            steps += [Step("report", self._report_end), Step("delete", self._record.delete)]
        await self._run_steps("remove", steps)
        self._finished = self._record.gone

    async def _report_end(self) -> None:
        """Its containers have ended, and none is started again."""
        look = self._last_look or PodSnapshot(None, None)
        self._observer.ending = self._observer.ending or ending_of(self._record.pod, look)
        await self._reporter.report(look)

    async def report_stopped(self) -> None:
        """The agent stops, and has stopped what ran: the status says ready no longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPED_SECONDS):
                await self._try_to_report()
