"""What was counted, as Prometheus reads it. Importing this takes long: do so when it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from livesize.machinery.durations import BUCKETS, Durations

Family: TypeAlias = Metric
_Labels: TypeAlias = Sequence[str]

_LIMITS = (*(str(float(seconds)) for seconds in BUCKETS), "+Inf")


def exposition(families: Iterable[Family]) -> bytes:
    collectors = CollectorRegistry()
    collectors.register(_Families(families))
    return generate_latest(collectors)


def gauge(
    name: str, help_text: str, labels: _Labels, series: Iterable[tuple[_Labels, float]]
) -> Family:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for words, value in series:
        family.add_metric(words, value)
    return family


def counter(
    name: str, help_text: str, labels: _Labels, series: Iterable[tuple[_Labels, float]]
) -> Family:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for words, count in series:
        family.add_metric(words, count)
    return family


def histogram(
    name: str, help_text: str, labels: _Labels, series: Iterable[tuple[_Labels, Durations]]
) -> Family:
    """As Prometheus counts: each bucket with all below it."""
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for words, durations in series:
        buckets, reached = [], 0
        for limit, count in zip(_LIMITS, durations.counts, strict=True):
            reached += count
            buckets.append((limit, float(reached)))
        family.add_metric(words, buckets, durations.total)
    return family


class _Families:
    """A collector, which is asked once."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
