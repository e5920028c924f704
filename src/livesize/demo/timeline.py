"""The timeline of a virtual machine's resize, from the pod as its watch tells it. Pure."""

from __future__ import annotations

import msgspec

from livesize.api.objects import Object, lookup
from livesize.api.quantity import cpu_milli, memory_bytes

_MIB = 1 << 20
_BAR = "│"
_NAMES = f"{'asked':>6} {'plugged':>9} {'in guest':>9}"
_ROW_SECONDS = 1.0


class TimelineRow(msgspec.Struct, frozen=True):
    """How things stand: asked for in spec, plugged into the domain, seen by the guest. Memory in
    MiB; None: not known."""

    phase: str
    vcpus_desired: int
    vcpus_plugged: int | None
    vcpus_online: int | None
    memory_desired: int
    memory_plugged: int | None
    memory_seen: int | None


def moment_of(pod: Object) -> TimelineRow:
    desired = lookup(pod, "spec", "virtualMachine", "resources", "requests", default={})
    guest = lookup(pod, "status", "virtualMachineStatus", "guest", default={})
    return TimelineRow(
        phase=str(lookup(pod, "status", "resizeState", "phase", default="None")),
        vcpus_desired=cpu_milli(desired.get("cpu", "0")) // 1000,
        vcpus_plugged=guest.get("vcpusPlugged"),
        vcpus_online=guest.get("vcpusOnline"),
        memory_desired=memory_bytes(desired.get("memory", "0")) // _MIB,
        memory_plugged=_mib(guest.get("memoryPlugged")),
        memory_seen=_mib(guest.get("memorySeen")),
    )


def is_worth_a_row(before: TimelineRow, now: TimelineRow, seconds: float) -> bool:
    """Did something move since the row of ``seconds`` ago? Memory on its way gets a row every
    second; that a busy guest does not answer for a moment is no news."""
    if now.vcpus_online is None or now == before:
        return False
    return _but_memory(now) != _but_memory(before) or seconds >= _ROW_SECONDS


def heading() -> tuple[str, str]:
    return (
        f"{'':22} {_BAR} {'vCPUs':^26} {_BAR} {'memory, MiB':^26} {_BAR}",
        f"{'seconds':>8}  {'resize':12} {_BAR} {_NAMES} {_BAR} {_NAMES} {_BAR} {'took':>8}",
    )


def row(seconds: float, moment: TimelineRow, took: str = "") -> str:
    word = "start" if moment.phase == "None" else moment.phase
    vcpus = _cells(moment.vcpus_desired, moment.vcpus_plugged, moment.vcpus_online)
    memory = _cells(moment.memory_desired, moment.memory_plugged, moment.memory_seen)
    line = f"{seconds:>8.2f}  {word:12} {_BAR} {vcpus} {_BAR} {memory} {_BAR} {took:>8}"
    return line.rstrip()


def _but_memory(moment: TimelineRow) -> TimelineRow:
    return msgspec.structs.replace(moment, memory_plugged=None, memory_seen=None)


def _cells(desired: int, plugged: int | None, seen: int | None) -> str:
    return f"{desired:>6} {_shown(plugged):>9} {_shown(seen):>9}"


def _shown(amount: int | None) -> str:
    return "-" if amount is None else str(amount)


def _mib(amount: str | float | None) -> int | None:
    return None if amount is None else memory_bytes(amount) // _MIB
