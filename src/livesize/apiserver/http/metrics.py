"""What is counted about requests, for /metrics.

Counted in plain numbers, and written in Prometheus' words only when somebody asks for them
(livesize.apiserver.http.exposition): every request is counted, /metrics is read twice a minute, and
by many installations never.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from livesize.api.kinds.registry import REGISTRY
from livesize.apiserver.objects_cache import ObjectsCache

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

Labels: TypeAlias = tuple[str, str, str]
"""Verb, resource, subresource."""


class Durations:
    """How many took how long: a count for each bucket, and one for what is longer than all."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Metrics:
    def __init__(self, cache: ObjectsCache, in_flight: Callable[[], int]) -> None:
        self.requests: dict[Labels, Counter[int]] = {}  # by code
        self.seconds: dict[Labels, Durations] = {}
        self.lag = Durations()
        self.in_flight = in_flight
        self.watchers = cache.watcher_count
        self._cache = cache

    def record_lag(self, seconds: float) -> None:
        self.lag.add(seconds)

    def record(self, labels: Labels, code: int, seconds: float | None) -> None:
        if labels not in self.requests:
            self.requests[labels], self.seconds[labels] = Counter(), Durations()
        self.requests[labels][code] += 1
        if seconds is not None:
            self.seconds[labels].add(seconds)

    def objects(self) -> Mapping[str, int]:
        """How many there are of each resource."""
        return {
            resource.plural: self._cache.object_count(resource) for resource in REGISTRY.stored()
        }

    def text(self) -> bytes:
        from livesize.apiserver.http.exposition import exposition

        return exposition(self)
