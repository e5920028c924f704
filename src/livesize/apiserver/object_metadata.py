"""The metadata that the API server itself writes: identity, times, generation, what stays.

Pure: uids and times are arguments. Clients may send all of this back; it is never taken from them.
"""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind, bad_request, conflict, invalid
from livesize.api.kinds.kind import StatusWrites
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, generation_of, uid_of, version_of
from livesize.apiserver.request_types import Target

MAX_GENERATED_PREFIX = 58
_NOT_FROM_CLIENTS = (
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
)
_PRESERVED = ("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation")


def prepare_create(
    resource: Resource, namespace: str, obj: Object, *, uid: str, now: str, suffix: str
) -> Object:
    """``obj`` as the beginning of a stored object."""
    kind = kind_of(resource)
    given = obj.get("metadata") or {}
    if given.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata = {key: value for key, value in given.items() if key not in _NOT_FROM_CLIENTS}
    metadata["name"] = _name(resource, given, suffix)
    if resource.namespaced:
        if given.get("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if kind.has_generation:
        metadata["generation"] = 1
    prepared = {**obj, "metadata": metadata}
    if kind.status is StatusWrites.SUBRESOURCE:
        prepared.pop("status", None)
    return prepared


def prepare_update(target: Target, stored: Object, incoming: Object) -> Object:
    """``incoming`` with everything the API server keeps taken from ``stored``, status included."""
    given = incoming.get("metadata") or {}
    check_identity(target, stored, incoming)
    preserved = stored["metadata"]
    metadata = {key: value for key, value in given.items() if key not in _NOT_FROM_CLIENTS}
    metadata |= {key: preserved[key] for key in _PRESERVED if key in preserved}
    metadata |= {"name": preserved["name"], "uid": preserved["uid"]}
    metadata["resourceVersion"] = preserved["resourceVersion"]
    if "namespace" in preserved:
        metadata["namespace"] = preserved["namespace"]
    updated = {**incoming, "metadata": metadata}
    if kind_of(target.resource).status is not StatusWrites.ANY:
        updated.pop("status", None)
        if "status" in stored:
            updated["status"] = stored["status"]
    return updated


def with_generation(resource: Resource, stored: Object, new: Object) -> Object:
    """One more where the spec has changed; the node's own writes never count (design 5.1)."""
    if not kind_of(resource).has_generation or new.get("spec") == stored.get("spec"):
        return new
    return {**new, "metadata": {**new["metadata"], "generation": generation_of(stored) + 1}}


def check_version(target: Target, stored: Object, incoming: Object) -> bool:
    """Whether the client insists on a version; raises 409 if it insists on another one."""
    given = version_of(incoming)
    if given and given != stored["metadata"]["resourceVersion"]:
        raise conflict(target.resource, target.name)
    return bool(given)


def check_identity(target: Target, stored: Object, incoming: Object) -> None:
    """Refuse an object with another name, namespace or uid than the one it is sent to."""
    given = incoming.get("metadata") or {}
    if given.get("name", target.name) != target.name:
        raise bad_request(
            f"the name of the object ({given['name']}) does not match the name on the URL"
            f" ({target.name})"
        )
    if target.resource.namespaced and given.get("namespace", target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if given.get("uid", uid_of(stored)) != uid_of(stored):
        raise conflict(
            target.resource,
            target.name,
            f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta:"
            f" {uid_of(stored)}",
        )


def _name(resource: Resource, given: Object, suffix: str) -> str:
    name: str = given.get("name", "")
    if name:
        return name
    prefix: str = given.get("generateName", "")
    if prefix:
        return prefix[:MAX_GENERATED_PREFIX] + suffix
    error = FieldError(FieldErrorKind.REQUIRED, "metadata.name", "name or generateName is required")
    raise invalid(resource.kind, resource.group, "", [error])
