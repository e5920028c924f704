"""Decides what a DELETE does to an object: gone at once, or marked and gone later. Pure.

A pod on a node is marked with a time by which it should be gone and stays until its node deletes
it with grace 0. Anything with finalizers stays until the last one is taken off. A namespace stays
until nothing is left in it. What happens to dependents is a finalizer too: it stays for as long as
the garbage collector has to do with them (livesize.controllers.garbage).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from livesize.api.errors import (
    FieldError,
    FieldErrorKind,
    bad_request,
    conflict,
    forbidden,
    invalid,
)
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of, version_of
from livesize.api.validation.pod import MAX_GRACE_SECONDS
from livesize.apiserver.request_types import Target

BACKGROUND, FOREGROUND, ORPHAN = "Background", "Foreground", "Orphan"
PROPAGATION_FINALIZERS: Mapping[str, str] = {
    BACKGROUND: "",
    FOREGROUND: "foregroundDeletion",
    ORPHAN: "orphan",
}
LASTING_NAMESPACES = frozenset({"default", "kube-system", "kube-node-lease"})


class DeletionOptions(msgspec.Struct, frozen=True):
    grace_seconds: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False
    propagation: str = ""


class Remove(msgspec.Struct, frozen=True, tag=True):
    """Gone with this commit."""


class Mark(msgspec.Struct, frozen=True, tag=True):
    """``stored`` is the object with its deletion under way."""

    stored: Object


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Deletion is under way already, and this request does not hasten it."""


DeletionPlan: TypeAlias = Remove | Mark | Leave


def parse_delete_options(body: Object) -> DeletionOptions:
    """DeleteOptions as on the wire; raises StatusError 400."""
    grace = body.get("gracePeriodSeconds")
    if grace is not None and (type(grace) is not int or not 0 <= grace <= MAX_GRACE_SECONDS):
        raise bad_request(
            f"gracePeriodSeconds must be a whole number of zero or more, up to {MAX_GRACE_SECONDS}"
        )
    preconditions = body.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions must be an object")
    dry_run = body.get("dryRun") or []
    if dry_run not in ([], ["All"]):
        raise bad_request('dryRun must be empty or ["All"]')
    return DeletionOptions(
        grace,
        str(preconditions.get("uid") or ""),
        str(preconditions.get("resourceVersion") or ""),
        bool(dry_run),
        _propagation(body),
    )


def _propagation(body: Object) -> str:
    policy, orphan = body.get("propagationPolicy"), body.get("orphanDependents")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        error = FieldError(FieldErrorKind.INVALID, "propagationPolicy", detail, policy)
        raise invalid("DeleteOptions", "meta.k8s.io", "", [error])
    if policy is None and isinstance(orphan, bool):
        return ORPHAN if orphan else BACKGROUND
    if policy is not None and policy not in PROPAGATION_FINALIZERS:
        detail = "supported values: " + ", ".join(f'"{one}"' for one in PROPAGATION_FINALIZERS)
        kind = FieldErrorKind.NOT_SUPPORTED
        shown = policy if isinstance(policy, str) else None
        error = FieldError(kind, "propagationPolicy", detail, shown)
        raise invalid("DeleteOptions", "meta.k8s.io", "", [error])
    return policy or ""


def check_preconditions(target: Target, stored: Object, options: DeletionOptions) -> None:
    if options.uid and options.uid != uid_of(stored):
        why = (
            f"Precondition failed: UID in precondition: {options.uid},"
            f" UID in object meta: {uid_of(stored)}"
        )
        raise conflict(target.resource, target.name, why)
    if options.version and options.version != version_of(stored):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {options.version},"
            f" ResourceVersion in object meta: {version_of(stored)}"
        )
        raise conflict(target.resource, target.name, why)


def plan_delete(
    target: Target, stored: Object, grace_seconds: int, deadline: str, propagation: str = ""
) -> DeletionPlan:
    """``deadline`` is the time, as text, ``grace_seconds`` from now; ``propagation`` empty leaves
    what the finalizers say, which is in the background where they say nothing."""
    if target.resource == NAMESPACES:
        return _plan_namespace(target, stored, deadline)
    finalizers: list[str] = lookup(stored, "metadata", "finalizers", default=[])
    remaining = _with_propagation(finalizers, propagation)
    if not grace_seconds and not remaining:
        return Remove()
    if remaining != finalizers:
        stored = evolve(stored, ("metadata", "finalizers"), remaining)
    elif _is_as_soon(stored, grace_seconds):
        return Leave()
    return Mark(_marked(stored, deadline, grace_seconds))


def _with_propagation(finalizers: list[str], propagation: str) -> list[str]:
    if not propagation:
        return finalizers
    wanted, ours = PROPAGATION_FINALIZERS[propagation], PROPAGATION_FINALIZERS.values()
    others = [one for one in finalizers if one not in ours or one == wanted]
    return [*others, wanted] if wanted and wanted not in others else others


def _is_as_soon(stored: Object, grace_seconds: int) -> bool:
    """Its deletion is under way and ends no later than this one would."""
    under_way = lookup(stored, "metadata", "deletionGracePeriodSeconds")
    if under_way is not None:
        return bool(under_way <= grace_seconds)
    return bool(lookup(stored, "metadata", "deletionTimestamp"))


def is_finished(target: Target, stored: Object) -> bool:
    """An object whose deletion is under way and that nothing holds any more."""
    metadata = stored["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if target.resource == NAMESPACES:
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _plan_namespace(target: Target, stored: Object, deadline: str) -> DeletionPlan:
    if target.name in LASTING_NAMESPACES:
        raise forbidden(NAMESPACES, target.name, "this namespace may not be deleted")
    if lookup(stored, "metadata", "deletionTimestamp"):
        return Leave()
    marked = evolve(stored, ("metadata", "deletionTimestamp"), deadline)
    return Mark(evolve(marked, ("status", "phase"), "Terminating"))


def _marked(stored: Object, deadline: str, grace_seconds: int) -> Object:
    if _is_as_soon(stored, grace_seconds):
        return stored  # only what happens to dependents has changed
    metadata = {
        **stored["metadata"],
        "deletionTimestamp": deadline,
        "deletionGracePeriodSeconds": grace_seconds,
    }
    if generation_of(stored) and not lookup(stored, "metadata", "deletionTimestamp"):
        metadata["generation"] = generation_of(stored) + 1  # once, as in Kubernetes
    return {**stored, "metadata": metadata}
