"""PUT and PATCH of pods/X/status: the status alone; the state of a resize is not part of it."""

from __future__ import annotations

from livesize.api.defaults import default_object
from livesize.api.dialects import check_derived, strip_dialects
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup
from livesize.apiserver.object_metadata import prepare_update
from livesize.apiserver.subresources.change import SentChange, refuse_forbidden


def update_pod_status(change: SentChange) -> Object:
    refuse_forbidden(
        change.target, check_derived(change.incoming, change.served, from_own_node=False)
    )
    prepare_update(change.target, change.stored, change.incoming)
    status = dict(strip_dialects(change.incoming).get("status") or {})
    status.pop("resizeState", None)
    state = lookup(change.stored, "status", "resizeState")
    if state is not None:
        status["resizeState"] = state
    qos_class = lookup(change.stored, "status", "qosClass")
    if qos_class:
        status["qosClass"] = qos_class
    return default_object(PODS, {**change.stored, "status": status})
