"""PUT and PATCH of nodes/X/status: the status alone, resources nobody has heard of included."""

from __future__ import annotations

from livesize.api.defaults import default_object
from livesize.api.kinds import NODES
from livesize.api.objects import Object
from livesize.api.validation import validate_update
from livesize.apiserver.preparing import prepare_update
from livesize.apiserver.subresources.change import SentChange, refuse_invalid


def update_node_status(change: SentChange) -> Object:
    prepare_update(change.target, change.stored, change.incoming)
    new = default_object(NODES, {**change.stored, "status": change.incoming.get("status") or {}})
    refuse_invalid(change.target, validate_update(NODES, new, change.stored))
    return new
