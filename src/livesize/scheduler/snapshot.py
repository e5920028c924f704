"""What the scheduler believes: nodes, what their pods use, and which pods wait for a node.

Built from objects as they arrive, one by one, so that a turn does not have to read the whole
cluster again; the same objects in any order give the same picture. A pod that was just placed is
*assumed* to be there until the API says so, or says that it could not be. Does no IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from livesize.api.accounting import footprint, requests_of
from livesize.api.conditions import is_true
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.placement import affinity_terms
from livesize.api.quantity import NANO, parse_quantity
from livesize.api.reasons import ConditionType
from livesize.api.resize_phase import ResizePhase
from livesize.api.resize_state import is_bound, is_terminal, phase_of
from livesize.api.resources import (
    ZERO,
    Amounts,
    ResourceName,
    maximum,
    or_zero,
    parse_amounts,
    total,
)
from livesize.api.storage import claims_of
from livesize.scheduler.demands import ClaimKey
from livesize.scheduler.plan import NodeView, WaitingPod, opens_up

DEFAULT_SCHEDULER_NAME = "default-scheduler"

Uid: TypeAlias = str


class _Charge(msgspec.Struct, frozen=True):
    """What one pod takes from one node."""

    node: str
    amounts: Amounts
    claims: tuple[ClaimKey, ...] = ()


class ClusterSnapshot:
    """``set_*`` and ``drop_*`` tell the truth of the API and answer whether the change could make
    room for somebody who found none."""

    def __init__(self, scheduler_name: str = DEFAULT_SCHEDULER_NAME) -> None:
        self._scheduler_name = scheduler_name
        self._nodes: dict[str, NodeView] = {}
        self._charges: dict[Uid, _Charge] = {}
        self._assumed: dict[Uid, _Charge] = {}
        self._on_node: dict[str, dict[Uid, Amounts]] = {}
        self._waiting: dict[Uid, WaitingPod] = {}
        self._users: dict[ClaimKey, dict[Uid, str]] = {}

    @classmethod
    def of(cls, nodes: Iterable[Object], pods: Iterable[Object]) -> ClusterSnapshot:
        snapshot = cls()
        for node in nodes:
            snapshot.set_node(node)
        for pod in pods:
            snapshot.set_pod(pod)
        return snapshot

    def nodes(self) -> list[NodeView]:
        """In order of name, with what is used and assumed."""
        return [self._with_usage(self._nodes[name]) for name in sorted(self._nodes)]

    def waiting(self, uid: Uid) -> WaitingPod | None:
        """The pod, if it waits for a node and is not assumed to be on one."""
        return None if uid in self._assumed else self._waiting.get(uid)

    def is_on(self, uid: Uid, node: str) -> bool:
        """The API has said that the pod is on this node."""
        charge = self._charges.get(uid)
        return charge is not None and charge.node == node and uid not in self._assumed

    def users_of_claims(self) -> Mapping[ClaimKey, Mapping[Uid, str]]:
        """The node of each pod that uses a claim, assumed or known to be there."""
        return self._users

    def room_for(self, pod: Object) -> tuple[Amounts, Amounts] | None:
        """What the others on the pod's node use, and what is allocatable there."""
        name = lookup(pod, "spec", "nodeName", default="")
        node = self._nodes.get(name)
        if node is None:
            return None
        others = self._on_node.get(name, {}).items()
        used = total(amounts for uid, amounts in others if uid != uid_of(pod))
        return or_zero(used), node.allocatable

    def set_node(self, node: Object) -> bool:
        view = node_view(node)
        before = self._nodes.get(view.name)
        self._nodes[view.name] = view
        return before != view and opens_up(before, view)

    def drop_node(self, node: Object) -> bool:
        self._nodes.pop(name_of(node), None)
        return False

    def set_pod(self, pod: Object) -> bool:
        uid = uid_of(pod)
        if not _waits(pod, self._scheduler_name):
            self._waiting.pop(uid, None)
        else:
            self._waiting[uid] = pod_view(pod)
        if is_terminal(pod):
            return self._release(uid)
        if not is_bound(pod):
            return False
        self._assumed.pop(uid, None)
        claims = tuple((namespace_of(pod), name) for name in claims_of(pod))
        return self._charge(uid, _Charge(lookup(pod, "spec", "nodeName"), _charge_of(pod), claims))

    def drop_pod(self, pod: Object) -> bool:
        self._waiting.pop(uid_of(pod), None)
        return self._release(uid_of(pod))

    def assume(self, pod: WaitingPod, node: str) -> None:
        charge = _Charge(node, pod.requests, tuple((pod.namespace, name) for name in pod.claims))
        self._assumed[pod.uid] = charge
        self._charge(pod.uid, charge)

    def forget_assumed(self, uid: Uid) -> bool:
        """The pod did not get there; what it would have used is free again."""
        if self._assumed.pop(uid, None) is None:
            return False
        return self._release(uid)

    def _charge(self, uid: Uid, charge: _Charge) -> bool:
        old = self._charges.get(uid)
        if old is not None and old.node != charge.node:
            self._release(uid)
        self._charges[uid] = charge
        self._on_node.setdefault(charge.node, {})[uid] = charge.amounts
        for claim in charge.claims:
            self._users.setdefault(claim, {})[uid] = charge.node
        return old is not None and (
            old.node != charge.node or _is_smaller(charge.amounts, old.amounts)
        )

    def _release(self, uid: Uid) -> bool:
        self._assumed.pop(uid, None)
        charge = self._charges.pop(uid, None)
        if charge is None:
            return False
        on_node = self._on_node[charge.node]
        del on_node[uid]
        if not on_node:
            del self._on_node[charge.node]
        for claim in charge.claims:
            self._users[claim].pop(uid, None)
            if not self._users[claim]:
                del self._users[claim]
        return True

    def _with_usage(self, node: NodeView) -> NodeView:
        on_node = self._on_node.get(node.name, {})
        return msgspec.structs.replace(
            node, used=or_zero(total(on_node.values())), pod_count=len(on_node)
        )


def pod_view(pod: Object) -> WaitingPod:
    selector = lookup(pod, "spec", "nodeSelector", default={})
    return WaitingPod(
        namespace=namespace_of(pod),
        name=name_of(pod),
        uid=uid_of(pod),
        requests=footprint(pod),
        node_selector=tuple(sorted(selector.items())),
        affinity=affinity_terms(pod["spec"]),
        tolerations=tuple(lookup(pod, "spec", "tolerations", default=[])),
        priority=lookup(pod, "spec", "priority", default=0),
        created_at=lookup(pod, "metadata", "creationTimestamp", default=""),
        claims=claims_of(pod),
    )


def node_view(node: Object) -> NodeView:
    """The node alone; what its pods use is added by the snapshot."""
    allocatable = lookup(node, "status", "allocatable", default={})
    pods = allocatable.get("pods")
    return NodeView(
        name=name_of(node),
        allocatable=or_zero(parse_amounts(allocatable)),
        used=ZERO,
        maximum_pods=None if pods is None else parse_quantity(pods) // NANO,
        labels=lookup(node, "metadata", "labels", default={}),
        taints=tuple(lookup(node, "spec", "taints", default=[])),
        is_ready=is_true(node, ConditionType.READY),
        is_unschedulable=bool(lookup(node, "spec", "unschedulable", default=False)),
    )


def _charge_of(pod: Object) -> Amounts:
    """The footprint; where we have accepted a resize that the node has not seen, what it asks."""
    kept = footprint(pod)
    return maximum(kept, requests_of(pod)) if phase_of(pod) is ResizePhase.ACCEPTED else kept


def _waits(pod: Object, scheduler_name: str) -> bool:
    spec = lookup(pod, "spec", default={})
    return (
        not is_bound(pod)
        and not is_terminal(pod)
        and not lookup(pod, "metadata", "deletionTimestamp")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", DEFAULT_SCHEDULER_NAME) == scheduler_name
    )


def _is_smaller(new: Amounts, old: Amounts) -> bool:
    return any(
        (new.amount(resource) or 0) < (old.amount(resource) or 0) for resource in ResourceName
    )
