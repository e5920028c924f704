"""PUT and PATCH of X/status where the status is nobody's derived one: nodes (resources nobody has
heard of included), quotas, disruption budgets."""

from __future__ import annotations

from livesize.api.defaults import default_object
from livesize.api.objects import Object
from livesize.api.validation.objects import validate_update
from livesize.apiserver.object_metadata import prepare_update
from livesize.apiserver.subresources.change import SentChange, refuse_invalid


def update_status(change: SentChange) -> Object:
    """The status alone."""
    resource = change.target.resource
    prepare_update(change.target, change.stored, change.incoming)
    sent = change.incoming.get("status") or {}
    new = default_object(resource, {**change.stored, "status": sent})
    refuse_invalid(change.target, validate_update(resource, new, change.stored))
    return new
