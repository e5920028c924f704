"""Since when a resize is requested, and the sizes before it: two things that no field has. Pure.

The controller keeps both in the annotation ``livesize.dev/resize-began``, so that the next
controller knows them, and takes the annotation off when the resize is done.
"""

from __future__ import annotations

import json

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.resize_progress import Sizes

BEGAN = "livesize.dev/resize-began"


class ResizeBegan(msgspec.Struct, frozen=True):
    """``time``: when the controller saw the request; ``former``: the sizes before it."""

    generation: int
    time: str
    former: Sizes


def began_of(pod: Object) -> ResizeBegan | None:
    """As the annotation says; None without one, or where it makes no sense."""
    text = lookup(pod, "metadata", "annotations", BEGAN)
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=ResizeBegan)
    except msgspec.DecodeError:
        return None


def format_began(began: ResizeBegan) -> str:
    return json.dumps(msgspec.to_builtins(began), sort_keys=True, separators=(",", ":"))
