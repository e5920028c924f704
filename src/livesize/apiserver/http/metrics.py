"""What is counted about requests, for /metrics."""

from __future__ import annotations

import functools
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from livesize.api.kinds import RESOURCES
from livesize.apiserver.objects_cache import ObjectsCache

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    def __init__(self, cache: ObjectsCache, in_flight: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._known: dict[tuple[tuple[str, str, str], int], tuple[Counter, Histogram]] = {}
        self._requests = Counter(
            "apiserver_request",
            "Requests answered.",
            ("verb", "resource", "subresource", "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "apiserver_request_duration_seconds",
            "Time from the request to its whole answer; watches are left out.",
            ("verb", "resource", "subresource"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._lag = Histogram(
            "apiserver_loop_lag_seconds",
            "How much later than asked the event loop wakes up.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        requests = Gauge(
            "apiserver_current_inflight_requests",
            "Requests being answered; watches are left out.",
            registry=self._registry,
        )
        requests.set_function(in_flight)
        watchers = Gauge("apiserver_watchers", "Open watches.", registry=self._registry)
        watchers.set_function(cache.watcher_count)
        objects = Gauge(
            "apiserver_storage_objects", "Objects kept.", ("resource",), registry=self._registry
        )
        for resource in RESOURCES:
            count = functools.partial(cache.object_count, resource)
            objects.labels(resource.plural).set_function(count)

    def record_lag(self, seconds: float) -> None:
        self._lag.observe(seconds)

    def record(self, labels: tuple[str, str, str], code: int, seconds: float | None) -> None:
        """``labels``: verb, resource, subresource."""
        requests, durations = self._series(labels, code)
        requests.inc()
        if seconds is not None:
            durations.observe(seconds)

    def _series(self, labels: tuple[str, str, str], code: int) -> tuple[Counter, Histogram]:
        """Kept, because finding them anew costs as much as the rest of a small request."""
        found = self._known.get((labels, code))
        if found is None:
            found = self._requests.labels(*labels, str(code)), self._seconds.labels(*labels)
            self._known[labels, code] = found
        return found

    def text(self) -> bytes:
        return generate_latest(self._registry)
