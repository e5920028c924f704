"""What a resize did, before and after, as a table and as lines. Pure."""

from __future__ import annotations

from livesize.api.objects import Object
from livesize.api.resources import VM_NAME, ResourceName
from livesize.cli.output import Table
from livesize.cli.resize.progress import Progress, ResizeDone, ResizeRefused, ResizeWaiting
from livesize.cli.sizes import NOT_KNOWN, Sizes, container_sizes, format_amount
from livesize.cli.vm_words import allocated_cells, desired_cells, plugged_cells

_WORDS = {
    "Requested": "asked; the node has not judged it yet",
    "Accepted": "accepted; the node has not begun yet",
    "Deferred": "no room now; it happens by itself when there is",
    "InProgress": "allocated; being applied",
    "Error": "being applied, but held up",
    "Held": "waiting for memory to be freed",
    "NotRunning": "allocated; done when it runs",
    "Queued": "its turn has not come",
    "Unscheduled": "recreated; no node has taken it yet",
}


def change_table(container: str, before: Object, after: Object) -> Table:
    """Desired, allocated and actual of one container, each before → after."""
    old, new = container_sizes(before)[container], container_sizes(after)[container]
    rows = []
    for resource in ResourceName:
        for side in ("request", "limit"):
            cells = [
                _change(old_cell, new_cell)
                for old_cell, new_cell in zip(
                    _cells(old, resource, side), _cells(new, resource, side), strict=True
                )
            ]
            if any(cell != NOT_KNOWN for cell in cells):
                rows.append((f"{container} {resource.value} {side}", *cells))
    if container == VM_NAME:
        rows += _cell_rows(before, after)
    return Table(("", "DESIRED", "ALLOCATED", "ACTUAL"), tuple(rows))


def _cell_rows(before: Object, after: Object) -> list[tuple[str, ...]]:
    """The memory of each NUMA cell of a virtual machine."""
    places = (desired_cells, allocated_cells, plugged_cells)
    old, new = [place(before) for place in places], [place(after) for place in places]
    return [
        (
            f"{VM_NAME} cell {number} memory",
            *(
                _change(*(format_amount(ResourceName.MEMORY, one.get(number)) for one in pair))
                for pair in zip(old, new, strict=True)
            ),
        )
        for number in new[0]
    ]


def progress_line(label: str, waiting: ResizeWaiting) -> str:
    words = _WORDS.get(waiting.word, waiting.word)
    # While all goes well the message says no more than our words do.
    tells_more = waiting.message and waiting.word != "InProgress"
    return f"{label}: {words}" + (f" ({waiting.message})" if tells_more else "")


def verdict_words(progress: Progress) -> str:
    """What the node has answered so far, to who does not wait for more."""
    match progress:
        case ResizeDone(note):
            return f"the pod {note}" if note else "done"
        case ResizeRefused(sentence, infeasible):
            return f"infeasible: {sentence}" if infeasible else sentence
        case ResizeWaiting(word="Deferred", message=message):
            return f"deferred: {message or _WORDS['Deferred']}"
        case ResizeWaiting(word="Accepted" | "InProgress"):
            return "accepted, being applied"
        case ResizeWaiting(word=word, message=message):
            words = _WORDS.get(word, word)
            return f"{words} ({message})" if message else words


def _cells(sizes: Sizes, resource: ResourceName, side: str) -> tuple[str, str, str]:
    if side == "request":
        allocated = sizes.allocated.amount(resource) if sizes.allocated is not None else None
        desired = sizes.desired.requests.amount(resource)
        actual = sizes.actual.requests.amount(resource) if sizes.actual is not None else None
    else:
        allocated = None
        desired = sizes.desired.limits.amount(resource)
        actual = sizes.actual.limits.amount(resource) if sizes.actual is not None else None
    return (
        format_amount(resource, desired),
        format_amount(resource, allocated),
        format_amount(resource, actual),
    )


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"
