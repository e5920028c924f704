"""Columns of the tables that kubectl prints, and the cells that several kinds have in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec

from livesize.api.objects import Object, lookup, name_of

UNKNOWN = "<unknown>"
NONE = "<none>"


class Column(msgspec.Struct, frozen=True):
    """``cell`` gets the object and the time. Columns of priority 1 show with -o wide."""

    name: str
    cell: Callable[[Object, float], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def format_age(seconds: float) -> str:
    """A duration as kubectl prints it: 5s, 3m20s, 2h5m, 2d, 3y10d."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    for below, limit, text in (
        (whole, 120, f"{whole}s"),
        (minutes, 10, _pair(minutes, "m", whole % 60, "s")),
        (hours, 3, f"{minutes}m"),
        (hours, 8, _pair(hours, "h", minutes % 60, "m")),
        (hours, 48, f"{hours}h"),
        (days, 8, _pair(days, "d", hours % 24, "h")),
        (days, 730, f"{days}d"),
        (days, 365 * 8, _pair(days // 365, "y", days % 365, "d")),
    ):
        if below < limit:
            return text
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(timestamp: Any, now: float) -> str:
    if not isinstance(timestamp, str) or not timestamp:
        return UNKNOWN
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return format_age(now - moment.timestamp())


def age(obj: Object, now: float) -> str:
    return since(lookup(obj, "metadata", "creationTimestamp"), now)


def at(*path: str | int, default: str = NONE) -> Callable[[Object, float], Any]:
    return lambda obj, _now: lookup(obj, *path, default=default)


def entries(*fields: str) -> Callable[[Object, float], int]:
    """How many entries these fields have together."""
    return lambda obj, _now: sum(len(obj.get(field) or ()) for field in fields)


_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes(part: str) -> Callable[[Object, float], str]:
    """RWO,ROX of a claim's status or of a volume's spec, always in the same order."""

    def cell(obj: Object, _now: float) -> str:
        modes = lookup(obj, part, "accessModes", default=[])
        return ",".join(short for mode, short in _SHORT_MODES.items() if mode in modes)

    return cell


def leaving_or_phase(obj: Object, _now: float) -> str:
    """What waits for its finalizers says so."""
    if lookup(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(lookup(obj, "status", "phase", default=""))


def truth(field: str) -> Callable[[Object, float], Any]:
    return lambda obj, _now: bool(obj.get(field))


NAME = Column("Name", lambda obj, _now: name_of(obj), format="name")
AGE = Column("Age", age)
