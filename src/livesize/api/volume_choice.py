"""Which volume a claim gets of those that are there. Pure.

Scheduler and controller choose by the same rules, so that a pod is sent only where its claim finds
its volume. Of several that will do the smallest wins, then the first by name: what is large stays
for who needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from livesize.api.objects import Object, lookup, name_of
from livesize.api.placement import matches_terms
from livesize.api.selectors import LabelMatcher, parse_selector
from livesize.api.storage import (
    capacity,
    claim_key,
    class_of,
    is_going,
    is_set_aside_for,
    mode_of,
    node_terms,
    requested,
)


class NodeFacts(msgspec.Struct, frozen=True):
    """What volumes select nodes by."""

    name: str
    labels: Mapping[str, str] = {}


def reaches(volume: Object, node: NodeFacts) -> bool:
    """Pods on the node can have the volume."""
    terms = node_terms(volume)
    return terms is None or matches_terms(terms, node.name, node.labels)


def misfit(volume: Object, claim: Object) -> str:
    """Why the volume will not do for the claim; empty where it does."""
    if mode_of(volume) != mode_of(claim):
        return f"its volumeMode is {mode_of(volume)}, and the claim asks for {mode_of(claim)}"
    if class_of(volume) != class_of(claim):
        return f'its storageClassName is "{class_of(volume)}", the claim\'s "{class_of(claim)}"'
    if capacity(volume) < requested(claim):
        held = lookup(volume, "spec", "capacity", "storage", default="0")
        asked = lookup(claim, "spec", "resources", "requests", "storage", default="0")
        return f"it holds {held}, and the claim asks for {asked}"
    offered = lookup(volume, "spec", "accessModes", default=[])
    asked_modes = lookup(claim, "spec", "accessModes", default=[])
    missing = [mode for mode in asked_modes if mode not in offered]
    return f"it does not offer {', '.join(missing)}" if missing else ""


def choose_volume(
    claim: Object,
    volumes: Iterable[Object],
    node: NodeFacts | None = None,
    taken: Collection[str] = (),
) -> Object | None:
    """The best one that nobody else has; ``node``: one that its pods can have, None: any."""
    selector = parse_selector(lookup(claim, "spec", "selector", default={}))
    found = [
        volume
        for volume in volumes
        if name_of(volume) not in taken
        and not is_going(volume)
        and (node is None or reaches(volume, node))
        and not misfit(volume, claim)
        and _is_free_for(volume, claim, selector)
    ]
    return min(found, key=lambda one: _preference(one, claim), default=None)


def _is_free_for(volume: Object, claim: Object, selector: LabelMatcher) -> bool:
    """Kept for this claim, whatever its labels; or for nobody, and selected."""
    if claim_key(volume) is not None:
        return is_set_aside_for(volume, claim)
    return selector.matches(lookup(volume, "metadata", "labels", default={}))


def _preference(volume: Object, claim: Object) -> tuple[bool, int, str]:
    return not is_set_aside_for(volume, claim), capacity(volume), name_of(volume)
