"""The quality-of-service class of a pod, as Kubernetes computes it. It never changes (F16)."""

from __future__ import annotations

from typing import Literal, TypeAlias

from livesize.api.objects import Object
from livesize.api.resources import Resources, containers_of, resources_of

QosClass: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]


def qos_class(pod: Object) -> QosClass:
    """Guaranteed: every container, init ones too, has cpu and memory limits equal to its
    requests. BestEffort: no container asks for anything. Burstable: the rest."""
    containers = containers_of(pod)
    starting = (pod.get("spec") or {}).get("initContainers")
    if starting:
        containers = [*containers, *starting]
    sizes = [resources_of(container) for container in containers]
    if not any(map(_asks_for_something, sizes)):
        return "BestEffort"
    return "Guaranteed" if all(map(_is_guaranteed, sizes)) else "Burstable"


def _asks_for_something(size: Resources) -> bool:
    # A quantity of zero asks for nothing, as in Kubernetes.
    asked, limits = size.requests, size.limits
    return bool(asked.cpu_milli or asked.memory_bytes or limits.cpu_milli or limits.memory_bytes)


def _is_guaranteed(size: Resources) -> bool:
    limits = size.limits
    return bool(limits.cpu_milli and limits.memory_bytes) and size.requests == limits
