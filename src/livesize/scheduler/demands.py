"""What the claims of a pod ask of the node it goes to. Pure.

A pod that is placed decides for others: where a claim's volume will be, and which volume nobody
else gets. ``Decided`` carries that through a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object
from livesize.api.placement import matches_terms
from livesize.api.volume_choice import NodeFacts

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Unmet(msgspec.Struct, frozen=True, tag=True):
    """Whatever the node: ``why`` is a sentence without its full stop."""

    why: str


class OnNodesOf(msgspec.Struct, frozen=True, tag=True):
    """Where this volume is; None: everywhere."""

    volume: str
    terms: tuple[Object, ...] | None

    def reaches(self, node: NodeFacts) -> bool:
        return self.terms is None or matches_terms(self.terms, node.name, node.labels)


class WithAnother(msgspec.Struct, frozen=True, tag=True):
    """Another pod has decided already where the claim's volume will be."""

    node: str


class Free(msgspec.Struct, frozen=True, tag=True):
    """The volume is made where the pod goes."""


class OneOf(msgspec.Struct, frozen=True, tag=True):
    """One of these volumes has to be there, the best first."""

    choices: tuple[OnNodesOf, ...]


Need: TypeAlias = Unmet | OnNodesOf | WithAnother | Free | OneOf


class ClaimDemand(msgspec.Struct, frozen=True):
    """``one_pod``: nobody else may use the claim."""

    claim: ClaimKey
    need: Need
    one_pod: bool = False


class Decided:
    """What the placements of this turn mean for the pods after them."""

    def __init__(self) -> None:
        self._nodes: dict[ClaimKey, str] = {}
        self._taken: set[str] = set()

    def left(self, demands: Iterable[ClaimDemand]) -> tuple[ClaimDemand, ...]:
        return tuple(self._left(demand) for demand in demands)

    def place(self, demands: Iterable[ClaimDemand], node: str, volumes: Iterable[str]) -> None:
        for demand in demands:
            self._nodes[demand.claim] = node
        self._taken.update(volumes)

    def _left(self, demand: ClaimDemand) -> ClaimDemand:
        node = self._nodes.get(demand.claim)
        if node is not None and demand.one_pod:
            return msgspec.structs.replace(demand, need=Unmet(another_pod(demand.claim)))
        match demand.need:
            case Free() | OneOf() if node is not None:
                return msgspec.structs.replace(demand, need=WithAnother(node))
            case OneOf(choices):
                left = tuple(one for one in choices if one.volume not in self._taken)
                return msgspec.structs.replace(demand, need=OneOf(left))
            case _:
                return demand


def another_pod(claim: ClaimKey) -> str:
    return f'persistentvolumeclaim "{claim[1]}" is for one pod, and another one uses it'


def unmet(demands: Iterable[ClaimDemand]) -> str:
    """Why no node will do; empty where one may."""
    return next((one.need.why for one in demands if isinstance(one.need, Unmet)), "")


def against(demands: Iterable[ClaimDemand], node: NodeFacts) -> str:
    """Why this node will not do, in Kubernetes' words."""
    taken: set[str] = set()
    for demand in demands:
        match demand.need:
            case OnNodesOf() as bound if not bound.reaches(node):
                return "node(s) had volume node affinity conflict"
            case WithAnother(name) if name != node.name:
                return "node(s) had volume node affinity conflict"
            case OneOf(choices):
                chosen = _first(choices, node, taken)
                if not chosen:
                    return "node(s) didn't find available persistent volumes to bind"
                taken.add(chosen)
            case _:
                pass
    return ""


def chosen_volumes(
    demands: Iterable[ClaimDemand], node: NodeFacts
) -> tuple[tuple[ClaimKey, str], ...]:
    """Which volume of those that are there each claim will have on this node."""
    found: dict[ClaimKey, str] = {}
    for demand in demands:
        match demand.need:
            case OneOf(choices):
                found[demand.claim] = _first(choices, node, set(found.values()))
            case _:
                pass
    return tuple(found.items())


def _first(choices: Iterable[OnNodesOf], node: NodeFacts, taken: set[str]) -> str:
    reached = (one.volume for one in choices if one.reaches(node) and one.volume not in taken)
    return next(reached, "")
