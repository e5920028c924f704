"""The strategies by the names that kinds give them."""

from __future__ import annotations

from collections.abc import Mapping

from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.apiserver.strategies.pod import PodStrategy
from livesize.apiserver.strategies.storage import ClaimStrategy, VolumeStrategy
from livesize.apiserver.strategies.strategy import Strategy
from livesize.apiserver.strategies.workload import HeldWorkloadStrategy, WorkloadStrategy

STRATEGIES: Mapping[str, Strategy] = {
    "": Strategy(),
    "claim": ClaimStrategy(),
    "held-workload": HeldWorkloadStrategy(),
    "pod": PodStrategy(),
    "volume": VolumeStrategy(),
    "workload": WorkloadStrategy(),
}


def strategy_of(resource: Resource) -> Strategy:
    return STRATEGIES[kind_of(resource).strategy]
