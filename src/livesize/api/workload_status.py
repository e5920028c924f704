"""The annotation ``livesize.dev/resize-status`` of a workload: how its resize stands. Pure.

A JSON text, written by the controller in_place and read by whoever wants to know:

    generation   of the write that began the resize
    time         of the report
    pods         how many the resize is about
    updated      how many of them have the template's sizes
    unfinished   at most 20 of the others: pod, reason, message
    message      a sentence
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

from livesize.api.objects import Object, generation_of, lookup
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.workload_resize import RESIZE_STATUS, hold_of

MOST_UNFINISHED = 20
_CAPACITY = re.compile(r"(cpu|memory), requested: \d+, capacity: (\d+)")
_FORMATS = {"cpu": format_cpu, "memory": format_memory}


class ResizeStatus(msgspec.Struct, frozen=True):
    generation: int
    time: str
    pods: int
    updated: int
    unfinished: list[dict[str, str]]
    message: str


def format_status(status: ResizeStatus) -> str:
    return json.dumps(msgspec.to_builtins(status), sort_keys=True, separators=(",", ":"))


def last_status(workload: Object) -> ResizeStatus | None:
    """The last report, which may be of a resize that is long done."""
    text = lookup(workload, "metadata", "annotations", RESIZE_STATUS)
    try:
        return msgspec.json.decode(text or "", type=ResizeStatus)
    except msgspec.DecodeError:
        return None


def current_status(workload: Object) -> ResizeStatus | None:
    """The report of the resize that is under way: the one that holds the workload, or that its
    newest generation asks for."""
    status, hold = last_status(workload), hold_of(workload)
    since = generation_of(workload) if hold is None else hold.generation
    return status if status is not None and status.generation >= since else None


def feasible_size(messages: Iterable[str]) -> str:
    """What to ask for where some pods cannot have their size: IBM's words, with the largest size
    on the nodes whose refusals say how much they have."""
    least: dict[str, int] = {}
    for message in messages:
        for resource, capacity in _CAPACITY.findall(message):
            least[resource] = min(int(capacity), least.get(resource, int(capacity)))
    most = " and ".join(
        f"{name} {_FORMATS[name](amount)}" for name, amount in sorted(least.items())
    )
    hint = f" (at most {most} for all containers of a pod)" if most else ""
    return f"a size feasible on all the nodes{hint}"
