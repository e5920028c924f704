"""What an eviction does besides the deletion: it charges the budget that protects the pod."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.disruption import Charged, Disputed, DisruptionJudge, Protected, Unprotected
from livesize.api.errors import Cause, StatusError, conflict
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.apiserver.commit import ExtraWrite
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.subresources.pod_eviction import with_disruption

_TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."


class EvictionGuard:
    def __init__(self, cache: ObjectsCache) -> None:
        self._cache = cache

    def mark(self, stored: Object, now: str) -> Object:
        return with_disruption(stored, now)

    def charge(self, pod: ObjectRecord, now: str) -> Sequence[ExtraWrite]:
        """The budget to be stored with the pod's deletion; raises StatusError where that has
        nothing left to give."""
        charged: list[ExtraWrite] = []
        for resource in REGISTRY.stored():
            judge = kind_of(resource).judge_eviction
            if judge is not None:
                charged += self._charge(resource, judge, pod, now)
        return charged

    def _charge(
        self, resource: Resource, judge: DisruptionJudge, pod: ObjectRecord, now: str
    ) -> Sequence[ExtraWrite]:
        budgets = self._cache.records(resource, pod.namespace)
        match judge(pod.stored, [record.stored for record in budgets], now):
            case Unprotected():
                return ()
            case Charged(budget=charged):
                name = charged["metadata"]["name"]
                before = next(record for record in budgets if record.name == name)
                return (ExtraWrite(resource, charged, before),)
            case Protected(why=why, retry_seconds=seconds):
                details = {"retryAfterSeconds": seconds} if seconds else {}
                cause = Cause("DisruptionBudget", why)
                raise StatusError(
                    429, "TooManyRequests", _TOO_MANY, details=details, causes=[cause]
                )
            case Disputed(budgets=names):
                listed = ", ".join(names)
                why = f"the pod has more than one {resource.kind} ({listed}): leave it one"
                raise conflict(PODS, pod.name, why)
