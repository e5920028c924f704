"""Watches stateful sets, their pods, claims and revisions, and does what the plan says.

The status is written even where a step was refused: it says what the caches show then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from livesize.api.errors import StatusError
from livesize.api.kinds.controller_revision import CONTROLLER_REVISIONS
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, ObjectKey, evolve, lookup, name_of, namespace_of, uid_of
from livesize.api.reasons import EventReason
from livesize.api.workloads import selects
from livesize.client.informer import Delta
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.owned_pods import is_leaving, next_available_seconds
from livesize.controllers.kit.ownership import Claim, member_keys
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Again, Done, Result
from livesize.controllers.kit.watches import Watch, controller_of, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.controllers.statefulset.members import is_member, revision_of
from livesize.controllers.statefulset.plan import (
    CreateClaim,
    CreatePod,
    DeletePod,
    LabelPod,
    OwnClaim,
    Revision,
    SetStep,
    SetView,
    claims_needed,
    plan_stateful_set,
    plan_status,
)
from livesize.controllers.statefulset.revisions import (
    KeepRevision,
    NewRevision,
    RaiseRevision,
    make_revision,
    outdated,
    plan_revision,
    stored_template,
)
from livesize.machinery.clock import Clock
from livesize.machinery.context import Context
from livesize.machinery.queue import LaterError

WORKERS = 5
_TAKEN = "AlreadyExists"


def stateful_set_controller(context: Context) -> Controller[ObjectKey]:
    async def reconcile(key: ObjectKey, read: Reader, write: ApiWriter) -> Result:
        return await _reconcile(key, read, write, context.clock)

    return Controller(
        name="statefulset",
        component="statefulset-controller",
        watches=(
            Watch(STATEFUL_SETS, own_key),
            Watch(PODS, member_keys(STATEFUL_SETS, is_member), once_there_is=STATEFUL_SETS),
            Watch(
                CONTROLLER_REVISIONS,
                member_keys(STATEFUL_SETS, selects),
                once_there_is=STATEFUL_SETS,
            ),
            Watch(PERSISTENT_VOLUME_CLAIMS, _sets_of_claim, once_there_is=STATEFUL_SETS),
        ),
        reconcile=reconcile,
        workers=WORKERS,
    )


def _sets_of_claim(delta: Delta, read: Reader) -> Iterator[ObjectKey]:
    """Where a claim goes, or changes its owners, a pod may wait for that."""
    if delta.new is not None and (delta.old is None or _owners(delta.old) == _owners(delta.new)):
        return
    namespace, claim = namespace_of(delta.object), name_of(delta.object)
    for stateful_set in read.list(STATEFUL_SETS, namespace):
        templates = lookup(stateful_set, "spec", "volumeClaimTemplates", default=())
        name = name_of(stateful_set)
        if any(claim.startswith(f"{name_of(one)}-{name}-") for one in templates):
            yield namespace, name


async def _reconcile(key: ObjectKey, read: Reader, write: ApiWriter, clock: Clock) -> Result:
    namespace, name = key
    stateful_set = read.get(STATEFUL_SETS, name, namespace)
    if stateful_set is None:
        return Done()
    pods = await Claim(STATEFUL_SETS, stateful_set, PODS, is_member).take(read, write)
    revisions = Claim(STATEFUL_SETS, stateful_set, CONTROLLER_REVISIONS, selects)
    history = await revisions.take(read, write)
    view = await _observe(stateful_set, pods, history, read, write)
    steps = plan_stateful_set(view, clock.now())
    try:
        await _apply_all(steps, stateful_set, write)
    except (StatusError, LaterError):
        await _report(view, (), write, clock.now())
        raise
    await _report(view, steps, write, clock.now())
    await _truncate(view, history, write)
    least = lookup(stateful_set, "spec", "minReadySeconds", default=0)
    seconds = next_available_seconds(view.pods, least, clock.now())
    return Done() if seconds is None else Again(seconds)


# Observe


async def _observe(
    stateful_set: Object,
    pods: Iterable[Object],
    history: list[Object],
    read: Reader,
    write: ApiWriter,
) -> SetView:
    pods = tuple(pods)
    namespace, status = namespace_of(stateful_set), stateful_set.get("status") or {}
    current, collisions = status.get("currentRevision", ""), status.get("collisionCount", 0)
    if is_leaving(stateful_set):
        last = Revision(status.get("updateRevision", ""), {})
        return SetView(stateful_set, pods, {}, Revision(current, {}), last, collisions)
    update, collisions = await _newest(stateful_set, history, collisions, read, write)
    before = next((one for one in history if name_of(one) == current), update)
    claims = (
        read.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        for name in claims_needed(stateful_set, pods)
    )
    return SetView(
        stateful_set,
        pods,
        {name_of(claim): claim for claim in claims if claim is not None},
        Revision(name_of(before), stored_template(before)),
        Revision(name_of(update), stored_template(update)),
        collisions,
    )


async def _newest(
    stateful_set: Object, history: list[Object], collisions: int, read: Reader, write: ApiWriter
) -> tuple[Object, int]:
    """The revision of the set's template, written if it has to be, and the collisions so far."""
    match plan_revision(stateful_set, history):
        case KeepRevision(revision):
            return revision, collisions
        case RaiseRevision(revision, number):
            raised = {"revision": number}
            return await write.patch(CONTROLLER_REVISIONS, revision, raised), collisions
        case NewRevision(number):
            return await _create_revision(stateful_set, number, collisions, read, write)


async def _create_revision(
    stateful_set: Object, number: int, collisions: int, read: Reader, write: ApiWriter
) -> tuple[Object, int]:
    """A name that is taken by another revision is a collision, and gives another name."""
    while True:
        revision = make_revision(stateful_set, number, collisions)
        try:
            return await write.create(CONTROLLER_REVISIONS, revision), collisions
        except StatusError as refusal:
            if refusal.reason != _TAKEN:
                raise
        name, namespace = name_of(revision), namespace_of(revision)
        other = await read.newest(CONTROLLER_REVISIONS, name, namespace) or {}
        owner = controller_of(other) or {}
        if owner.get("uid") == uid_of(stateful_set) and other["data"] == revision["data"]:
            return other, collisions
        collisions += 1


# Apply


async def _apply_all(steps: Iterable[SetStep], stateful_set: Object, write: ApiWriter) -> None:
    for step in steps:
        await _apply(step, stateful_set, write)


async def _apply(step: SetStep, stateful_set: Object, write: ApiWriter) -> None:
    match step:
        case CreateClaim(claim, pod):
            named = f"Claim {name_of(claim)}"
            words = (f"{named} Pod {pod}", "success", f"{named} for Pod {pod}")
            await _create(PERSISTENT_VOLUME_CLAIMS, claim, words, stateful_set, write)
        case CreatePod(pod):
            named = f"Pod {name_of(pod)}"
            await _create(PODS, pod, (named, "successful", named), stateful_set, write)
        case OwnClaim(claim):
            owners = {"ownerReferences": claim["metadata"]["ownerReferences"]}
            await write.patch(PERSISTENT_VOLUME_CLAIMS, claim, {"metadata": owners})
        case LabelPod(pod):
            labels = {"labels": pod["metadata"]["labels"]}
            await write.patch(PODS, pod, {"metadata": labels})
        case DeletePod(pod, ended):
            await _delete(pod, ended, stateful_set, write)


async def _create(
    resource: Resource,
    obj: Object,
    words: tuple[str, str, str],
    stateful_set: Object,
    write: ApiWriter,
) -> None:
    """``words``: of the event, as Kubernetes has them. A name that is taken is not told: the object
    is on its way to the caches, or another's."""
    made, done, refused = words
    place = f"in StatefulSet {name_of(stateful_set)}"
    try:
        await write.create(resource, obj)
    except StatusError as refusal:
        if refusal.reason == _TAKEN:
            raise LaterError(refusal.message) from refusal
        said = f"create {refused} {place} failed error: {refusal.message}"
        write.event(STATEFUL_SETS, stateful_set, EventReason.FAILED_CREATE, said)
        raise
    said = f"create {made} {place} {done}"
    write.event(STATEFUL_SETS, stateful_set, EventReason.SUCCESSFUL_CREATE, said)


async def _delete(pod: Object, ended: bool, stateful_set: Object, write: ApiWriter) -> None:
    name, pod_name = name_of(stateful_set), name_of(pod)
    if ended:
        place = f"{namespace_of(stateful_set)}/{name}"
        said = f"StatefulSet {place} is recreating failed Pod {pod_name}"
        write.event(STATEFUL_SETS, stateful_set, EventReason.RECREATING_FAILED_POD, said)
    await write.delete(PODS, pod)
    said = f"delete Pod {pod_name} in StatefulSet {name} successful"
    write.event(STATEFUL_SETS, stateful_set, EventReason.SUCCESSFUL_DELETE, said)


# Report


async def _report(view: SetView, done: Iterable[SetStep], write: ApiWriter, now: float) -> None:
    deleted = {uid_of(step.pod) for step in done if isinstance(step, DeletePod)}
    status = plan_status(view, deleted, now)
    if status is not None:
        counted = evolve(view.stateful_set, ("status",), status)
        await write.update(STATEFUL_SETS, counted, subresource="status")


async def _truncate(view: SetView, history: list[Object], write: ApiWriter) -> None:
    if is_leaving(view.stateful_set):
        return
    used = [view.current.name, view.update.name, *map(revision_of, view.pods)]
    limit = lookup(view.stateful_set, "spec", "revisionHistoryLimit", default=10)
    for revision in outdated(history, used, limit):
        await write.delete(CONTROLLER_REVISIONS, revision)


def _owners(claim: Object) -> tuple[object, object]:
    metadata = claim["metadata"]
    return metadata.get("ownerReferences"), metadata.get("deletionTimestamp")
