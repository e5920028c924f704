"""Decides which node a pod goes to, or says of every node why not. Pure.

A node is possible when it is ready, not closed to new pods, has no taint that the pod does not
tolerate, has the labels that the pod selects by, can have the volumes of its claims, and has room:
what is used (the footprints of its pods) plus the pod's requests is at most what is allocatable. Of
the possible nodes those that do not ask to be avoided win, and of them the emptiest and best
balanced one.

Invariant: a turn never overfills a node, whatever the pods and their order, because each placement
is charged before the next pod is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object
from livesize.api.placement import TaintEffect, matches_terms, untolerated
from livesize.api.resources import ZERO, Amounts, ResourceName, add
from livesize.api.volume_choice import NodeFacts
from livesize.scheduler.demands import (
    ClaimDemand,
    ClaimKey,
    Decided,
    against,
    chosen_volumes,
    unmet,
)

_FULL_SCORE = 1000
_HARD = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
_SOFT = (TaintEffect.PREFER_NO_SCHEDULE,)


class WaitingPod(msgspec.Struct, frozen=True):
    """What the scheduler needs to know of a pod that waits for a node."""

    namespace: str
    name: str
    uid: str
    requests: Amounts
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Object, ...] | None = None  # one of these terms has to match
    tolerations: tuple[Object, ...] = ()
    priority: int = 0
    created_at: str = ""
    claims: tuple[str, ...] = ()
    demands: tuple[ClaimDemand, ...] = ()  # of its claims; filled in for a turn


class NodeView(msgspec.Struct, frozen=True):
    """A node and what its pods use; ``maximum_pods`` None means as many as fit."""

    name: str
    allocatable: Amounts
    used: Amounts = ZERO
    pod_count: int = 0
    maximum_pods: int | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[Object, ...] = ()
    is_ready: bool = True
    is_unschedulable: bool = False


class AssignedNode(msgspec.Struct, frozen=True, tag=True):
    """``volumes``: those that are left for claims of the pod, which have none yet."""

    node: str
    volumes: tuple[tuple[ClaimKey, str], ...] = ()


class Unschedulable(msgspec.Struct, frozen=True, tag=True):
    """No node is possible; ``reasons`` says of how many nodes each was true, ``why`` what no node
    could change."""

    node_count: int
    reasons: tuple[tuple[str, int], ...] = ()
    why: str = ""

    def sentence(self) -> str:
        if self.node_count == 0:
            return "no nodes available to schedule pods"
        if self.why:
            return f"0/{self.node_count} nodes are available: {self.why}."
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons))
        return f"0/{self.node_count} nodes are available: {listed}."


PlacementVerdict: TypeAlias = AssignedNode | Unschedulable


class Placement(msgspec.Struct, frozen=True):
    pod: WaitingPod
    verdict: PlacementVerdict


def plan_turn(pods: Iterable[WaitingPod], nodes: Sequence[NodeView]) -> tuple[Placement, ...]:
    """Place all waiting pods, the more important and then the older ones first."""
    current = {node.name: node for node in nodes}
    placements = []
    decided = Decided()
    for waiting in sorted(pods, key=_turn_order):
        pod = waiting
        if pod.demands:
            pod = msgspec.structs.replace(pod, demands=decided.left(pod.demands))
        verdict = plan_placement(pod, list(current.values()))
        placements.append(Placement(waiting, verdict))
        match verdict:
            case AssignedNode(node=name, volumes=volumes):
                current[name] = charge_node(current[name], pod)
                decided.place(pod.demands, name, (volume for _, volume in volumes))
            case Unschedulable():
                pass
    return tuple(placements)


def plan_placement(pod: WaitingPod, nodes: Sequence[NodeView]) -> PlacementVerdict:
    why = unmet(pod.demands)
    if why:
        return Unschedulable(len(nodes), why=why)
    reasons: Counter[str] = Counter()
    possible = []
    for node in nodes:
        found = _reasons_against(pod, node)
        reasons.update(found)
        if not found:
            possible.append(node)
    if not possible:
        return Unschedulable(len(nodes), tuple(sorted(reasons.items())))
    best = min(possible, key=lambda node: _preference(pod, node))
    return AssignedNode(best.name, chosen_volumes(pod.demands, _facts(best)))


def charge_node(node: NodeView, pod: WaitingPod) -> NodeView:
    """The node with the pod on it."""
    return msgspec.structs.replace(
        node, used=add(node.used, pod.requests), pod_count=node.pod_count + 1
    )


def opens_up(before: NodeView | None, after: NodeView) -> bool:
    """Whether a pod that found no place may find one there now, by what changed of the node. A new
    one, even if it is closed, is one more to tell of."""
    if before is None:
        return True
    if not (_is_open(before) and _is_open(after)):
        return _is_open(after)
    hard = [taint for taint in before.taints if taint.get("effect") in _HARD]
    return (
        before.labels != after.labels
        or any(taint not in after.taints for taint in hard)
        or _most_pods(before) < _most_pods(after)
        or any(
            (before.allocatable.amount(resource) or 0) < (after.allocatable.amount(resource) or 0)
            for resource in ResourceName
        )
    )


def least_allocated(pod: WaitingPod, node: NodeView) -> int:
    """How empty the node would be with the pod on it, in thousandths."""
    cpu, memory = (_filled(pod, node, resource) for resource in ResourceName)
    return _FULL_SCORE - (cpu + memory) // 2


def balanced(pod: WaitingPod, node: NodeView) -> int:
    """How evenly its CPU and memory would be used, in thousandths: a node that is out of one can
    take nothing more, whatever it has of the other."""
    cpu, memory = (_filled(pod, node, resource) for resource in ResourceName)
    return _FULL_SCORE - abs(cpu - memory)


def _is_open(node: NodeView) -> bool:
    return node.is_ready and not node.is_unschedulable


def _most_pods(node: NodeView) -> float:
    return float("inf") if node.maximum_pods is None else node.maximum_pods


def _turn_order(pod: WaitingPod) -> tuple[int, str, str, str]:
    return -pod.priority, pod.created_at, pod.namespace, pod.name


def _reasons_against(pod: WaitingPod, node: NodeView) -> list[str]:
    """Why the pod cannot go there. A node that is not to be used says only that."""
    if node.is_unschedulable:
        return ["node(s) were unschedulable"]
    if not node.is_ready:
        return ["node(s) were not ready"]
    taints = untolerated(node.taints, pod.tolerations, _HARD)
    if taints:
        return [f"node(s) had untolerated taint {_words(taints[0])}"]
    if not _is_selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    conflict = against(pod.demands, _facts(node)) if pod.demands else ""
    if conflict:
        return [conflict]
    lacking = [
        f"Insufficient {resource}"
        for resource in ResourceName
        if not _has_room(pod, node, resource)
    ]
    if node.maximum_pods is not None and node.pod_count >= node.maximum_pods:
        lacking.append("Too many pods")
    return lacking


def _facts(node: NodeView) -> NodeFacts:
    return NodeFacts(node.name, node.labels)


def _is_selected(pod: WaitingPod, node: NodeView) -> bool:
    if any(node.labels.get(key) != value for key, value in pod.node_selector):
        return False
    return pod.affinity is None or matches_terms(pod.affinity, node.name, node.labels)


def _words(taint: Object) -> str:
    return f"{{{taint.get('key')}: {taint.get('value') or ''}}}"


def _has_room(pod: WaitingPod, node: NodeView, resource: ResourceName) -> bool:
    """What a pod does not ask for does not have to fit."""
    requested = pod.requests.amount(resource) or 0
    used = node.used.amount(resource) or 0
    return requested == 0 or used + requested <= (node.allocatable.amount(resource) or 0)


def _preference(pod: WaitingPod, node: NodeView) -> tuple[int, int, int, str]:
    """Smaller is better: not to be avoided; emptiest and most balanced; then fewest pods, for pods
    that ask for nothing and would otherwise pile up; then by name."""
    avoided = len(untolerated(node.taints, pod.tolerations, _SOFT))
    score = least_allocated(pod, node) + balanced(pod, node)
    return avoided, -score, node.pod_count, node.name


def _filled(pod: WaitingPod, node: NodeView, resource: ResourceName) -> int:
    """How full the node would be with the pod, in thousandths."""
    allocatable = node.allocatable.amount(resource) or 0
    if allocatable == 0:
        return _FULL_SCORE
    used = (node.used.amount(resource) or 0) + (pod.requests.amount(resource) or 0)
    return min(_FULL_SCORE, used * _FULL_SCORE // allocatable)
