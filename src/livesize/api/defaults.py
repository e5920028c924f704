"""Fills in what Kubernetes fills in, so that clients read back what they expect.

Quantities come out canonical ("1000m" → "1"), and null means absent. An object of the wrong shape
comes back as far as it could be read: validation refuses it next.
"""

from __future__ import annotations

from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.nulls import without_nulls
from livesize.api.objects import Object


def default_object(resource: Resource, obj: Object) -> Object:
    """``obj`` with everything filled in; doing it twice changes nothing more."""
    pruned = {"apiVersion": resource.api_version, "kind": resource.kind, **without_nulls(obj)}
    fill = kind_of(resource).defaults
    return pruned if fill is None else fill(pruned)
