"""How many pods the controllers of some pods want: `replicas` of what has a scale, as `kubectl
scale` sets it. What controls a controller and has a scale itself speaks for it: the Deployment of a
ReplicaSet."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import ScalePaths
from livesize.api.objects import Object, lookup, namespace_of, uid_of
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.watches import controller_of


def scaled_kinds() -> list[Resource]:
    return [resource for resource in REGISTRY.stored() if _paths(resource) is not None]


def own_scale(resource: Resource, scaled: Object) -> int:
    """How many pods an object of a scaled kind wants."""
    paths = _paths(resource)
    assert paths is not None, f"{resource.plural} have no scale"
    return int(lookup(scaled, *paths.replicas, default=0))


def wanted_pods(pods: Sequence[Object], read: Reader) -> int | None:
    """None: a controller of one of them is not known, or all are without. Without any pod: 0."""
    controlled = [pod for pod in pods if controller_of(pod) is not None]
    if pods and not controlled:
        return None
    wanted: dict[str, int] = {}
    for pod in controlled:
        scale = None
        above = _controller(pod, read)
        while above is not None:
            scale = above
            above = _controller(above[1], read)
        if scale is None:
            return None
        wanted[uid_of(scale[1])] = own_scale(*scale)
    return sum(wanted.values())


def _controller(obj: Object, read: Reader) -> tuple[Resource, Object] | None:
    """What controls it and has a scale."""
    reference = controller_of(obj)
    if reference is None:
        return None
    resource = REGISTRY.find_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
    if resource is None or _paths(resource) is None:
        return None
    found = read.get(resource, str(reference.get("name")), namespace_of(obj))
    if found is None or uid_of(found) != reference.get("uid"):
        return None
    return resource, found


def _paths(resource: Resource) -> ScalePaths | None:
    scale = kind_of(resource).subresources.get("scale")
    return None if scale is None else scale.paths
