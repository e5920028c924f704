"""Conditions of an object: read one, and write one without losing when it last changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from livesize.api.objects import Object, lookup


def find_condition(obj: Object, condition_type: str) -> Object | None:
    """The object's condition of that type, if it has one."""
    for condition in lookup(obj, "status", "conditions", default=[]):
        if condition.get("type") == condition_type:
            return dict(condition)
    return None


def is_true(obj: Object, condition_type: str) -> bool:
    condition = find_condition(obj, condition_type)
    return condition is not None and condition.get("status") == "True"


def set_condition(conditions: Sequence[Object], condition: Object, now: str) -> list[Object]:
    """``conditions`` with ``condition`` in place of the one of its type, or at the end.

    lastTransitionTime moves to ``now`` only when the status changes.
    """
    return set_conditions(conditions, [condition], now)


def set_conditions(conditions: Sequence[Object], news: Iterable[Object], now: str) -> list[Object]:
    """The same with several, which go to the end in their order."""
    by_type = {condition["type"]: condition for condition in news}
    left = dict(by_type)
    written: list[Object] = []
    for old in conditions:
        condition = by_type.get(old.get("type"))
        if condition is None:
            written.append(old)
            continue
        left.pop(condition["type"], None)
        same = old.get("status") == condition.get("status")
        since = old.get("lastTransitionTime", now) if same else now
        written.append({**condition, "lastTransitionTime": since})
    written.extend({**condition, "lastTransitionTime": now} for condition in left.values())
    return written
