"""GET, PUT and PATCH of X/scale (autoscaling/v1): how many replicas an object of any kind has that
declares where it keeps them."""

from __future__ import annotations

from livesize.api.defaults import default_object
from livesize.api.errors import FieldError, FieldErrorKind, invalid
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import ScalePaths
from livesize.api.objects import Object, evolve, lookup
from livesize.api.selectors import format_label_selector
from livesize.api.validation.objects import validate_update
from livesize.apiserver.object_metadata import check_identity, with_generation
from livesize.apiserver.subresources.change import SentChange, refuse_invalid

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_view(resource: Resource, obj: Object) -> Object:
    """The object as the Scale that clients read and write."""
    scale, paths = kind_of(resource).subresources["scale"], scale_paths(resource)
    metadata = {key: obj["metadata"][key] for key in _SHOWN if key in obj["metadata"]}
    status: Object = {"replicas": lookup(obj, *paths.status_replicas, default=0)}
    selector = lookup(obj, *paths.selector)
    if selector is not None:
        status["selector"] = (
            selector if isinstance(selector, str) else format_label_selector(selector)
        )
    return {
        "kind": scale.kind,
        "apiVersion": scale.api_version,
        "metadata": metadata,
        "spec": {"replicas": lookup(obj, *paths.replicas, default=0)},
        "status": status,
    }


def update_scale(change: SentChange) -> Object:
    """Only the number of replicas; everything else of the Scale is read from the object."""
    resource, stored = change.target.resource, change.stored
    check_identity(change.target, stored, change.incoming)
    replicas = lookup(change.incoming, "spec", "replicas", default=0)
    if replicas < 0:
        detail = "must be greater than or equal to 0"
        error = FieldError(FieldErrorKind.INVALID, "spec.replicas", detail, replicas)
        raise invalid("Scale", "autoscaling", change.target.name, [error])
    new = default_object(resource, evolve(stored, scale_paths(resource).replicas, replicas))
    refuse_invalid(change.target, validate_update(resource, new, stored))
    return with_generation(resource, stored, new)


def scale_paths(resource: Resource) -> ScalePaths:
    paths = kind_of(resource).subresources["scale"].paths
    assert paths is not None, f"{resource.kind} has a scale that says no paths"
    return paths
