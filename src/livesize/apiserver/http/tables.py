"""Objects as rows of a table, for kubectl get and kubectl get -w."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from livesize.api.errors import bad_request
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.table import table_for
from livesize.apiserver.http.requests import Form, Request
from livesize.apiserver.records import ObjectRecord

_GROUP = "meta.k8s.io"
_INCLUDED = ("None", "Metadata", "Object")


def included_of(request: Request) -> str:
    """How much of each object goes with its row."""
    included = request.query.get("includeObject") or "Metadata"
    if included not in _INCLUDED:
        raise bad_request(f"includeObject must be one of {', '.join(_INCLUDED)}")
    return included


def table(
    resource: Resource,
    records: Sequence[ObjectRecord],
    metadata: Object,
    *,
    form: Form,
    included: str,
    now: float,
) -> Object:
    made = table_for(resource, [record.served for record in records], now=now)
    rows = [
        {**row, **_row_object(record, form, included)}
        for row, record in zip(made["rows"], records, strict=True)
    ]
    return {
        "kind": "Table",
        "apiVersion": f"{_GROUP}/{form}",
        "metadata": metadata,
        "columnDefinitions": made["columnDefinitions"],
        "rows": rows,
    }


def _row_object(record: ObjectRecord, form: Form, included: str) -> Object:
    if included == "None":
        return {}
    if included == "Object":
        return {"object": orjson.Fragment(record.encoded)}
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{_GROUP}/{form}",
        "metadata": record.served["metadata"],
    }
    return {"object": partial}
