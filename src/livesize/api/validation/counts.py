"""How much of each a new pod may have. Looked at before anything else is done with it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup

MAX_CONTAINERS = 256
_OF_A_POD = {
    "containers": MAX_CONTAINERS,
    "initContainers": MAX_CONTAINERS,
    "ephemeralContainers": MAX_CONTAINERS,
    "volumes": 1000,
}
_OF_A_CONTAINER = {"env": 5000, "envFrom": 500, "ports": 1000, "volumeMounts": 1000}


def too_many_parts(pod: Object) -> list[FieldError]:
    """The first list that is too long, if there is one."""
    first = next(_long_lists(pod), None)
    return [] if first is None else [first]


def _long_lists(pod: Object) -> Iterator[FieldError]:
    spec = lookup(pod, "spec", default={})
    yield from _longer(spec, _OF_A_POD, "spec")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        containers = lookup(spec, kind, default=[])
        if isinstance(containers, list):
            for index, container in enumerate(containers):
                yield from _longer(container, _OF_A_CONTAINER, f"spec.{kind}[{index}]")


def _longer(parent: Any, limits: dict[str, int], where: str) -> Iterator[FieldError]:
    if not isinstance(parent, dict):
        return  # refused where shapes are looked at
    for field, limit in limits.items():
        found = parent.get(field)
        if isinstance(found, list) and len(found) > limit:
            detail = f"must have at most {limit} items"
            yield FieldError(FieldErrorKind.TOO_MANY, f"{where}.{field}", detail, len(found))
