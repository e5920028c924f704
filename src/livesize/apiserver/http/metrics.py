"""What is counted about requests, for /metrics.

Counted in plain numbers, and written in Prometheus' words only when a client asks for them
(livesize.apiserver.http.exposition): every request is counted, /metrics is read twice a minute, and
by many installations never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from livesize.api.kinds.registry import REGISTRY
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.machinery.durations import Durations

if TYPE_CHECKING:
    from livesize.machinery.exposition import Family

Labels: TypeAlias = tuple[str, str, str]
"""Verb, resource, subresource."""


class Metrics:
    def __init__(
        self,
        cache: ObjectsCache,
        in_flight: Callable[[], int],
        others: Sequence[Callable[[], Iterable[Family]]],
    ) -> None:
        """``others``: what other parts of this process count."""
        self.requests: dict[Labels, Counter[int]] = {}  # by code
        self.seconds: dict[Labels, Durations] = {}
        self.lag = Durations()
        self.in_flight = in_flight
        self.watchers = cache.watcher_count
        self._others = others
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
        from livesize.apiserver.http.exposition import request_families
        from livesize.machinery.exposition import exposition

        others = [family for families in self._others for family in families()]
        return exposition([*request_families(self), *others])
