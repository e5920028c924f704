"""Decides whether what a quota says is used is what is used. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.quota import recount


def plan_recount(quota: Object, objects: Iterable[tuple[Resource, Object]]) -> Object | None:
    """The quota as it should be; None where it is. ``objects`` is all of its namespace, read after
    the quota was: whatever has changed since has changed the quota too, and is found out then."""
    counted = recount(quota, objects)
    return None if counted.get("status") == quota.get("status") else counted
