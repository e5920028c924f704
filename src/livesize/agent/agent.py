"""The node agent: follows this node's pods, judges what changed, and keeps one worker per pod.

    informer ──► judge (the same loop turn) ──► worker of that pod ──► machine, API

Whoever builds an agent opens runtime, client and checkpoint before ``run``, and closes them after.
After a restart (ARK, "Kubelet Restart Tolerance") nothing is judged until the list of pods is
complete: then all pods are admitted at allocated, and only then resizes are judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from livesize.agent.admission.plan import UNSUPPORTED, Admit, Reject, order_after_restart
from livesize.agent.allocation.checkpoint import Checkpoint
from livesize.agent.allocation.ledger import Allocation, Ledger
from livesize.agent.cpus.assigner import CpuAssigner
from livesize.agent.cpus.plan import settle_loaded
from livesize.agent.cpus.pool import CpuPool
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.judge import Judge
from livesize.agent.node import NodeRegistration, allocatable_of
from livesize.agent.pods.plan import stop_order
from livesize.agent.pods.worker import PodWorker
from livesize.agent.probes.lifecycle import LifecycleHooks
from livesize.agent.resize.driver import NodeAdmission
from livesize.agent.settings import AgentSettings
from livesize.agent.volumes.reclaim import FolderReclaimer
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.resize_state import is_terminal, order_of_request
from livesize.api.resources import NOTHING, sidecars_of
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.machinery.recorder import EventRecorder, ReportingComponent
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints, StepFailedError
from livesize.machinery.tasks import TurnTimer, next_turn
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import PodView, Runtime, RuntimeCallError
from livesize.runtime.vm import VmRuntime
from livesize.runtime.volumes.interface import VolumeStore

log = get_logger("agent")

_DEFAULT_GRACE_SECONDS = 30.0


@dataclass
class Agent:
    client: Client
    runtime: Runtime
    checkpoint: Checkpoint
    context: Context
    settings: AgentSettings
    points: CrashPoints = NO_CRASH_POINTS
    vms: VmRuntime | None = None  # the same runtime, where it runs virtual machines
    volumes: VolumeStore = field(kw_only=True)

    def __post_init__(self) -> None:
        self._workers: dict[str, PodWorker] = {}
        self._undecided: dict[str, Object] = {}
        self._is_live = False
        self._recorder = EventRecorder(
            event_poster(self.client),
            context=self.context,
            source=ReportingComponent("livesize-agent", self.settings.node_name),
            delay_seconds=self.settings.event_delay_seconds,
        )
        self._dependencies = AgentDependencies(
            self.client,
            self.runtime,
            self.checkpoint,
            self.context,
            self.settings,
            self.points,
            self._recorder,
            self.runtime.machine(),
            self.volumes,
            self.vms,
        )
        self._node = NodeRegistration(self._dependencies)
        self._informer = Informer(
            self.client,
            PODS,
            Selection(fields=f"spec.nodeName={self.settings.node_name}"),
            context=self.context,
            on_change=self._changed,
            order=order_of_request,
        )

    async def run(self) -> None:
        """Until cancelled. Workloads go on; a new agent finds them."""
        loaded = await self._load()
        ledger = Ledger(allocatable_of(self._dependencies.machine, self.settings), loaded)
        supply = self.settings.cpus
        cpus = None if supply is None else CpuAssigner(supply, ledger)
        features = self._dependencies.machine.features
        judge = Judge(
            ledger,
            runs_vms=self.vms is not None,
            cpus=cpus,
            features=features,
            technology=self.settings.memory_technology,
        )
        self._admission = NodeAdmission(ledger, judge)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if cpus is not None:
                pool = CpuPool(self.runtime, ledger, cpus.shared, self._moved)
                self._dependencies = replace(self._dependencies, cpus=pool)
                tasks.create_task(pool.run(self.settings.recheck_seconds))
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._node.run())
            tasks.create_task(FolderReclaimer(self._dependencies).run())
            tasks.create_task(self._follow_machine())
            tasks.create_task(self._recheck_pods())
            tasks.create_task(self._begin(loaded))
            tasks.create_task(self._informer.run())

    async def _load(self) -> tuple[Allocation, ...]:
        """What was promised, as far as this agent's CPU policy lets it stand."""
        loaded = await self.checkpoint.load()
        settled = tuple(settle_loaded(entry, self.settings.cpus) for entry in loaded)
        changed = [entry for entry, old in zip(settled, loaded, strict=True) if entry != old]
        for entry in changed:
            self.checkpoint.save(entry)
        await self.checkpoint.durable()
        if changed and self.settings.cpus is None:
            await self._share_all_cpus()
        return settled

    async def _share_all_cpus(self) -> None:
        """The last agent gave CPUs away; this one gives none."""
        try:
            everything = self.runtime.cpus()
            await CpuPool(self.runtime, Ledger(NOTHING), lambda: everything).settle()
        except (RuntimeCallError, StepFailedError) as failure:
            log.warning("containers are still bound to CPUs", reason=str(failure))

    async def stop_workloads(self, stop_now: asyncio.Event) -> None:
        """Stop and remove every pod on this machine; their objects stay. Not while running.
        With ``stop_now`` set the grace that is left is not given any more."""
        async with asyncio.TaskGroup() as tasks:
            for view in self.runtime.list_pods():
                tasks.create_task(self._stop_pod(view, stop_now))

    async def _stop_pod(self, view: PodView, stop_now: asyncio.Event) -> None:
        """What cannot be stopped keeps none of the others from it; the next agent finds it."""
        pod = self._object_of(view)
        grace = self._grace_seconds(pod)
        async with asyncio.TaskGroup() as tasks:
            patient = tasks.create_task(self._stop_containers(view, pod, grace))
            hasty = tasks.create_task(self._stop_now(view, stop_now))
            patient.add_done_callback(lambda _: hasty.cancel())
            hasty.add_done_callback(lambda _: patient.cancel())
        worker = self._workers.get(view.uid)
        if worker is not None and pod:
            await worker.report_stopped()
        try:
            await self.runtime.remove_pod(view.uid)
            await self.volumes.let_go(view.uid)
        except RuntimeCallError as failure:
            log.warning("pod not removed", pod=view.name, reason=str(failure))

    def deleted_pods(self) -> int:
        """How many are on this machine whose objects are gone, or are on their way; none before
        the informer has its first list."""
        if not self._informer.synced.is_set():
            return 0
        objects = [self._object_of(view) for view in self.runtime.list_pods()]
        return sum(1 for pod in objects if not pod or _is_leaving(pod))

    def _object_of(self, view: PodView) -> Object:
        """Empty: there is none any more; another of that name is not meant."""
        pod = self._informer.get(view.namespace, view.name) or {}
        return pod if pod and uid_of(pod) == view.uid else {}

    def _grace_seconds(self, pod: Object) -> float:
        """Without an object: a user deleted it by force, or the informer has no list yet."""
        if not pod:
            return 0.0 if self._informer.synced.is_set() else _DEFAULT_GRACE_SECONDS
        under_way = lookup(pod, "metadata", "deletionGracePeriodSeconds")
        given = lookup(pod, "spec", "terminationGracePeriodSeconds", default=_DEFAULT_GRACE_SECONDS)
        return float(given if under_way is None else under_way)

    async def _stop_now(self, view: PodView, stop_now: asyncio.Event) -> None:
        await stop_now.wait()
        await self._stop_containers(view, {}, 0.0)

    async def _stop_containers(self, view: PodView, pod: Object, grace_seconds: float) -> None:
        names = tuple(container.name for container in view.containers)
        for together in stop_order(names, sidecars_of(pod)):
            async with asyncio.TaskGroup() as tasks:
                for name in together:
                    tasks.create_task(self._stop_container(view.uid, pod, name, grace_seconds))

    async def _stop_container(self, uid: str, pod: Object, name: str, grace_seconds: float) -> None:
        hooks = LifecycleHooks(self._dependencies)
        try:
            left_seconds = await hooks.before_stop(pod, name, grace_seconds)
            await self.runtime.stop_container(uid, name, left_seconds)
        except RuntimeCallError as failure:
            log.warning("container not stopped", container=name, reason=str(failure))

    async def _begin(self, loaded: tuple[Allocation, ...]) -> None:
        """The first list is complete: remember what was told, admit all, then judge resizes, then
        let the workers go."""
        await self._informer.synced.wait()
        self._is_live = True
        self._remove_leftovers(loaded)
        pods = self._informer.items()
        for pod in pods:
            _guarded(self._restore_promise, pod)
        for pod in sorted(pods, key=self._order_of_admission):
            _guarded(self._add_pod, pod)
        for pod in sorted(pods, key=order_after_restart):
            _guarded(self._admission.judge.consider, pod)

    def _restore_promise(self, pod: Object) -> None:
        entry = self._admission.judge.restore_promise(pod)
        if entry is not None:
            log.warning("promise restored", pod=f"{entry.namespace}/{entry.name}")
            self.checkpoint.save(entry)

    def _remove_leftovers(self, loaded: tuple[Allocation, ...]) -> None:
        """Pods whose objects went while no agent was looking: off the machine with them."""
        present = {uid_of(pod) for pod in self._informer.items()}
        known = dict.fromkeys(self.volumes.pods(), ("", ""))
        known |= {entry.uid: (entry.namespace, entry.name) for entry in loaded}
        known |= {view.uid: (view.namespace, view.name) for view in self.runtime.list_pods()}
        for uid, (namespace, name) in sorted(known.items()):
            if uid not in present and uid not in self._workers:
                metadata = {"uid": uid, "namespace": namespace, "name": name}
                pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
                self._add_worker(pod, self._admission.ledger.get(uid)).object_gone()

    def _changed(self, delta: Delta) -> None:
        if not self._is_live:
            return  # all are looked at together once the first list is complete
        _guarded(lambda _: self._take_in(delta), delta.object)

    def _take_in(self, delta: Delta) -> None:
        pod = delta.new
        if pod is None:
            worker = self._workers.get(uid_of(delta.object))
            if worker is not None:
                worker.object_gone()
            return
        worker = self._workers.get(uid_of(pod)) or self._add_pod(pod)
        worker.seen(pod)
        if _is_leaving(pod):
            return
        if self.settings.scheduler_seconds > 0 and self._admission.judge.is_open(pod):
            self._tasks.create_task(self._consider_later(pod))
        elif self._admission.judge.consider(pod):
            worker.judged()

    async def _consider_later(self, pod: Object) -> None:
        """The scheduler's word comes as a change of the pod, and is heard like every other; this
        is for when it does not come."""
        await self.context.clock.sleep(self.settings.scheduler_seconds)
        newest = self._informer.get(namespace_of(pod), name_of(pod))
        worker = self._workers.get(uid_of(pod))
        if newest is None or worker is None or uid_of(newest) != uid_of(pod):
            return
        if not _is_leaving(newest) and self._admission.judge.consider(newest):
            worker.judged()

    def _add_pod(self, pod: Object) -> PodWorker:
        """A pod that has no worker yet: let it in, or say why not."""
        known = self._admission.ledger.get(uid_of(pod))
        worker = self._add_worker(pod, known)
        if known is None and not _is_leaving(pod) and not is_terminal(pod):
            self._admit(worker, pod)
        return worker

    def _admit(self, worker: PodWorker, pod: Object) -> None:
        already_runs = self.runtime.pod(worker.uid) is not None
        match self._admission.judge.admit(pod, already_runs=already_runs):
            case Admit():
                log.info("pod admitted", pod=f"{namespace_of(pod)}/{name_of(pod)}")
            case Reject(reason=reason) if reason != UNSUPPORTED and self._a_pod_leaves():
                # Room is on its way: a rejection would be for good.
                self._undecided[worker.uid] = pod
            case Reject() as verdict:
                worker.reject(verdict)
        worker.wake()

    def _a_pod_leaves(self) -> bool:
        return any(
            worker.is_leaving and self._admission.ledger.get(uid) is not None
            for uid, worker in self._workers.items()
        )

    def _add_worker(self, pod: Object, secured: Allocation | None) -> PodWorker:
        worker = PodWorker(self._dependencies, self._admission, pod, secured, self._room_appeared)
        self._workers[worker.uid] = worker
        self._tasks.create_task(self._run_worker(worker))
        return worker

    async def _run_worker(self, worker: PodWorker) -> None:
        await worker.run()
        self._workers.pop(worker.uid, None)

    def _room_appeared(self) -> None:
        if self._dependencies.cpus is not None:
            self._dependencies.cpus.changed()
        for uid in self._admission.judge.retry():
            self._workers[uid].judged()
        undecided, self._undecided = self._undecided, {}
        for uid, pod in undecided.items():
            worker = self._workers.get(uid)
            if worker is not None and not worker.is_leaving:
                self._admit(worker, pod)
                self._admission.judge.consider(pod)

    def _moved(self, uid: str) -> None:
        """A domain follows the group its QEMU is in."""
        worker = self._workers.get(uid)
        if worker is not None and self.vms is not None and self.vms.vm(uid) is not None:
            worker.wake()

    async def _follow_machine(self) -> None:
        async for event in self.runtime.events():
            worker = self._workers.get(event.pod_uid)
            if worker is not None:
                worker.wake()

    async def _recheck_pods(self) -> None:
        """One timer for all pods that have nothing left to do."""
        clock = self.context.clock
        while True:
            await clock.sleep(self.settings.recheck_seconds)
            turn = TurnTimer(clock)
            for worker in tuple(self._workers.values()):
                worker.recheck()
                if turn.is_over():
                    await next_turn()

    def _order_of_admission(self, pod: Object) -> tuple[bool, str, str, str]:
        """What runs already comes first, then by age."""
        created = str(lookup(pod, "metadata", "creationTimestamp", default=""))
        is_new = self.runtime.pod(uid_of(pod)) is None
        return is_new, created, namespace_of(pod), name_of(pod)


def _guarded(take_in: Callable[[Object], object], pod: Object) -> None:
    """A bug that one pod brought to light must not stop the others."""
    try:
        take_in(pod)
    except Exception:
        log.exception("a pod was not taken in", pod=name_of(pod))


def _is_leaving(pod: Object) -> bool:
    return bool(lookup(pod, "metadata", "deletionTimestamp"))
