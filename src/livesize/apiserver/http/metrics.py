"""What is counted about requests, for /metrics.

Counted in plain numbers, and made into Prometheus' families only when somebody asks for them: every
request is counted, /metrics is read twice a minute.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from livesize.api.kinds import RESOURCES
from livesize.apiserver.objects_cache import ObjectsCache

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LIMITS = (*(str(float(seconds)) for seconds in _BUCKETS), "+Inf")

Labels: TypeAlias = tuple[str, str, str]
"""Verb, resource, subresource."""


class Metrics:
    def __init__(self, cache: ObjectsCache, in_flight: Callable[[], int]) -> None:
        self._cache = cache
        self._in_flight = in_flight
        self._requests: dict[Labels, Counter[int]] = {}
        self._seconds: dict[Labels, _Durations] = {}
        self._lag = _Durations()
        self._collectors = CollectorRegistry()
        self._collectors.register(self)

    def record_lag(self, seconds: float) -> None:
        self._lag.add(seconds)

    def record(self, labels: Labels, code: int, seconds: float | None) -> None:
        if labels not in self._requests:
            self._requests[labels], self._seconds[labels] = Counter(), _Durations()
        self._requests[labels][code] += 1
        if seconds is not None:
            self._seconds[labels].add(seconds)

    def text(self) -> bytes:
        return generate_latest(self._collectors)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield self._request_counts()
        yield _histogram(
            "apiserver_request_duration_seconds",
            "Time from the request to its whole answer; watches are left out.",
            ("verb", "resource", "subresource"),
            self._seconds.items(),
        )
        yield _histogram(
            "apiserver_loop_lag_seconds",
            "How much later than asked the event loop wakes up.",
            (),
            [((), self._lag)],
        )
        yield GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being answered; watches are left out.",
            self._in_flight(),
        )
        yield GaugeMetricFamily("apiserver_watchers", "Open watches.", self._cache.watcher_count())
        yield self._object_counts()

    def _request_counts(self) -> Metric:
        labels = ("verb", "resource", "subresource", "code")
        requests = CounterMetricFamily("apiserver_request", "Requests answered.", labels=labels)
        for words, codes in self._requests.items():
            for code, count in codes.items():
                requests.add_metric((*words, str(code)), count)
        return requests

    def _object_counts(self) -> Metric:
        objects = GaugeMetricFamily(
            "apiserver_storage_objects", "Objects kept.", labels=("resource",)
        )
        for resource in RESOURCES:
            objects.add_metric((resource.plural,), self._cache.object_count(resource))
        return objects


class _Durations:
    """How many took how long."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(_BUCKETS, seconds)] += 1
        self._total += seconds

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """As Prometheus counts: each bucket with all below it."""
        buckets, reached = [], 0
        for limit, count in zip(_LIMITS, self._counts, strict=True):
            reached += count
            buckets.append((limit, float(reached)))
        family.add_metric(labels, buckets, self._total)


def _histogram(
    name: str,
    help_text: str,
    labels: Sequence[str],
    series: Iterable[tuple[Sequence[str], _Durations]],
) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for words, durations in series:
        durations.add_to(family, words)
    return family
