"""Decides what a Node says while nobody hears of it, and which taints go with what it says. Pure.

Of a node that is silent for longer than its lease lasts nobody knows the state: its conditions
become Unknown, each with the reason NodeStatusUnknown. The node itself says what is true again when
it is back; that is not decided here. Taints follow from the conditions and from spec.unschedulable,
one each; taints of other keys belong to others and stay. All of them keep new pods away, none of
them sends pods off: a node that cannot be reached may be running them well.

Invariant: a planned node is planned again to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.conditions import find_condition, set_condition
from livesize.api.objects import Object, lookup
from livesize.api.reasons import ConditionType, Reason

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OURS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
_SILENT = "Kubelet stopped posting node status."
_NEVER_HEARD = "Kubelet never posted node status."


class NodePlan(msgspec.Struct, frozen=True):
    """What is to be written; None where it is so already."""

    conditions: list[Object] | None = None
    taints: list[Object] | None = None


def plan_node(node: Object, *, is_silent: bool, now: str) -> NodePlan:
    before: list[Object] = list(lookup(node, "status", "conditions", default=[]))
    conditions = _unknown(before, now) if is_silent else before
    ready = find_condition({"status": {"conditions": conditions}}, ConditionType.READY)
    had: list[Object] = list(lookup(node, "spec", "taints", default=[]))
    taints = _taints(had, _keys(node, ready), now)
    return NodePlan(
        conditions if conditions != before else None,
        taints if taints != had else None,
    )


def _unknown(conditions: Sequence[Object], now: str) -> list[Object]:
    """Every condition a node reports, and Ready also where it never did."""
    written = list(conditions)
    known = {one.get("type") for one in conditions}
    for one in conditions:
        if one.get("status") != "Unknown":
            unknown = {**one, "status": "Unknown"}
            unknown |= {"reason": Reason.NODE_STATUS_UNKNOWN.value, "message": _SILENT}
            written = set_condition(written, unknown, now)
    if ConditionType.READY.value not in known:
        never: Object = {"type": ConditionType.READY.value, "status": "Unknown"}
        never |= {"reason": "NodeStatusNeverUpdated", "message": _NEVER_HEARD}
        written = set_condition(written, never, now)
    return written


def _keys(node: Object, ready: Object | None) -> list[str]:
    status = ready.get("status") if ready is not None else None
    keys = [key for word, key in (("Unknown", UNREACHABLE), ("False", NOT_READY)) if word == status]
    if lookup(node, "spec", "unschedulable", default=False):
        keys.append(UNSCHEDULABLE)
    return keys


def _taints(had: Sequence[Object], keys: Sequence[str], now: str) -> list[Object]:
    """Those that are there already keep their place and the time they were added."""
    kept = [one for one in had if one.get("key") not in OURS or one.get("key") in keys]
    present = {one.get("key") for one in kept}
    added = [
        {"key": key, "effect": "NoSchedule", "timeAdded": now} for key in keys if key not in present
    ]
    return [*kept, *added]
