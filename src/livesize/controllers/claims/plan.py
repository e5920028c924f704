"""Decides what is written next for a claim, or for a volume. Pure.

    claim     unbound ─► its volume is kept for it ─► it names the volume ─► Bound
    volume    Available ─► Bound ─► Released ─► (Delete) marked ─► its node removes the folder

Every prefix of a plan is safe, and the rest is planned anew from what is stored: a volume says
whose it is before the claim names it, so it is never given twice; a volume that is made is kept for
its claim from the start, under a name made of the claim's uid, so that none is made twice. A plan
writes each object at most once, in the version that was read.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, evolve, lookup, name_of, uid_of, without
from livesize.api.reasons import EventReason
from livesize.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
    ClaimPhase,
    ReclaimPolicy,
    VolumePhase,
    capacity,
    claim_key,
    class_of,
    is_bound_to,
    is_going,
    is_local_class,
    is_ours,
    is_set_aside_for,
    requested,
    volume_name,
    waits_for_consumer,
)
from livesize.api.volume_choice import NodeFacts, choose_volume, misfit
from livesize.controllers.claims.provision import (
    ConsumerNode,
    build_volume,
    cannot_provision,
    claim_reference,
)


class ClaimView(msgspec.Struct, frozen=True):
    """A claim and all that its fate depends on. ``consumer_node``: where the first pod that uses it
    is; ``in_use``: a pod that has its node names it."""

    claim: Object
    volumes: tuple[Object, ...] = ()
    storage_class: Object | None = None
    consumer_node: ConsumerNode | None = None
    in_use: bool = False


class UpdateObject(msgspec.Struct, frozen=True, tag=True):
    """``obj`` as it shall be; refused where it has changed since it was read."""

    resource: Resource
    obj: Object
    subresource: str = ""


class CreateObject(msgspec.Struct, frozen=True, tag=True):
    """Harmless where it is there already."""

    resource: Resource
    obj: Object


class DeleteObject(msgspec.Struct, frozen=True, tag=True):
    resource: Resource
    obj: Object


class TellEvent(msgspec.Struct, frozen=True, tag=True):
    """An event about the claim or volume the plan is for."""

    reason: EventReason
    message: str


ClaimStep: TypeAlias = UpdateObject | CreateObject | DeleteObject | TellEvent
ClaimSteps: TypeAlias = tuple[ClaimStep, ...]


def plan_claim(view: ClaimView) -> ClaimSteps:
    claim = view.claim
    if is_going(claim):
        if view.in_use:
            return ()
        return _without_finalizer(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_PROTECTION)
    if lookup(claim, "metadata", "annotations", BIND_COMPLETED):
        return _plan_with_volume(view)
    kept = [one for one in view.volumes if is_set_aside_for(one, claim) and not is_going(one)]
    if volume_name(claim):
        return _plan_named(view)
    certain = [one for one in kept if lookup(one, "spec", "claimRef", "uid")]
    return _bind(claim, certain[0]) if certain else _plan_unbound(view, kept)


def plan_volume(volume: Object, claim: Object | None) -> ClaimSteps:
    """``claim``: the one it is kept for; None where it is not there any more, for certain."""
    uid = lookup(volume, "spec", "claimRef", "uid", default="")
    if not uid:
        return _settle(volume, VolumePhase.AVAILABLE)
    if claim is None or uid_of(claim) != uid:
        return _plan_released(volume)
    if volume_name(claim) == name_of(volume):
        return _settle(volume, VolumePhase.BOUND)
    if not volume_name(claim):
        return ()  # it is being bound: the claim's own plan goes on
    if is_ours(volume):
        return _plan_released(volume)
    return (UpdateObject(PERSISTENT_VOLUMES, without(volume, ("spec", "claimRef"))),)


def _plan_with_volume(view: ClaimView) -> ClaimSteps:
    claim = view.claim
    volume = next((one for one in view.volumes if name_of(one) == volume_name(claim)), None)
    if volume is None or not is_bound_to(claim, volume):
        lost = _with_claim_status(claim, {"phase": ClaimPhase.LOST.value})
        told = TellEvent(
            EventReason.CLAIM_LOST,
            f"volume {volume_name(claim)} is gone, and what was in it: make the claim again",
        )
        return (*lost, told) if lost else ()
    grown: ClaimSteps = ()
    if requested(claim) > capacity(volume) and is_ours(volume):
        asked = lookup(claim, "spec", "resources", "requests", "storage")
        volume = evolve(volume, ("spec", "capacity", "storage"), asked)
        grown = (UpdateObject(PERSISTENT_VOLUMES, volume),)
    status = {
        "phase": ClaimPhase.BOUND.value,
        "accessModes": lookup(volume, "spec", "accessModes"),
        "capacity": lookup(volume, "spec", "capacity"),
    }
    return (*grown, *_with_claim_status(claim, status))


def _plan_named(view: ClaimView) -> ClaimSteps:
    """Somebody wants this volume and no other."""
    claim, name = view.claim, volume_name(view.claim)
    volume = next((one for one in view.volumes if name_of(one) == name), None)
    if volume is None or is_going(volume):
        return (TellEvent(EventReason.FAILED_BINDING, f'volume "{name}" not found: make it'),)
    if claim_key(volume) is not None and not is_set_aside_for(volume, claim):
        why = f'volume "{name}" already bound to a different claim: name another one, or none'
        return (TellEvent(EventReason.FAILED_BINDING, why),)
    why = misfit(volume, claim)
    if why:
        told = f'cannot bind to requested volume "{name}": {why}'
        return (TellEvent(EventReason.VOLUME_MISMATCH, told),)
    return _bind(claim, volume)


def _plan_unbound(view: ClaimView, reserved: list[Object]) -> ClaimSteps:
    """``reserved``: volumes that somebody has set aside for a claim of this name."""
    claim, consumer_node = view.claim, view.consumer_node
    if waits_for_consumer(view.storage_class) and consumer_node is None:
        volume = choose_volume(claim, reserved)
        why = "waiting for first consumer to be created before binding"
        waits = TellEvent(EventReason.WAIT_FOR_FIRST_CONSUMER, why)
        return (waits,) if volume is None else _bind(claim, volume)
    node: NodeFacts | None = None
    if waits_for_consumer(view.storage_class) and consumer_node is not None:
        node = consumer_node.node
    volume = choose_volume(claim, reserved) or choose_volume(claim, view.volumes, node)
    if volume is not None:
        return _bind(claim, volume)
    if is_local_class(view.storage_class) and consumer_node is not None:
        return _provision(view, consumer_node)
    return (_without_volume(view),)


def _provision(view: ClaimView, consumer_node: ConsumerNode) -> ClaimSteps:
    why = cannot_provision(view.claim, consumer_node)
    if why:
        return (TellEvent(EventReason.PROVISIONING_FAILED, why),)
    assert view.storage_class is not None, "only a class provisions"
    volume = build_volume(view.claim, view.storage_class, consumer_node)
    message = f"Successfully provisioned volume {name_of(volume)} on node {consumer_node.node.name}"
    told = TellEvent(EventReason.PROVISIONING_SUCCEEDED, message)
    return (CreateObject(PERSISTENT_VOLUMES, volume), told)


def _without_volume(view: ClaimView) -> TellEvent:
    """Why nothing can be done until somebody makes something."""
    named = class_of(view.claim)
    if not named:
        why = "no persistent volumes available for this claim and no storage class is set"
        return TellEvent(EventReason.FAILED_BINDING, why)
    if view.storage_class is None:
        why = f'storageclass.storage.k8s.io "{named}" not found'
        return TellEvent(EventReason.PROVISIONING_FAILED, why)
    provisioner = view.storage_class.get("provisioner")
    why = f"waiting for a volume of class {named} to be created, by {provisioner} or by hand"
    return TellEvent(EventReason.EXTERNAL_PROVISIONING, why)


def _bind(claim: Object, volume: Object) -> ClaimSteps:
    reserved: ClaimSteps = ()
    if not lookup(volume, "spec", "claimRef", "uid"):
        reference = claim_reference(claim)
        kept = evolve(volume, ("spec", "claimRef"), reference)
        reserved = (UpdateObject(PERSISTENT_VOLUMES, _annotated(kept, BOUND_BY_CONTROLLER)),)
    named = evolve(claim, ("spec", "volumeName"), name_of(volume))
    bound = _annotated(named, BIND_COMPLETED)
    if not volume_name(claim):
        bound = _annotated(bound, BOUND_BY_CONTROLLER)
    return (*reserved, UpdateObject(PERSISTENT_VOLUME_CLAIMS, bound))


def _plan_released(volume: Object) -> ClaimSteps:
    deletes = lookup(volume, "spec", "persistentVolumeReclaimPolicy") == ReclaimPolicy.DELETE
    if deletes and not is_ours(volume):
        why = (
            "its claim is gone, and nobody here can remove what somebody else has put there: take"
            " away what is in it, and delete the volume"
        )
        return _settle(volume, VolumePhase.FAILED, why)
    settled = _settle(volume, VolumePhase.RELEASED)
    if settled or not deletes or is_going(volume):
        return settled
    return (DeleteObject(PERSISTENT_VOLUMES, volume),)


def _settle(volume: Object, phase: VolumePhase, message: str = "") -> ClaimSteps:
    """The phase is told first; a volume that nobody has is not held up any more."""
    status = volume.get("status") or {}
    wanted = {**status, "phase": phase.value}
    if message:
        wanted |= {"message": message, "reason": EventReason.VOLUME_FAILED_DELETE.value}
    if wanted != status:
        told = (TellEvent(EventReason.VOLUME_FAILED_DELETE, message),) if message else ()
        return (UpdateObject(PERSISTENT_VOLUMES, {**volume, "status": wanted}, "status"), *told)
    if is_going(volume) and phase is not VolumePhase.BOUND:
        return _without_finalizer(PERSISTENT_VOLUMES, volume, VOLUME_PROTECTION)
    return ()


def _with_claim_status(claim: Object, wanted: Object) -> ClaimSteps:
    if (claim.get("status") or {}) == wanted:
        return ()
    return (UpdateObject(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": wanted}, "status"),)


def _without_finalizer(resource: Resource, obj: Object, finalizer: str) -> ClaimSteps:
    finalizers = lookup(obj, "metadata", "finalizers", default=[])
    if finalizer not in finalizers:
        return ()
    kept = [one for one in finalizers if one != finalizer]
    return (UpdateObject(resource, evolve(obj, ("metadata", "finalizers"), kept)),)


def _annotated(obj: Object, annotation: str) -> Object:
    annotations = lookup(obj, "metadata", "annotations", default={})
    return evolve(obj, ("metadata", "annotations"), {**annotations, annotation: "yes"})
