"""Since when a resize is requested, and the sizes before it: two things that no field has. Pure.

The controller keeps both in the annotation ``livesize.dev/resize-began``, so that the next
controller knows them, and takes the annotation off when the resize is done or its deadline is taken
back. Whoever may write a pod may write that annotation too: one that makes no sense counts as none.
"""

from __future__ import annotations

import json

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.resize_progress import ContainerSizes, actual_sizes
from livesize.api.resources import same_size
from livesize.api.schema.fields import schema_of
from livesize.api.schema.resources import ResourceRequirements
from livesize.api.schema.shapes import check_shape
from livesize.api.times import parse_time

BEGAN = "livesize.dev/resize-began"
_RESOURCES = schema_of(ResourceRequirements)


class ResizeBegan(msgspec.Struct, frozen=True):
    """``time``: when the controller saw the request; ``former``: the sizes before it, and
    ``desired``: those it asks for."""

    generation: int
    time: str
    former: ContainerSizes
    desired: ContainerSizes = {}


def is_noted(pod: Object) -> bool:
    return BEGAN in lookup(pod, "metadata", "annotations", default=())


def began_of(pod: Object) -> ResizeBegan | None:
    """As the annotation says; None without one, or where it makes no sense."""
    if not is_noted(pod):
        return None
    try:
        began = msgspec.json.decode(pod["metadata"]["annotations"][BEGAN], type=ResizeBegan)
        parse_time(began.time)
    except ValueError:
        return None
    sizes = (*began.former.values(), *began.desired.values())
    return None if any(check_shape(_RESOURCES, size) for size in sizes) else began


def has_come_true(began: ResizeBegan, pod: Object) -> bool:
    """Whether the node reports all that was asked then."""
    actual = actual_sizes(pod)
    return bool(began.desired) and all(
        name in actual and same_size(size, actual[name]) for name, size in began.desired.items()
    )


def format_began(began: ResizeBegan) -> str:
    return json.dumps(msgspec.to_builtins(began), sort_keys=True, separators=(",", ":"))
