"""Events that come with a posted subresource: which of them are about the object. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.apiserver.request_types import Target

MAX_EVENTS = 16


def attached_event_errors(target: Target, events: Sequence[Object]) -> list[FieldError]:
    if len(events) > MAX_EVENTS:
        detail = f"must have at most {MAX_EVENTS} items"
        return [FieldError(FieldErrorKind.TOO_MANY, "events", detail, len(events))]
    return [
        FieldError(
            FieldErrorKind.INVALID,
            f"events[{index}].involvedObject",
            f"must be the {target.resource.kind} {target.namespace}/{target.name}",
            event.get("involvedObject"),
        )
        for index, event in enumerate(events)
        if _whom(event) != (target.resource.kind, target.namespace, target.name)
    ]


def _whom(event: Object) -> tuple[str, ...]:
    whom = event.get("involvedObject")
    if not isinstance(whom, dict):
        return ()
    return whom.get("kind", ""), whom.get("namespace", ""), whom.get("name", "")
