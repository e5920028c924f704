"""Rolls Deployments out: writes what the plan says to their ReplicaSets, and its status.

The pods themselves are the ReplicaSets' business: a Deployment is reconciled when it or a
ReplicaSet of it changes, never for a pod alone.
"""

from __future__ import annotations

from livesize.api.errors import StatusError
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.replica_set import REPLICA_SETS
from livesize.api.objects import Object, ObjectKey, evolve, name_of, namespace_of, uid_of
from livesize.api.reasons import EventReason
from livesize.api.workloads import replicas_of, selects, template_of
from livesize.controllers.deployment.plan import DeploymentPlan, plan_deployment
from livesize.controllers.deployment.replica_sets import REVISION, has_template
from livesize.controllers.deployment.status import collided_status, failed_status
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.ownership import Claim, is_namespace_ending, member_keys
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch, controller_of, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context

WORKERS = 5


def deployment_controller(context: Context) -> Controller[ObjectKey]:
    async def reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
        return await _reconcile(key, read, write, context.clock)

    return Controller(
        name="deployment",
        component="deployment-controller",
        watches=(
            Watch(DEPLOYMENTS, own_key),
            Watch(REPLICA_SETS, member_keys(DEPLOYMENTS, selects), once_there_is=DEPLOYMENTS),
        ),
        reconcile=reconcile,
        workers=WORKERS,
    )


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter, clock: Clock) -> Result:
    namespace, name = key
    deployment = read.get(DEPLOYMENTS, name, namespace)
    if deployment is None:
        return Done()
    owned = await Claim(DEPLOYMENTS, deployment, REPLICA_SETS, selects).take(read, write)
    plan = plan_deployment(deployment, owned, clock.now())
    if plan.create is not None:
        try:
            await _create(deployment, plan.create, write)
        except StatusError as refusal:
            if is_namespace_ending(refusal):
                return Done()
            await _report_refusal(deployment, plan.create, refusal, read, write, clock.now())
            raise
    await _apply(deployment, plan, write)
    return Done() if plan.wait_seconds is None else Again(plan.wait_seconds)


async def _apply(deployment: Object, plan: DeploymentPlan, write: ApiWriter) -> None:
    for change in plan.change:
        await write.update(REPLICA_SETS, change.after)
        before, after = replicas_of(change.before), replicas_of(change.after)
        if before != after:
            _tell_scaled(deployment, name_of(change.after), before, after, write)
    for replica_set in plan.delete:
        await write.delete(REPLICA_SETS, replica_set)
    if plan.revision is not None:
        patch = {"metadata": {"annotations": {REVISION: plan.revision}}}
        deployment = await write.patch(DEPLOYMENTS, deployment, patch)
    if plan.status is not None:
        await _write_status(deployment, plan.status, write)


async def _create(deployment: Object, replica_set: Object, write: ApiWriter) -> None:
    await write.create(REPLICA_SETS, replica_set)
    replicas = replicas_of(replica_set)
    if replicas:
        _tell_scaled(deployment, name_of(replica_set), 0, replicas, write)


async def _report_refusal(
    deployment: Object,
    wanted: Object,
    refusal: StatusError,
    read: Reader,
    write: ApiWriter,
    now: float,
) -> None:
    """A name that is taken is told from a ReplicaSet that the cache does not show yet."""
    if refusal.reason != "AlreadyExists":
        message = f'Failed to create new replica set "{name_of(wanted)}": {refusal.message}'
        await _write_status(deployment, failed_status(deployment, message, now), write)
        write.event(DEPLOYMENTS, deployment, EventReason.REPLICA_SET_CREATE_ERROR, message)
        return
    found = await read.newest(REPLICA_SETS, name_of(wanted), namespace_of(wanted))
    is_own = (controller_of(found) or {}).get("uid") == uid_of(deployment)
    if found is None or (is_own and has_template(found, template_of(wanted))):
        return
    await _write_status(deployment, collided_status(deployment), write)


async def _write_status(deployment: Object, status: Object, write: ApiWriter) -> None:
    if status != deployment.get("status"):
        reported = evolve(deployment, ("status",), status)
        await write.update(DEPLOYMENTS, reported, subresource="status")


def _tell_scaled(
    deployment: Object, replica_set: str, before: int, after: int, write: ApiWriter
) -> None:
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {replica_set} from {before} to {after}"
    write.event(DEPLOYMENTS, deployment, EventReason.SCALING_REPLICA_SET, message)
