"""The one owner of one pod on this node: looks, plans, acts, reports; then waits to be woken.

Each turn begins with what the machine and the object say now, so a turn may be cut off anywhere
and the next one goes on. Woken by a change of the object, an event of the machine or a verdict of
the judge; besides that it looks every ``recheck_seconds``, so that a limit changed by hand is
driven back to what was allocated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from livesize.agent.admission.plan import Reject
from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observe import PodSnapshot, all_run, observe_again, observe_pod
from livesize.agent.outside import Outside
from livesize.agent.pods.deadline import DEADLINE_MESSAGE, deadline_at
from livesize.agent.pods.history import StartHistory
from livesize.agent.pods.last_words import LastWords
from livesize.agent.pods.lost_groups import LostGroups
from livesize.agent.pods.machine import PodMachine
from livesize.agent.pods.plan import (
    GO_ON,
    ContainerFacts,
    CrashBackoff,
    Finish,
    PodFacts,
    PodPlan,
    Remove,
    Rest,
    Run,
    Standing,
    Start,
    is_initialized,
    plan_pod,
)
from livesize.agent.pods.post import PodRecord
from livesize.agent.probes.health import WELL
from livesize.agent.probes.plan import has_probes
from livesize.agent.probes.watch import PodProbes
from livesize.agent.report import (
    Ending,
    StatusFacts,
    Waiting,
    build_status,
    changed_status,
    ending_of,
    starts_told,
    status_told,
)
from livesize.agent.resize.attempt import POST_ERRORS, WORLD_ERRORS, PodHands
from livesize.agent.resize.drive import NEVER, NodeBooks, ResizeDriver
from livesize.agent.resize.plan import PodObservation
from livesize.agent.resize.restarts import is_due
from livesize.agent.shapes import shape_of
from livesize.agent.volumes.keeper import PodVolumes
from livesize.agent.volumes.wanted import volumes_of
from livesize.api.hashes import container_hash_without_resources
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.reasons import EventReason
from livesize.api.resize_state import is_terminal
from livesize.api.resources import containers_of, init_containers_of, stays
from livesize.api.restart_policy import own_policy, own_rules, policy_of_pod
from livesize.machinery.steps import Backoff, Step, run_steps
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import ContainerPhase, ContainerView, GoneError, RuntimeCallError

log = get_logger("agent.pods")

STOPPED_SECONDS = 2.0
"""So long an agent that stops waits for the API server to hear that nothing runs."""
GROUP_LOST = "another process removed its control group, so it has no limits any more"
POD_GROUP_LOST = (
    "Another process removed the pod's control group; the agent makes it again, and starts"
    " containers as the pod's restartPolicy says"
)


class PodWorker:
    """``secured``: what the checkpoint is known to hold for this pod."""

    def __init__(
        self,
        outside: Outside,
        books: NodeBooks,
        pod: Object,
        secured: Allocation | None,
        room_appeared: Callable[[], None],
    ) -> None:
        settings = outside.settings
        self.uid = str(pod["metadata"]["uid"])
        self._outside = outside
        self._books = books
        self._room_appeared = room_appeared
        self._entry = SecuredEntry(outside.checkpoint, secured)
        self._record = PodRecord(outside, pod, self._entry)
        self._record.on_late_news = self.wake
        self._shape = shape = shape_of(outside, self._record)
        self._volumes = PodVolumes(outside, books.ledger.allocatable)
        self._last_words = LastWords(outside)
        self._lost_groups = LostGroups(outside.clock)
        self._machine = PodMachine(outside, self._record, shape, self._volumes, self._last_words)
        hands = PodHands(
            self._stop_for_size,
            self._machine.mounts_memory,
            self._machine.clear,
            self._start_at_size,
            self._build_status_with,
            room_appeared,
        )
        self._driver = ResizeDriver(outside, books, self._record, self._entry, hands, shape)
        self._crash_backoff = CrashBackoff(
            settings.crash_backoff_seconds, settings.crash_backoff_maximum_seconds
        )
        self._history = StartHistory(
            self._crash_backoff, settings.crash_forgotten_seconds, settings.object_wait_seconds
        )
        self._backoff = Backoff(
            settings.post_backoff_seconds,
            settings.post_backoff_maximum_seconds,
            outside.context.random,
        )
        self._machine_backoff = Backoff(
            settings.resize_backoff_seconds,
            settings.resize_backoff_maximum_seconds,
            outside.context.random,
        )
        self._probes = PodProbes(outside, self._tell, self.wake)
        self._failures = 0
        self._ending: Ending | None = None
        self._wake = asyncio.Event()
        self._last_look: PodSnapshot | None = None  # when all of it had ended
        self._idle_look: PodSnapshot | None = None  # when nothing was left to do
        self._is_new = True  # has not looked at the pod yet
        self._finished = False
        self._log = log.bind(pod=f"{namespace_of(pod)}/{name_of(pod)}")

    @property
    def is_leaving(self) -> bool:
        deleted = lookup(self._record.pod, "metadata", "deletionTimestamp")
        return self._record.gone or bool(deleted)

    # What the agent tells this worker; none of it waits.

    def seen(self, pod: Object) -> None:
        if self._record.seen(pod):
            self._wake.set()

    def object_gone(self) -> None:
        self._record.vanished()
        self._wake.set()

    def reject(self, verdict: Reject) -> None:
        self._ending = Ending("Failed", verdict.reason, verdict.message)
        known = verdict.reason in list(EventReason)
        reason = EventReason(verdict.reason) if known else EventReason.FAILED
        self._outside.tell(self._record.pod, reason, verdict.message)
        self._log.warning("pod rejected", reason=verdict.reason, message=verdict.message)

    def wake(self) -> None:
        self._wake.set()

    def judged(self) -> None:
        """Its resize was judged. A new promise is written before it is planned."""
        entry = self._books.ledger.get(self.uid)
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
                    await self._pause(wait_seconds)
                while wait_seconds == NEVER and self._is_idle():  # as most pods nearly always are
                    await self._pause(NEVER)
            self._probes.end()

    def _is_idle(self) -> bool:
        """Nothing woke the worker, and the machine reads as it did when nothing was left to do."""
        look = None if self._wake.is_set() else self._idle_look
        return look is not None and observe_pod(self._outside.runtime, self.uid) == look

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, self._outside.settings.recheck_seconds)):
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
            await self._report_status()
        except WORLD_ERRORS + POST_ERRORS as failure:
            self._log.warning("status not posted", reason=str(failure))
        except Exception:
            log.exception("the status of a pod was not told", pod=name_of(self._record.pod))

    async def _turn(self) -> float:
        snapshot = self._observe()
        match self._plan(snapshot):
            case Remove():
                await self._remove(snapshot)
            case Rest():
                await self._leave_ledger()
                await self._report_status()
            case Finish(succeeded=succeeded):
                self._ending = Ending("Succeeded" if succeeded else "Failed")
                await self._leave_ledger()
                await self._report_status()
            case Run() as run:
                return await self._run_pod(run, snapshot)
        return NEVER

    def _plan(self, snapshot: PodSnapshot) -> PodPlan:
        """As nearly always nothing is to be started or stopped, and that is quickly seen."""
        return GO_ON if self._goes_on(snapshot) else plan_pod(self._facts(snapshot))

    def _goes_on(self, snapshot: PodSnapshot) -> bool:
        if self._probes.any or snapshot.groups is None or not self._is_running(snapshot):
            return False
        pod, views = self._record.pod, snapshot.containers
        if len(snapshot.groups.containers) != len(views):
            return False
        changed = [
            one for one in containers_of(pod) if self._must_start_anew(one, views.get(one["name"]))
        ]
        return not changed and self._standing() is Standing.ADMITTED

    def _is_running(self, snapshot: PodSnapshot) -> bool:
        """Every container, and none has anything before it."""
        return not self._history.any_failed and all_run(self._record.pod, snapshot)

    # Facts

    def _observe(self) -> PodSnapshot:
        snapshot = observe_pod(self._outside.runtime, self.uid, self._outside.vms)
        self._follow_probes(snapshot)  # before anybody takes a new start for ready
        return snapshot

    async def _read_again(self, snapshot: PodSnapshot) -> PodSnapshot:
        """Not all that happens to a virtual machine is told: what was read long ago is read again,
        so that what somebody changed by hand is found. An idle turn always finds it that old; a
        turn that something woke seldom does, and so does not wait for the reading."""
        vm, vms = snapshot.vm, self._outside.vms
        if vm is None or vms is None:
            return snapshot
        if self._outside.clock.now() - vm.read_at < self._outside.settings.recheck_seconds:
            return snapshot
        with contextlib.suppress(RuntimeCallError):
            await vms.refresh_vm(self.uid)
        return self._observe()

    def _facts(self, snapshot: PodSnapshot) -> PodFacts:
        pod = self._record.pod
        return PodFacts(
            standing=self._standing(),
            restart_policy=policy_of_pod(pod),
            containers=self._container_facts(snapshot),
            has_group=snapshot.groups is not None,
            now=self._outside.clock.now(),
            backoff=self._crash_backoff,
            starting=self._starting_facts(snapshot),
        )

    def _standing(self) -> Standing:
        pod = self._record.pod
        if self.is_leaving:
            return Standing.LEAVING
        if is_terminal(pod):
            return Standing.ENDED
        if self._books.ledger.get(self.uid) is None:
            return Standing.ENDED if self._ending is not None else Standing.REJECTED
        return Standing.ADMITTED

    def _container_facts(self, snapshot: PodSnapshot) -> tuple[ContainerFacts, ...]:
        views = snapshot.containers
        return tuple(
            self._facts_of(container, views.get(container["name"]), snapshot, changes=True)
            for container in containers_of(self._record.pod)
        )

    def _starting_facts(self, snapshot: PodSnapshot) -> tuple[ContainerFacts, ...]:
        """An init container that has done its work is not asked to do it another way."""
        views = snapshot.containers
        return tuple(
            msgspec.structs.replace(
                self._facts_of(one, views.get(one["name"]), snapshot, changes=stays(one)),
                is_init=True,
                stays=stays(one),
            )
            for one in init_containers_of(self._record.pod)
        )

    def _facts_of(
        self, container: Object, view: ContainerView | None, snapshot: PodSnapshot, *, changes: bool
    ) -> ContainerFacts:
        facts = self._history.facts(
            container["name"],
            view,
            definition_changed=changes and self._must_start_anew(container, view),
            starts=starts_told(self._record.pod, container["name"]),
        )
        if view is not None and self._lost_groups.is_lost(view, snapshot):
            return msgspec.structs.replace(facts, unhealthy=GROUP_LOST)
        if container.get("restartPolicy") is not None:
            facts = msgspec.structs.replace(
                facts, own_policy=own_policy(container), rules=own_rules(container)
            )
        health = self._probes.health(view)
        if health is WELL:
            return facts
        return msgspec.structs.replace(
            facts,
            has_started=health.started,
            unhealthy=health.unhealthy,
            stop_seconds=health.grace_seconds,
        )

    def _follow_probes(self, snapshot: PodSnapshot) -> None:
        pod, views, runs = self._record.pod, snapshot.containers, ContainerPhase.RUNNING
        if self._probes.any:
            self._probes.forget_others({one.id for one in views.values() if one.phase is runs})
        if self.is_leaving:
            return
        for container in (*containers_of(pod), *init_containers_of(pod)):
            if not has_probes(container):
                continue
            name = container["name"]
            self._probes.follow(container, views.get(name), status_told(pod, name))

    def _tell(self, reason: EventReason, message: str) -> None:
        self._outside.tell(self._record.pod, reason, message)

    def _must_start_anew(self, container: Object, view: ContainerView | None) -> bool:
        """More than its size was changed; or a resize stopped it to start it again."""
        if view is None:
            return False
        if view.hash_without_resources != container_hash_without_resources(container):
            return True
        entry = self._books.ledger.get(self.uid)
        exited = view.phase is ContainerPhase.EXITED
        return exited and entry is not None and is_due(entry, view)

    # Running

    async def _run_pod(self, run: Run, snapshot: PodSnapshot) -> float:
        if deadline_at(self._record.pod) <= self._outside.clock.now():
            return await self._fail(EventReason.DEADLINE_EXCEEDED, DEADLINE_MESSAGE)
        wait_seconds = await self._run_in_time(run, snapshot)
        left_seconds = deadline_at(self._record.pod) - self._outside.clock.now()
        return max(0.0, min(left_seconds, wait_seconds))

    async def _run_in_time(self, run: Run, snapshot: PodSnapshot) -> float:
        if self._is_new and self._is_told_ready() and (run.make_group or run.starts):
            await self._report_status(snapshot)  # of the start before: it takes a while to be so
        self._is_new = False
        if run.make_group:
            if snapshot.view is not None:
                self._tell(EventReason.SANDBOX_CHANGED, POD_GROUP_LOST)
                self._log.warning("the pod's group was removed by another", uid=self.uid)
            await self._begin()
            snapshot = self._observe()
        if snapshot.groups is None:
            raise GoneError(f"the group of pod {self.uid} cannot be read, though it was made")
        snapshot = await self._read_again(snapshot)
        for stop in run.stops:
            await self._machine.stop(stop.container, stop.why, stop.grace_seconds)
        resize_seconds = await self._driver.drive(self._allocation(), snapshot)
        for start in run.starts:
            await self._start(start)
        await self._driver.post_refusal()
        await self._volumes.refresh(self._record.pod, self._allocation())
        too_full = await self._volumes.overfull(self._record.pod)
        if too_full:
            return await self._fail(EventReason.EVICTED, too_full)
        look = self._observe()
        if await self._report_status(look):
            look = self._observe()  # that took its time
        match self._plan(look):
            case Run(starts=(), stops=(), wait_seconds=wait_seconds):
                self._idle_look = look if self._is_settled(look) else None
                next_seconds = NEVER if wait_seconds is None else wait_seconds
                return min(resize_seconds, next_seconds, self._lost_groups.wait_seconds(look))
            case _:
                return 0.0  # something ended meanwhile

    def _is_settled(self, look: PodSnapshot) -> bool:
        """All runs, and there is nothing that ``look`` does not show: files, guests, probes."""
        is_simple = not (self._probes.any or look.vm or volumes_of(self._record.pod))
        is_done = self._is_running(look) and not self._driver.is_unfinished()
        return is_simple and is_done and self._outside.cpus is None

    def _is_told_ready(self) -> bool:
        pod = self._record.pod
        return any(status_told(pod, one["name"]).get("ready") for one in containers_of(pod))

    def _allocation(self) -> Allocation:
        entry = self._books.ledger.get(self.uid)
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
            self._outside.tell(self._record.pod, EventReason.FAILED_SANDBOX, str(failure))
            raise

    async def _start(self, start: Start) -> None:
        """One container that cannot start keeps none of the others from starting."""
        entry = self._allocation()
        view = self._observe().containers.get(start.container)
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
            failure = self._history.failed(start.container, error, self._outside.clock.now())
            self._outside.tell(self._record.pod, EventReason.FAILED, failure.message)
        else:
            self._history.started(start.container)
            self._log.info("container started", container=start.container, attempt=start.attempt)

    async def _stop_for_size(self, name: str) -> None:
        await self._machine.stop(name, "it gets its new size by a restart")
        self._history.saw(self._observe().containers.get(name))

    async def _start_at_size(self, name: str, attempt: int, entry: Allocation) -> None:
        if self.is_leaving:
            raise GoneError(f"pod {name_of(self._record.pod)} was deleted meanwhile")
        await self._machine.start(name, attempt, entry, in_full=True)
        self._history.started(name)

    async def _run_steps(self, plan: str, steps: list[Step]) -> None:
        outcome = await run_steps(
            plan,
            steps,
            clock=self._outside.clock,
            points=self._outside.points,
            errors=WORLD_ERRORS + POST_ERRORS,
        )
        if outcome.failure is not None:
            raise outcome.failure

    # Ending

    async def _leave_ledger(self) -> None:
        """The pod needs nothing any more: what it had is free for others."""
        self._books.judge.forget(self.uid)
        if self._books.ledger.release(self.uid):
            await self._entry.forget(self.uid)
            self._room_appeared()

    async def _fail(self, reason: EventReason, message: str) -> float:
        """The pod takes more of the machine than it may, or longer: it fails, for good."""
        self._tell(reason, message)
        if (view := self._outside.runtime.pod(self.uid)) is not None:
            await self._machine.stop_all(view, message)
        self._ending = Ending("Failed", reason, message)
        await self._leave_ledger()
        await self._report_status()
        return NEVER

    async def _remove(self, snapshot: PodSnapshot) -> None:
        steps: list[Step] = []
        view = snapshot.view
        if view is not None:

            async def stop() -> None:
                await self._machine.stop_all(view, "the pod is deleted")
                self._last_look = self._observe()
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
        self._ending = self._ending or ending_of(self._record.pod, look)
        await self._report_status(look)

    async def report_stopped(self) -> None:
        """The agent stops, and has stopped what ran: nobody is told any longer that it is ready."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPED_SECONDS):
                await self._try_to_report()

    # Reporting

    def _build_status_with(self, groups: PodObservation | None) -> Object:
        """``groups``: what was read of them a moment ago."""
        if groups is None:
            return self._build_status()
        snapshot = observe_again(self._outside.runtime, self.uid, groups)
        self._follow_probes(snapshot)
        return self._build_status(snapshot)

    def _build_status(self, look: PodSnapshot | None = None) -> Object:
        snapshot = look or self._observe()
        waiting, initialized = self._waiting(snapshot)
        return build_status(
            StatusFacts(
                pod=self._record.pod,
                snapshot=snapshot,
                allocation=self._books.ledger.get(self.uid),
                waiting=waiting,
                initialized=initialized,
                health={
                    name: self._probes.health(view) for name, view in snapshot.containers.items()
                },
                ended=self._history.ended,
                messages=self._last_words.messages,
                ending=self._ending,
                cgroup_version=self._outside.runtime.cgroup_version,
                runtime_name=self._outside.machine.runtime_version.partition("://")[0],
                host_ip=self._outside.settings.host_ip,
                now=self._outside.clock.now(),
            )
        )

    def _waiting(self, snapshot: PodSnapshot) -> tuple[dict[str, Waiting], bool]:
        """Why containers do not run that should, and whether the init containers are through."""
        if self._is_running(snapshot):
            return {}, True
        facts = self._facts(snapshot)
        containers = (*facts.starting, *facts.containers)
        if self._ending is not None:
            return {}, is_initialized(facts)  # nothing will start again
        return self._history.waiting(containers, facts.restart_policy), is_initialized(facts)

    async def _report_status(self, look: PodSnapshot | None = None) -> bool:
        """Tell what is news; False: nothing was."""
        if self._record.gone or is_terminal(self._record.pod):
            return False
        look = look or self._observe()
        ended = self._history.ended.values()
        await self._last_words.hear(self._record.pod, (*look.containers.values(), *ended))
        changed = changed_status(self._record.pod, self._build_status(look))
        if changed:
            await self._record.patch_status(changed)
        return bool(changed)
