"""Objects as rows, the way kubectl prints them (meta.k8s.io/v1 Table).

``table_for`` gives ``columnDefinitions`` and ``rows``. The API server puts the object itself, or
its metadata, into each row.
"""

from __future__ import annotations

from collections.abc import Iterable

from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object


def table_for(resource: Resource, objects: Iterable[Object], *, now: float) -> Object:
    """``{columnDefinitions, rows: [{cells}]}`` for the objects, in their order."""
    columns = kind_of(resource).columns
    return {
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [{"cells": [column.cell(obj, now) for column in columns]} for obj in objects],
    }
