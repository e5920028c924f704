"""PUT and PATCH of pods/X/resize: resources and resizePolicy of containers, nothing else.

What else the body changes is dropped in silence, as Kubernetes does, except that containers may
not come, go, change their names or their order (facts/api-shapes D.1).
"""

from __future__ import annotations

from livesize.api.dialects import check_derived
from livesize.api.objects import Object, evolve, generation_of, lookup
from livesize.api.plain_resize import PlainResize
from livesize.api.pod_template import default_sizes
from livesize.api.resize_state import requested_state
from livesize.api.validation.resize import prepare_resize, validate_pod_resize
from livesize.apiserver.object_metadata import check_identity
from livesize.apiserver.subresources.change import (
    SentChange,
    folded,
    refuse_forbidden,
    refuse_invalid,
)
from livesize.apiserver.subresources.objects import ask_resize


def resize_pod(change: SentChange) -> Object:
    change = folded(change)
    refuse_forbidden(
        change.target, check_derived(change.incoming, change.served, from_own_node=False)
    )
    check_identity(change.target, change.stored, change.incoming)
    new = default_sizes(_resized(change))
    refuse_invalid(change.target, validate_pod_resize(new, change.stored))
    return ask_resize(change, new)


def ask_plainly(stored: Object, resized: PlainResize, *, requested_by: str, now: str) -> Object:
    """``stored`` with the sizes of a plain resize, which are others than before."""
    metadata = {**stored["metadata"], "generation": generation_of(stored) + 1}
    new = {**stored, "metadata": metadata, "spec": resized.spec}
    state = requested_state(stored, new, resized.changed, requested_by=requested_by, now=now)
    return new if state is None else evolve(new, ("status", "resizeState"), state)


def _resized(change: SentChange) -> Object:
    """Derived fields are dropped with all the rest."""
    keeps = not change.knows_policies
    new = prepare_resize(change.stored, change.incoming, keeps_policies=keeps)
    pod_level = lookup(change.incoming, "spec", "resources")
    # Not served yet: kept for validation to refuse.
    return new if pod_level is None else evolve(new, ("spec", "resources"), pod_level)
