"""Decides whether what a quota says is used is what is used. Pure."""

from __future__ import annotations

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.quota import add_usage, with_status
from livesize.api.quota_rule import QuotaUsage


class QuotaCount:
    """Counts object by object, so that a namespace is never in memory as a whole."""

    def __init__(self, quota: Object) -> None:
        self._quota = quota
        self._used: QuotaUsage = {}

    def add(self, resource: Resource, obj: Object) -> None:
        """An object of the quota's namespace, read after the quota was: whatever has changed since
        has changed the quota too, and is found out then."""
        add_usage(self._used, self._quota, resource, obj)

    def plan(self) -> Object | None:
        """The quota as it should be; None where it is."""
        counted = with_status(self._quota, self._used)
        return None if counted.get("status") == self._quota.get("status") else counted
