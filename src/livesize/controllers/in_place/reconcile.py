"""Carries out what the plan says for StatefulSets and Deployments whose pods are resized in place.

Reads and writes only what any Kubernetes API server serves, so that it runs on other people's
clusters too. It makes no choice: an action is one request. A refusal that is an answer is
remembered (livesize.controllers.in_place.view), and the workload is planned anew; every other one
ends the reconcile, and the rest of the plan is planned again from what the objects say then.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.controller_revision import CONTROLLER_REVISIONS
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, generation_of, lookup, name_of, namespace_of, uid_of
from livesize.api.patch import PatchType
from livesize.api.reasons import EventReason
from livesize.api.workload_resize import RESIZE_STATUS
from livesize.client.informer import Delta
from livesize.controllers.in_place.actions import (
    AdjustPod,
    DeleteReplicaSet,
    EvictPod,
    ReportStatus,
    ResizePod,
    SetReplicaSetTemplate,
    WorkloadAction,
    WorkloadPlan,
    WriteWorkload,
)
from livesize.controllers.in_place.plan import is_concerned, plan_workload
from livesize.controllers.in_place.view import (
    Answers,
    PatchRefusal,
    RefusalKind,
    WorkloadView,
    revision_of,
    revision_template,
)
from livesize.controllers.kit.caches import BY_OWNER, Index
from livesize.controllers.kit.loop import CONFLICT_SECONDS, Controller
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch, controller_of
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.telemetry import get_logger

_FORBIDDEN, _INVALID = 403, 422
_NODE_CAPACITY = re.compile(r"node\S*\s*capacity|capacity of the node", re.IGNORECASE)
_WORKLOADS = {one.kind: one for one in (STATEFUL_SETS, DEPLOYMENTS)}
_WORKERS = 4
AT_ONCE = 16
"""So many pods are patched at the same time."""
BUDGET_SECONDS = 5.0
"""So often an eviction is tried again that a disruption budget does not allow."""

WorkloadKey: TypeAlias = tuple[str, str, str]
"""Kind, namespace, name."""

T = TypeVar("T")

log = get_logger("controllers.in_place")

_CONCERNED = Index(
    "resized in place", lambda obj: (namespace_of(obj),) if is_concerned(obj) else ()
)


def in_place_controller(context: Context) -> Controller[WorkloadKey]:
    resizer = WorkloadResizer(context.clock)
    return Controller(
        name="in-place",
        component="resize-controller",
        watches=(
            *(Watch(resource, _own_keys(resource)) for resource in _WORKLOADS.values()),
            Watch(REPLICA_SETS, _workload_keys, once_there_is=DEPLOYMENTS),
            Watch(CONTROLLER_REVISIONS, _workload_keys, once_there_is=STATEFUL_SETS),
            Watch(PODS, _workload_keys),
            Watch(DISRUPTION_BUDGETS, _namespace_keys),
        ),
        reconcile=resizer.reconcile,
        workers=_WORKERS,
    )


# Which workloads a change concerns


def _own_keys(resource: Resource) -> Callable[[Delta, Reader], Iterator[WorkloadKey]]:
    def keys(delta: Delta, _read: Reader) -> Iterator[WorkloadKey]:
        states = [one for one in (delta.old, delta.new) if one is not None]
        if any(map(is_concerned, states)):
            yield _key(resource, delta.object)

    return keys


def _workload_keys(delta: Delta, read: Reader) -> Iterator[WorkloadKey]:
    """Of a pod, a ReplicaSet or a ControllerRevision: the workload at the top, if it is resized."""
    for state in (delta.old, delta.new):
        owner = _owner(state, read)
        if owner is not None and owner[0] is REPLICA_SETS:
            owner = _owner(owner[1], read)
        if owner is not None and owner[0].kind in _WORKLOADS and is_concerned(owner[1]):
            yield _key(*owner)


def _namespace_keys(delta: Delta, read: Reader) -> Iterator[WorkloadKey]:
    for resource in _WORKLOADS.values():
        for workload in read.select(resource, _CONCERNED, namespace_of(delta.object)):
            yield _key(resource, workload)


def _owner(obj: Object | None, read: Reader) -> tuple[Resource, Object] | None:
    """What controls it, as far as it is of a kind that counts here."""
    reference = controller_of(obj)
    if obj is None or reference is None:
        return None
    for resource in (STATEFUL_SETS, REPLICA_SETS, DEPLOYMENTS):
        if (reference.get("kind"), reference.get("apiVersion")) == (
            resource.kind,
            resource.api_version,
        ):
            owner = read.get(resource, str(reference.get("name")), namespace_of(obj))
            if owner is not None and uid_of(owner) == reference.get("uid"):
                return resource, owner
    return None


def _key(resource: Resource, workload: Object) -> WorkloadKey:
    return resource.kind, namespace_of(workload), name_of(workload)


class WorkloadResizer:
    """Remembers what was answered, for as long as a workload is being resized."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: dict[WorkloadKey, dict[str, PatchRefusal]] = {}
        self._silences: dict[WorkloadKey, dict[str, tuple[int, float]]] = {}

    async def reconcile(self, key: WorkloadKey, read: Reader, write: ApiWriter) -> Result:
        kind, namespace, name = key
        workload = read.get(_WORKLOADS[kind], name, namespace)
        if workload is None or not is_concerned(workload):
            self._refusals.pop(key, None)
            self._silences.pop(key, None)
            return Done()
        view = await _observe(workload, self._answers(key), read)
        plan = plan_workload(view, self._clock.now())
        self._note_silences(key, view, plan)
        carrier = _Carrier(_WORKLOADS[kind], workload, write)
        for group in _groups(plan.actions):
            answers = await _together([carrier.carry_out(actions) for actions in group])
            for answer in answers:
                if isinstance(answer, _Refused):
                    self._remember(key, answer)
            later = [one.after_seconds for one in answers if isinstance(one, Again)]
            if any(answer is not None for answer in answers):
                return Again(min(later, default=CONFLICT_SECONDS))
        return Done() if plan.wait_seconds is None else Again(plan.wait_seconds)

    def _answers(self, key: WorkloadKey) -> Answers:
        return Answers(self._refusals.get(key, {}), self._silences.get(key, {}))

    def _note_silences(self, key: WorkloadKey, view: WorkloadView, plan: WorkloadPlan) -> None:
        """Since when: of this request of the pod."""
        before, now = self._silences.get(key, {}), self._clock.now()
        generations = {uid_of(pod): generation_of(pod) for pod in view.pods} if plan.silent else {}
        self._silences[key] = {
            uid: before[uid]
            if uid in before and before[uid][0] == generations[uid]
            else (generations[uid], now)
            for uid in plan.silent
        }

    def _remember(self, key: WorkloadKey, answer: _Refused) -> None:
        now, uid = self._clock.now(), uid_of(answer.pod)
        known = self._refusals.setdefault(key, {})
        before = known.get(uid)
        since = before.since if before is not None and before.patch == answer.patch else now
        known[uid] = PatchRefusal(answer.patch, answer.kind, answer.message, since, now)


async def _observe(workload: Object, answers: Answers, read: Reader) -> WorkloadView:
    namespace = namespace_of(workload)
    budgets = tuple(read.list(DISRUPTION_BUDGETS, namespace))
    if workload["kind"] == DEPLOYMENTS.kind:
        sets = _controlled(REPLICA_SETS, workload, read)
        pods = tuple(pod for one in sets for pod in _controlled(PODS, one, read))
        return WorkloadView(workload, pods, {}, sets, budgets, answers)
    pods = _controlled(PODS, workload, read)
    revisions = {
        name_of(one): revision_template(one)
        for one in _controlled(CONTROLLER_REVISIONS, workload, read)
    }
    for name in sorted({revision_of(pod) for pod in pods} - revisions.keys() - {""}):
        found = await read.newest(CONTROLLER_REVISIONS, name, namespace)
        if found is not None:  # the cache is behind
            revisions[name] = revision_template(found)
    return WorkloadView(workload, pods, revisions, (), budgets, answers)


def _controlled(resource: Resource, owner: Object, read: Reader) -> tuple[Object, ...]:
    uid = uid_of(owner)
    return tuple(
        one
        for one in read.select(resource, BY_OWNER, uid)
        if (controller_of(one) or {}).get("uid") == uid
    )


def _groups(actions: Sequence[WorkloadAction]) -> Iterator[list[list[WorkloadAction]]]:
    """What is done one after the other; in each, what is done at the same time: different pods."""
    by_pod: dict[str, list[WorkloadAction]] = {}
    others: list[WorkloadAction] = []
    for action in actions:  # those of pods come first
        match action:
            case AdjustPod(pod=pod) | ResizePod(pod=pod):
                by_pod.setdefault(uid_of(pod), []).append(action)
            case _:
                others.append(action)
    pods = list(by_pod.values())
    yield from (pods[start : start + AT_ONCE] for start in range(0, len(pods), AT_ONCE))
    yield from ([[action]] for action in others)


async def _together(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it is done before the first failure is raised."""

    async def caught(one: Coroutine[Any, Any, T]) -> T | StatusError | ConnectionError:
        try:
            return await one
        except (StatusError, ConnectionError) as failure:
            return failure

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(caught(one)) for one in work]
    answers: list[T] = []
    for task in tasks:
        answer = task.result()
        if isinstance(answer, StatusError | ConnectionError):
            raise answer
        answers.append(answer)
    return answers


class _Refused(msgspec.Struct, frozen=True):
    pod: Object
    patch: Object
    kind: RefusalKind
    message: str


class _Carrier:
    """Carries actions out, for one workload."""

    def __init__(self, resource: Resource, workload: Object, write: ApiWriter) -> None:
        self._resource = resource
        self._workload = workload
        self._write = write

    async def carry_out(self, actions: Sequence[WorkloadAction]) -> _Refused | Again | None:
        """One after the other; None: they are done."""
        for action in actions:
            answer = await self._carry_out(action)
            if answer is not None:
                return answer
        return None

    async def _carry_out(self, action: WorkloadAction) -> _Refused | Again | None:
        match action:
            case AdjustPod(pod=pod, patch=patch):
                return await self._patch(pod, patch)
            case ResizePod(pod=pod, patch=patch):
                return await self._patch(pod, patch, "resize")
            case EvictPod(pod=pod, message=message):
                return await self._evict(pod, message)
            case SetReplicaSetTemplate(replica_set=changed):
                await self._write.update(REPLICA_SETS, changed)
            case DeleteReplicaSet(replica_set=obsolete):
                await self._write.delete(REPLICA_SETS, obsolete, propagation="Background")
            case WriteWorkload(workload=changed, event=event, message=message):
                await self._write.update(self._resource, changed)
                self._tell(event, message)
            case ReportStatus(status=status, event=event, message=message):
                noted = {"metadata": {"annotations": {RESIZE_STATUS: status}}}
                await self._write.patch(self._resource, self._workload, noted, any_version=True)
                self._tell(event, message)
        return None

    async def _patch(self, pod: Object, patch: Object, subresource: str = "") -> _Refused | None:
        try:
            await self._write.patch(
                PODS,
                pod,
                patch,
                patch_type=PatchType.STRATEGIC,
                subresource=subresource,
                any_version=True,
            )
        except StatusError as refusal:
            counts = lookup(patch, "metadata", "labels") is not None
            if counts or refusal.code not in (_FORBIDDEN, _INVALID):
                raise
            kind = _kind_of(refusal, subresource)
            log.warning("refused", pod=name_of(pod), reason=kind.value, message=refusal.message)
            return _Refused(pod, patch, kind, refusal.message)
        return None

    async def _evict(self, pod: Object, message: str) -> Again | None:
        if not await self._write.evict(pod):
            return Again(BUDGET_SECONDS)
        self._write.event(PODS, pod, EventReason.RESIZE_EVICTED, message)
        return None

    def _tell(self, event: EventReason | None, message: str) -> None:
        if event is not None:
            log.info(event.value, workload=name_of(self._workload), message=message)
            self._write.event(self._resource, self._workload, event, message)


def _kind_of(refusal: StatusError, subresource: str) -> RefusalKind:
    """What the pod itself is refused is refused for good: policies are fixed on other servers."""
    if refusal.code == _INVALID or not subresource:
        return RefusalKind.INVALID
    causes = {cause.reason for cause in refusal.causes}
    if "NodeCapacity" in causes or _NODE_CAPACITY.search(refusal.message):
        return RefusalKind.CAPACITY
    return RefusalKind.FORBIDDEN
