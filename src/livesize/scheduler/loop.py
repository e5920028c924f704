"""Watches pods and nodes, and binds every pod that waits to the node that the plan names; where it
is set so, says of every resize whether its node has room for it (resizes.py).

One turn takes all pods that are to be tried. A pod for which there is no node gets the condition
PodScheduled=False and is tried again when it changes, or when something happened that could make
room: never by polling. A pod whose binding failed is assumed to be bound until it is tried again
after a growing wait, so that its place is not given away while nobody knows.

    waiting ──turn──► assumed ──binding taken──► bound (told by the watch)
       ▲   ╲             └──binding failed──┐
       │    ╲─no node─► condition           │
       └──────────room, change, wait────────┘
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

import msgspec

from livesize.api.conditions import find_condition, set_condition
from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.storage_class import STORAGE_CLASSES
from livesize.api.objects import Object, generation_of, lookup, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.reasons import ConditionType, EventReason, Reason, event_type
from livesize.api.times import format_time
from livesize.client.adapters import event_poster
from livesize.client.informer import Delta
from livesize.client.interface import Client
from livesize.controllers.kit.caches import Caches
from livesize.controllers.kit.metrics import ControllerMetrics, CountedQueue
from livesize.machinery.context import Context
from livesize.machinery.recorder import EventRecorder, ReportingComponent
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger
from livesize.scheduler.plan import AssignedNode, Placement, Unschedulable, WaitingPod, plan_turn
from livesize.scheduler.resizes import answer_resize, awaits_word
from livesize.scheduler.snapshot import DEFAULT_SCHEDULER_NAME, ClusterSnapshot, Uid
from livesize.scheduler.storage import StorageIndex

log = get_logger("scheduler")

STORED = (STORAGE_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
_WRITES_AT_ONCE = 16
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 10.0


class Scheduler:
    """``await run()`` until cancelled."""

    def __init__(
        self,
        client: Client,
        *,
        context: Context,
        scheduler_name: str = DEFAULT_SCHEDULER_NAME,
        judges_resizes: bool = False,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        self._client = client
        self._metrics = metrics or ControllerMetrics()
        self._clock = context.clock
        self._judges_resizes = judges_resizes
        self._snapshot = ClusterSnapshot(scheduler_name)
        self._caches = Caches(client, context)
        self._pods = self._caches.of(PODS)
        self._storage = StorageIndex()
        self._recorder = EventRecorder(
            event_poster(client), context=context, source=ReportingComponent(scheduler_name)
        )
        self._backoff = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, context.random)
        self._queue: CountedQueue[Uid] = CountedQueue(context, self._metrics)
        self._failures: dict[Uid, int] = {}
        self._retry_at: dict[Uid, float] = {}
        self._without_node: dict[Uid, None] = {}
        self._unread: dict[Uid, Object] = {}
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._queue.attach(group)
            self._caches.start(NODES).follow(self._observe_node)
            self._caches.start(PODS).follow(self._observe_pod)
            for resource in STORED:
                observe = functools.partial(self._observe_stored, resource)
                self._caches.start(resource).follow(observe)
            group.create_task(self._caches.run())
            group.create_task(self._recorder.run())
            group.create_task(self._take_turns())

    def _observe_node(self, delta: Delta) -> None:
        if delta.new is None:
            self._snapshot.drop_node(delta.object)
        elif self._snapshot.set_node(delta.new):
            self._try_all()

    def _observe_stored(self, resource: Resource, delta: Delta) -> None:
        """A pod that found no node may find one now, if it has claims."""
        if delta.new is None:
            self._storage.drop(resource, delta.object)
        else:
            self._storage.set(resource, delta.new)
        for uid in list(self._without_node):
            pod = self._snapshot.waiting(uid)
            if pod is not None and pod.claims:
                self._try(uid)

    def _observe_pod(self, delta: Delta) -> None:
        """What a pod that has its node uses now matters only to pods that look for one: while none
        does, the newest state is laid aside until the next turn."""
        uid = uid_of(delta.object)
        self._unread.pop(uid, None)
        node = lookup(delta.new, "spec", "nodeName", default="")
        if delta.new is not None and not self._without_node and self._snapshot.is_on(uid, node):
            self._unread[uid] = delta.new
        else:
            self._observe_now(uid, delta)
        if self._judges_resizes and delta.new is not None and awaits_word(delta.new):
            self._judge(delta.new)

    def _observe_now(self, uid: Uid, delta: Delta) -> None:
        before = self._snapshot.waiting(uid)
        if delta.new is None:
            makes_room = self._snapshot.drop_pod(delta.object)
        else:
            makes_room = self._snapshot.set_pod(delta.new)
        after = self._snapshot.waiting(uid)
        if after is None:
            self._without_node.pop(uid, None)
        elif after != before:
            self._try(uid)
        if delta.new is None:
            self._failures.pop(uid, None)
            self._retry_at.pop(uid, None)
        if makes_room:
            self._try_all()

    def _try(self, uid: Uid) -> None:
        self._without_node.pop(uid, None)
        self._queue.add(uid)

    def _try_all(self) -> None:
        for uid in list(self._without_node):
            self._try(uid)

    async def synced(self) -> None:
        """Return when the first lists were read: with half of the picture a full node would look
        empty."""
        for resource in (NODES, PODS, *STORED):
            await self._caches.of(resource).synced.wait()

    async def _take_turns(self) -> None:
        await self.synced()
        while True:
            uids = [await self._queue.get()]
            while len(self._queue):
                uids.append(await self._queue.get())
            began = self._clock.monotonic()
            await self._take_turn(uids)
            self._metrics.worked.add(self._clock.monotonic() - began)
            for uid in uids:
                self._queue.done(uid)

    def _read_all(self) -> None:
        unread, self._unread = self._unread, {}
        for newest in unread.values():
            self._snapshot.set_pod(newest)

    async def _take_turn(self, uids: Sequence[Uid]) -> None:
        self._read_all()
        for uid in uids:
            self._without_node.pop(uid, None)
            self._end_wait(uid)
        pods = [pod for uid in uids if (pod := self._snapshot.waiting(uid)) is not None]
        placements = plan_turn([self._with_demands(pod) for pod in pods], self._snapshot.nodes())
        # All of it is noted before the first wait: what arrives meanwhile meets a true picture.
        for placement in placements:
            match placement.verdict:
                case AssignedNode(node=node, volumes=volumes):
                    self._snapshot.assume(placement.pod, node)
                    for claim, volume in volumes:
                        self._storage.reserve(claim, volume)
                case Unschedulable():
                    self._without_node[placement.pod.uid] = None
        async with asyncio.TaskGroup() as group:
            for placement in placements:
                group.create_task(self._apply(placement))

    def _with_demands(self, pod: WaitingPod) -> WaitingPod:
        if not pod.claims:
            return pod
        users = self._snapshot.users_of_claims()
        demands = self._storage.demands(pod.namespace, pod.claims, users)
        return msgspec.structs.replace(pod, demands=demands)

    async def _apply(self, placement: Placement) -> None:
        pod = placement.pod
        async with self._writes:
            try:
                match placement.verdict:
                    case AssignedNode(node=node):
                        await self._bind_or_say(pod, node)
                    case Unschedulable():
                        await self._report(pod, placement.verdict.sentence())
            except (StatusError, ConnectionError) as failure:
                self._metrics.results["error"] += 1
                self._try_later(pod, str(failure))
            else:
                self._metrics.results["done"] += 1
                self._failures.pop(pod.uid, None)

    async def _bind_or_say(self, pod: WaitingPod, node: str) -> None:
        """A binding that is forbidden does not become allowed by itself: the pod says why."""
        try:
            await self._bind(pod, node)
        except StatusError as refusal:
            if refusal.code == 403:
                await self._report(pod, refusal.message)
            raise

    async def _bind(self, pod: WaitingPod, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._client.post(PODS, pod.name, pod.namespace, "binding", binding)
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._record(pod, EventReason.SCHEDULED, message)
        log.info("pod bound", pod=f"{pod.namespace}/{pod.name}", node=node)

    def _judge(self, pod: Object) -> None:
        """One resize at a time, in order of arrival: the verdict stands before the next change is
        looked at. While the first lists are read the picture is not whole, and the node judges."""
        listed = all(self._caches.of(one).synced.is_set() for one in (NODES, PODS))
        if self._group is None or not listed:
            return
        self._read_all()
        room = self._snapshot.room_for(pod)
        if room is not None:
            self._group.create_task(self._answer(pod, answer_resize(pod, *room)))

    async def _answer(self, pod: Object, body: Object) -> None:
        try:
            await self._client.post(PODS, name_of(pod), namespace_of(pod), "resizing", body)
        except (StatusError, ConnectionError) as failure:
            # The node has judged it already, or somebody has asked for something else.
            log.info("resize not judged", pod=name_of(pod), reason=str(failure))

    async def _report(self, pod: WaitingPod, sentence: str) -> None:
        """Say in the pod's status why there is no node for it, unless it says so already."""
        current = self._current(pod)
        if current is None:
            return
        condition = {
            "type": ConditionType.POD_SCHEDULED.value,
            "status": "False",
            "reason": Reason.UNSCHEDULABLE.value,
            "message": sentence,
            "observedGeneration": generation_of(current),
        }
        old = find_condition(current, ConditionType.POD_SCHEDULED)
        if old is not None and condition.items() <= old.items():
            return
        now = format_time(self._clock.now())
        conditions = set_condition([old] if old else [], condition, now)
        # With the uid, so that a new pod of the same name is not meant by mistake.
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}}
        await self._client.patch(
            PODS,
            pod.name,
            patch,
            namespace=pod.namespace,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
        )
        self._record(pod, EventReason.FAILED_SCHEDULING, sentence)

    def _try_later(self, pod: WaitingPod, why: str) -> None:
        failures = self._failures.get(pod.uid, 0) + 1
        self._failures[pod.uid] = failures
        seconds = self._backoff.seconds(failures)
        named = f"{pod.namespace}/{pod.name}"
        log.warning("trying again later", pod=named, failures=failures, reason=why)
        self._metrics.retries += 1
        self._retry_at[pod.uid] = self._clock.monotonic() + seconds
        self._queue.add_after(pod.uid, seconds)

    def _end_wait(self, uid: Uid) -> None:
        """A pod whose wait is over is not assumed to be bound any more. An event may bring a pod
        before that."""
        due = self._retry_at.get(uid)
        if due is None:
            return
        left = due - self._clock.monotonic()
        if left > 0:
            self._queue.add_after(uid, left)
            return
        del self._retry_at[uid]
        if self._snapshot.forget_assumed(uid):
            self._try_all()
        if self._snapshot.waiting(uid) is None:
            self._failures.pop(uid, None)

    def _record(self, pod: WaitingPod, reason: EventReason, message: str) -> None:
        current = self._current(pod)
        if current is not None:
            about = {"kind": "Pod", "apiVersion": "v1", "metadata": current["metadata"]}
            self._recorder.record(about, event_type(reason), reason.value, message)

    def _current(self, pod: WaitingPod) -> Object | None:
        """The pod as last seen, if it is still the same one."""
        current = self._pods.get(pod.name, pod.namespace)
        return current if current is not None and uid_of(current) == pod.uid else None
