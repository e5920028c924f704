"""The timeline of a virtual machine's resize, from the pod as its watch tells it. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.quantity import cpu_milli, memory_bytes

_MIB = 1 << 20
_BAR = "│"
_NAMES = f"{'asked':>5} {'plugged':>7} {'seen':>5}"
_ROW_SECONDS = 1.0


class TimelineAmount(msgspec.Struct, frozen=True):
    """How one amount stands: asked for in spec, plugged into the domain, seen by the guest. None:
    not known."""

    desired: int
    plugged: int | None
    seen: int | None


class TimelineRow(msgspec.Struct, frozen=True):
    """``memory``: in MiB, of each NUMA cell; of a VM without cells the whole."""

    phase: str
    vcpus: TimelineAmount
    memory: tuple[TimelineAmount, ...]


def moment_of(pod: Object) -> TimelineRow:
    machine = lookup(pod, "spec", "virtualMachine", default={})
    desired = lookup(machine, "resources", "requests", default={})
    guest = lookup(pod, "status", "virtualMachineStatus", "guest", default={})
    return TimelineRow(
        phase=str(lookup(pod, "status", "resizeState", "phase", default="None")),
        vcpus=TimelineAmount(
            cpu_milli(desired.get("cpu", "0")) // 1000,
            guest.get("vcpusPlugged"),
            guest.get("vcpusOnline"),
        ),
        memory=_cells(pod, machine)
        or (
            TimelineAmount(
                memory_bytes(desired.get("memory", "0")) // _MIB,
                _mib(guest.get("memoryPlugged")),
                _mib(guest.get("memorySeen")),
            ),
        ),
    )


def _cells(pod: Object, machine: Object) -> tuple[TimelineAmount, ...]:
    told = lookup(pod, "status", "virtualMachineStatus", "cells", default=[])
    known: dict[Any, Object] = {cell.get("id", 0): cell for cell in told}
    cells = lookup(machine, "numa", "cells", default=[])
    return tuple(
        TimelineAmount(
            memory_bytes(cell["memory"]) // _MIB,
            _mib(known.get(cell["id"], {}).get("plugged")),
            _mib(known.get(cell["id"], {}).get("seen")),
        )
        for cell in sorted(cells, key=lambda cell: int(cell["id"]))
    )


def is_worth_a_row(before: TimelineRow, now: TimelineRow, seconds: float) -> bool:
    """Did something move since the row of ``seconds`` ago? Memory on its way gets a row every
    second; that a busy guest does not answer for a moment is no news."""
    if now.vcpus.seen is None or now == before:
        return False
    return _but_memory(now) != _but_memory(before) or seconds >= _ROW_SECONDS


def heading(moment: TimelineRow) -> tuple[str, str]:
    cells = [f"cell {number}, MiB" for number in range(len(moment.memory))]
    titles = ["vCPUs", *(cells if len(cells) > 1 else ["memory, MiB"])]
    amounts = f" {_BAR} ".join(f"{title:^19}" for title in titles)
    names = f" {_BAR} ".join([_NAMES] * len(titles))
    return (
        f"{'':20} {_BAR} {amounts} {_BAR}",
        f"{'seconds':>8}  {'resize':10} {_BAR} {names} {_BAR} {'took':>8}",
    )


def row(seconds: float, moment: TimelineRow, took: str = "") -> str:
    word = "start" if moment.phase == "None" else moment.phase
    amounts = f" {_BAR} ".join(_shown(one) for one in (moment.vcpus, *moment.memory))
    return f"{seconds:>8.2f}  {word:10} {_BAR} {amounts} {_BAR} {took:>8}".rstrip()


def _but_memory(moment: TimelineRow) -> tuple[object, ...]:
    """What is asked of it is no motion of the memory."""
    return moment.phase, moment.vcpus, [one.desired for one in moment.memory]


def _shown(amount: TimelineAmount) -> str:
    plugged, seen = ("-" if one is None else one for one in (amount.plugged, amount.seen))
    return f"{amount.desired:>5} {plugged:>7} {seen:>5}"


def _mib(amount: str | float | None) -> int | None:
    return None if amount is None else memory_bytes(amount) // _MIB
