"""Objects as `kubectl edit` can work with them. kubectl says in a header which of its commands is
asking."""

from __future__ import annotations

import msgspec

from livesize.apiserver.http.requests import Request
from livesize.apiserver.records import ObjectRecord, encode
from livesize.apiserver.strategies.lookup import strategy_of

_COMMAND = "kubectl edit"


def is_edited(request: Request) -> bool:
    return request.headers.get("kubectl-command", "") == _COMMAND


def editable(record: ObjectRecord) -> ObjectRecord:
    """The record with the bytes that `kubectl edit` is shown."""
    shown = strategy_of(record.resource).editable(record.served)
    if shown is record.served:
        return record
    return msgspec.structs.replace(record, encoded=encode(shown))
