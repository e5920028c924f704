"""Makes and deletes pods of ReplicaSets until there are as many as they say.

A reconcile claims pods, makes or deletes what is missing or too much, and writes the status. The
kit lets the key come again when the caches show what was written: pods are never made twice.
"""

from __future__ import annotations

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.objects import Object, ObjectKey, evolve, name_of, namespace_of
from livesize.api.reasons import EventReason
from livesize.api.workloads import selects, template_of
from livesize.controllers.kit.batches import at_once, slow_start
from livesize.controllers.kit.caches import BY_OWNER
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.owned_pods import make_pod
from livesize.controllers.kit.ownership import (
    Claim,
    is_namespace_ending,
    member_keys,
    owned_by,
)
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch, controller_of, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.replicaset.plan import (
    PodChanges,
    PodFailure,
    plan_pods,
    plan_status,
    plan_wait,
)
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context

WORKERS = 5
_GONE = 404


def replicaset_controller(context: Context) -> Controller[ObjectKey]:
    async def reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
        return await _reconcile(key, read, write, context.clock)

    return Controller(
        name="replicaset",
        component="replicaset-controller",
        watches=(
            Watch(REPLICA_SETS, own_key),
            Watch(PODS, member_keys(REPLICA_SETS, selects), once_there_is=REPLICA_SETS),
        ),
        reconcile=reconcile,
        workers=WORKERS,
    )


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter, clock: Clock) -> Result:
    namespace, name = key
    replica_set = read.get(REPLICA_SETS, name, namespace)
    if replica_set is None:
        return Done()
    pods = await Claim(REPLICA_SETS, replica_set, PODS, selects).take(read, write)
    changes = plan_pods(replica_set, pods, _related(replica_set, read), clock.now())
    failed: StatusError | None = None
    try:
        await _apply(replica_set, changes, write)
    except StatusError as refusal:
        failed = None if is_namespace_ending(refusal) else refusal
    reason = EventReason.FAILED_CREATE if changes.create else EventReason.FAILED_DELETE
    failure = None if failed is None else PodFailure(reason.value, failed.message)
    status = plan_status(replica_set, pods, failure, clock.now())
    if status is not None:
        counted = evolve(replica_set, ("status",), status)
        await write.update(REPLICA_SETS, counted, subresource="status")
    if failed is not None:
        raise failed
    wait = plan_wait(replica_set, pods, clock.now())
    return Done() if wait is None else Again(wait)


def _related(replica_set: Object, read: Reader) -> list[Object]:
    """Pods of all ReplicaSets that have the same controller, its own included."""
    reference = controller_of(replica_set)
    siblings = (
        [replica_set]
        if reference is None
        else read.select(REPLICA_SETS, BY_OWNER, str(reference.get("uid")))
    )
    return [pod for sibling in siblings for pod in owned_by(sibling, PODS, read)]


async def _apply(replica_set: Object, changes: PodChanges, write: ApiWriter) -> None:
    async def create(pod: Object) -> None:
        try:
            made = await write.create(PODS, pod, namespace_of(replica_set))
        except StatusError as refusal:
            if not is_namespace_ending(refusal):
                _tell(replica_set, EventReason.FAILED_CREATE, refusal.message, write)
            raise
        _tell(replica_set, EventReason.SUCCESSFUL_CREATE, name_of(made), write)

    async def delete(pod: Object) -> None:
        try:
            await write.delete(PODS, pod)
        except StatusError as refusal:
            if refusal.code == _GONE:
                return
            _tell(replica_set, EventReason.FAILED_DELETE, refusal.message, write)
            raise
        _tell(replica_set, EventReason.SUCCESSFUL_DELETE, name_of(pod), write)

    if changes.create:
        pod = make_pod(REPLICA_SETS, replica_set, template_of(replica_set))
        await slow_start([pod] * changes.create, create)
    await at_once(changes.delete, delete)


_SENTENCES = {
    EventReason.SUCCESSFUL_CREATE: "Created pod: ",
    EventReason.FAILED_CREATE: "Error creating: ",
    EventReason.SUCCESSFUL_DELETE: "Deleted pod: ",
    EventReason.FAILED_DELETE: "Error deleting: ",
}


def _tell(replica_set: Object, reason: EventReason, what: str, write: ApiWriter) -> None:
    write.event(REPLICA_SETS, replica_set, reason, _SENTENCES[reason] + what)
