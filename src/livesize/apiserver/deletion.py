"""Decides what a DELETE does to an object: gone at once, or marked and gone later. Pure.

A pod on a node is marked with a time by which it should be gone and stays until its node deletes
it with grace 0. Anything with finalizers stays until the last one is taken off. A namespace stays
until nothing is left in it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from livesize.api.errors import bad_request, conflict, forbidden
from livesize.api.kinds import NAMESPACES, PODS
from livesize.api.objects import Object, evolve, lookup, uid_of, version_of
from livesize.apiserver.asked import Target

DEFAULT_GRACE_SECONDS = 30
LASTING_NAMESPACES = frozenset({"default", "kube-system", "kube-node-lease"})


class DeleteOptions(msgspec.Struct, frozen=True):
    grace_seconds: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False


class Remove(msgspec.Struct, frozen=True, tag=True):
    """Gone with this commit."""


class Mark(msgspec.Struct, frozen=True, tag=True):
    """``stored`` is the object with its deletion under way."""

    stored: Object


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Deletion is under way already, and this request does not hasten it."""


Deletion: TypeAlias = Remove | Mark | Leave


def parse_delete_options(body: Object) -> DeleteOptions:
    """DeleteOptions as on the wire; raises StatusError 400."""
    grace = body.get("gracePeriodSeconds")
    if grace is not None and (type(grace) is not int or grace < 0):
        raise bad_request("gracePeriodSeconds must be a whole number of zero or more")
    preconditions = body.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions must be an object")
    dry_run = body.get("dryRun") or []
    if dry_run not in ([], ["All"]):
        raise bad_request('dryRun must be empty or ["All"]')
    return DeleteOptions(
        grace,
        str(preconditions.get("uid") or ""),
        str(preconditions.get("resourceVersion") or ""),
        bool(dry_run),
    )


def check_preconditions(target: Target, stored: Object, options: DeleteOptions) -> None:
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


def grace_seconds_of(target: Target, stored: Object, options: DeleteOptions) -> int:
    """How long the object may still live; 0 for everything but pods that a node runs."""
    if target.resource != PODS or not lookup(stored, "spec", "nodeName"):
        return 0
    if lookup(stored, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_seconds is not None:
        return options.grace_seconds
    grace: int = lookup(
        stored, "spec", "terminationGracePeriodSeconds", default=DEFAULT_GRACE_SECONDS
    )
    return grace


def plan_delete(target: Target, stored: Object, grace_seconds: int, deadline: str) -> Deletion:
    """``deadline`` is the time, as text, ``grace_seconds`` from now."""
    if target.resource == NAMESPACES:
        return _plan_namespace(target, stored, deadline)
    finalizers = lookup(stored, "metadata", "finalizers", default=[])
    if not grace_seconds and not finalizers:
        return Remove()
    under_way = lookup(stored, "metadata", "deletionGracePeriodSeconds")
    if under_way is not None and under_way <= grace_seconds:
        return Leave()
    if under_way is None and lookup(stored, "metadata", "deletionTimestamp"):
        return Leave()
    return Mark(_marked(stored, deadline, grace_seconds))


def is_finished(target: Target, stored: Object) -> bool:
    """An object whose deletion is under way and that nothing holds any more."""
    metadata = stored["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if target.resource == NAMESPACES:
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _plan_namespace(target: Target, stored: Object, deadline: str) -> Deletion:
    if target.name in LASTING_NAMESPACES:
        raise forbidden(NAMESPACES, target.name, "this namespace may not be deleted")
    if lookup(stored, "metadata", "deletionTimestamp"):
        return Leave()
    marked = evolve(stored, ("metadata", "deletionTimestamp"), deadline)
    return Mark(evolve(marked, ("status", "phase"), "Terminating"))


def _marked(stored: Object, deadline: str, grace_seconds: int) -> Object:
    metadata = {
        **stored["metadata"],
        "deletionTimestamp": deadline,
        "deletionGracePeriodSeconds": grace_seconds,
    }
    return {**stored, "metadata": metadata}
