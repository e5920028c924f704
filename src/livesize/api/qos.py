"""The quality-of-service class of a pod, as Kubernetes computes it. It never changes (F16)."""

from __future__ import annotations

from typing import Literal, TypeAlias

from livesize.api.objects import Object, lookup
from livesize.api.resources import ResourceName, Resources, resources_of

QosClass: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]


def qos_class(pod: Object) -> QosClass:
    """Guaranteed: every container, init ones too, has cpu and memory limits equal to its
    requests. BestEffort: no container asks for anything. Burstable: the rest."""
    sizes = [
        resources_of(container)
        for kind in ("containers", "initContainers")
        for container in lookup(pod, "spec", kind, default=[])
    ]
    if not any(_asks_for_something(size) for size in sizes):
        return "BestEffort"
    if all(_is_guaranteed(size) for size in sizes):
        return "Guaranteed"
    return "Burstable"


def _asks_for_something(size: Resources) -> bool:
    # A quantity of zero asks for nothing, as in Kubernetes.
    sides = (size.requests, size.limits)
    return any(side.amount(resource) for side in sides for resource in ResourceName)


def _is_guaranteed(size: Resources) -> bool:
    return all(
        size.limits.amount(resource)
        and size.requests.amount(resource) == size.limits.amount(resource)
        for resource in ResourceName
    )
