"""What was counted, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from livesize.apiserver.http.metrics import BUCKETS, Durations, Metrics

_LIMITS = (*(str(float(seconds)) for seconds in BUCKETS), "+Inf")


def exposition(metrics: Metrics) -> bytes:
    collectors = CollectorRegistry()
    collectors.register(_Families(metrics))
    return generate_latest(collectors)


class _Families:
    """A collector, which is asked once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _requests(metrics)
        yield _histogram(
            "apiserver_request_duration_seconds",
            "Time from the request to its whole answer; watches are left out.",
            ("verb", "resource", "subresource"),
            metrics.seconds.items(),
        )
        yield _histogram(
            "apiserver_loop_lag_seconds",
            "How much later than asked the event loop wakes up.",
            (),
            [((), metrics.lag)],
        )
        yield GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being answered; watches are left out.",
            metrics.in_flight(),
        )
        yield GaugeMetricFamily("apiserver_watchers", "Open watches.", metrics.watchers())
        yield _objects(metrics)


def _requests(metrics: Metrics) -> Metric:
    labels = ("verb", "resource", "subresource", "code")
    family = CounterMetricFamily("apiserver_request", "Requests answered.", labels=labels)
    for words, codes in metrics.requests.items():
        for code, count in codes.items():
            family.add_metric((*words, str(code)), count)
    return family


def _objects(metrics: Metrics) -> Metric:
    family = GaugeMetricFamily("apiserver_storage_objects", "Objects kept.", labels=("resource",))
    for plural, count in metrics.objects().items():
        family.add_metric((plural,), count)
    return family


def _histogram(
    name: str,
    help_text: str,
    labels: Sequence[str],
    series: Iterable[tuple[Sequence[str], Durations]],
) -> Metric:
    """As Prometheus counts: each bucket with all below it."""
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for words, durations in series:
        buckets, reached = [], 0
        for limit, count in zip(_LIMITS, durations.counts, strict=True):
            reached += count
            buckets.append((limit, float(reached)))
        family.add_metric(words, buckets, durations.total)
    return family
