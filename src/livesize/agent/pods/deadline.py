"""How long a pod may still be active: spec.activeDeadlineSeconds, from its start on. Pure."""

from __future__ import annotations

from livesize.api.objects import Object, lookup
from livesize.api.times import parse_time

DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


def deadline_at(pod: Object) -> float:
    """Infinity: it has none, or has not begun; what is begun now is told first."""
    seconds, started = (
        lookup(pod, "spec", "activeDeadlineSeconds"),
        lookup(pod, "status", "startTime"),
    )
    if seconds is None or not started:
        return float("inf")
    return parse_time(started) + float(seconds)
