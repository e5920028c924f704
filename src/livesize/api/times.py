"""Times as Kubernetes writes them: RFC 3339 in UTC, to the second or to the microsecond."""

from __future__ import annotations

import datetime as dt
import functools
import math

_MICROS = 1_000_000  # of a second


def format_time(seconds: float) -> str:
    """RFC 3339 to the second, as Kubernetes writes it."""
    return _format_second(math.floor(seconds))


def format_micro_time(seconds: float) -> str:
    """RFC 3339 to the microsecond: leases, events, steps of a resize."""
    second = math.floor(seconds)
    micros = round((seconds - second) * 1e6)
    if micros == _MICROS:
        second, micros = second + 1, 0
    return f"{_format_second(second)[:-1]}.{micros:06}Z"


@functools.lru_cache(maxsize=256)
def _format_second(second: int) -> str:
    """Nearly everything written bears the time of now, or one that was read many times."""
    return dt.datetime.fromtimestamp(second, tz=dt.UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
