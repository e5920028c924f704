"""What a virtual machine was asked to have, what is plugged into it and what its guest sees. Pure.

Read from status.virtualMachineStatus, which only a node of ours writes; "-" for what it does not
say.
"""

from __future__ import annotations

from typing import Any

from livesize.api.conditions import find_condition
from livesize.api.objects import Object, lookup
from livesize.api.quantity import format_memory, memory_bytes
from livesize.api.resources import VM_NAME, cells_of, container_resources, is_vm
from livesize.api.vm_size import vcpus_of
from livesize.cli.output import Table
from livesize.cli.sizes import NOT_KNOWN

_STATUS = ("status", "virtualMachineStatus")
_BOUNDS = (
    ("MaxBootTime", "maxBootTime"),
    ("Current", "current"),
    ("MaxExpandable", "maxExpandable"),
)


def guest_table(pod: Object) -> Table:
    """A row for the vCPUs, one for the memory and one for each NUMA cell. TO GO: what is still to
    be plugged in or given back. Nothing where the node has not said what the guest has."""
    guest = lookup(pod, *_STATUS, "guest")
    if not is_vm(pod) or not isinstance(guest, dict):
        return Table(("", "REQUESTED", "PLUGGED", "SEEN BY GUEST", "TO GO"), ())
    cells = lookup(pod, *_STATUS, "cells", default=[])
    rows = [
        _vcpu_row(pod, guest),
        _memory_row("memory", guest, "memory"),
        *(_memory_row(f"memory of cell {cell.get('id')}", cell, "") for cell in cells),
    ]
    return Table(("", "REQUESTED", "PLUGGED", "SEEN BY GUEST", "TO GO"), tuple(rows))


def vm_lines(pod: Object) -> list[str]:
    """How its memory changes, within which bounds, and what is in the way of its resize."""
    told = lookup(pod, *_STATUS, "memory", default={})
    named = lookup(pod, "spec", "virtualMachine", "memory", "technology")
    technology = told.get("technology") or named
    bounds = [f"{name} {told[field]}" for name, field in _BOUNDS if told.get(field)]
    lines = []
    if technology or bounds:
        lines.append(", ".join([f"Memory by {technology or 'the default of its node'}", *bounds]))
    texts = (lookup(pod, *_STATUS, "guest", "message"), _in_the_way(pod))
    return [*lines, *(str(text) for text in texts if text)]


def vcpu_words(pod: Object) -> str:
    """vCPUs requested → plugged → used by the guest."""
    guest = lookup(pod, *_STATUS, "guest")
    return NOT_KNOWN if guest is None else " → ".join(_vcpu_row(pod, guest)[1:4])


def memory_words(pod: Object) -> str:
    """Memory requested → plugged → seen by the guest, whose kernel keeps some for itself."""
    guest = lookup(pod, *_STATUS, "guest")
    if guest is None:
        return NOT_KNOWN
    return " → ".join(_whole_mi(guest.get(field)) for field in _fields("memory"))


def cell_words(pod: Object) -> str:
    """The same of each NUMA cell."""
    cells = lookup(pod, *_STATUS, "cells", default=[])
    return (
        ", ".join(
            f"{cell.get('id')}: " + " → ".join(_whole_mi(cell.get(field)) for field in _fields(""))
            for cell in cells
        )
        or NOT_KNOWN
    )


def on_its_way(pod: Object) -> str:
    """What of its memory is still to be plugged in or given back; empty: nothing is, or it is not
    known."""
    table = guest_table(pod)
    return ", ".join(
        f"{label} {requested} → {plugged} → {seen}, {to_go} to go"
        for label, requested, plugged, seen, to_go in table.rows
        if to_go != NOT_KNOWN
    )


def desired_cells(pod: Object) -> dict[int, int]:
    """Bytes by the number of the cell."""
    if not is_vm(pod):
        return {}
    cells = cells_of(pod["spec"]["virtualMachine"])
    return {int(cell["id"]): memory_bytes(cell["memory"]) for cell in cells}


def allocated_cells(pod: Object) -> dict[int, int]:
    sizes = lookup(pod, "status", "resizeState", "allocated", default=[])
    return {
        int(cell["id"]): memory_bytes(cell["memory"])
        for size in sizes
        if size.get("name") == VM_NAME
        for cell in size.get("cells") or ()
    }


def plugged_cells(pod: Object) -> dict[int, int]:
    cells = lookup(pod, *_STATUS, "cells", default=[])
    return {
        int(cell["id"]): memory_bytes(cell["plugged"])
        for cell in cells
        if cell.get("plugged") is not None
    }


def _vcpu_row(pod: Object, guest: Object) -> tuple[str, ...]:
    wanted = vcpus_of(container_resources(pod)[VM_NAME])
    plugged, online = guest.get("vcpusPlugged"), guest.get("vcpusOnline")
    left = NOT_KNOWN
    if isinstance(online, int) and online != wanted:
        left = f"{wanted - online:+d}"
    return ("vCPUs", str(wanted), _text(plugged), _text(online), left)


def _memory_row(label: str, told: Object, prefix: str) -> tuple[str, ...]:
    requested, plugged, seen = (told.get(field) for field in _fields(prefix))
    left = NOT_KNOWN
    if requested is not None and plugged is not None:
        left = _difference(memory_bytes(requested) - memory_bytes(plugged))
    return (label, _text(requested), _text(plugged), _whole_mi(seen), left)


def _fields(prefix: str) -> tuple[str, str, str]:
    if not prefix:
        return ("requested", "plugged", "seen")
    return (f"{prefix}Requested", f"{prefix}Plugged", f"{prefix}Seen")


def _difference(left_bytes: int) -> str:
    if left_bytes == 0:
        return NOT_KNOWN
    sign = "+" if left_bytes > 0 else "-"
    return f"{sign}{format_memory(abs(left_bytes))}"


def _in_the_way(pod: Object) -> str:
    """The node's own sentence about a resize that does not go on by itself."""
    for kind in ("PodResizePending", "PodResizeInProgress"):
        condition = find_condition(pod, kind)
        if condition is not None and condition.get("reason"):
            return str(condition.get("message") or "")
    return ""


def _text(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)


def _whole_mi(memory: str | float | None) -> str:
    """Whole Mi, rounded down: people do not read eleven digits."""
    return NOT_KNOWN if memory is None else f"{memory_bytes(memory) // 2**20}Mi"
