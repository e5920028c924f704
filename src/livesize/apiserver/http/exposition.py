"""What was counted about requests, in Prometheus' families."""

from __future__ import annotations

from collections.abc import Iterator

from livesize.apiserver.http.metrics import Metrics
from livesize.machinery.exposition import Family, counter, gauge, histogram


def request_families(metrics: Metrics) -> Iterator[Family]:
    yield counter(
        "apiserver_request",
        "Requests answered.",
        ("verb", "resource", "subresource", "code"),
        [
            ((*words, str(code)), count)
            for words, codes in metrics.requests.items()
            for code, count in codes.items()
        ],
    )
    yield histogram(
        "apiserver_request_duration_seconds",
        "Time from the request to its whole answer; watches are left out.",
        ("verb", "resource", "subresource"),
        metrics.seconds.items(),
    )
    yield histogram(
        "apiserver_loop_lag_seconds",
        "How much later than asked the event loop wakes up.",
        (),
        [((), metrics.lag)],
    )
    yield gauge(
        "apiserver_current_inflight_requests",
        "Requests being answered; watches are left out.",
        (),
        [((), metrics.in_flight())],
    )
    yield gauge("apiserver_watchers", "Open watches.", (), [((), metrics.watchers())])
    yield gauge(
        "apiserver_storage_objects",
        "Objects kept.",
        ("resource",),
        [((plural,), count) for plural, count in metrics.objects().items()],
    )
