"""What each subresource's rule gets: the object as it is, what was sent, who sent it, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from livesize.api.errors import Cause, FieldError, forbidden, invalid
from livesize.api.objects import Object, lookup
from livesize.api.vm_as_container import fold_container
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.request_types import Target


class SentChange(msgspec.Struct, frozen=True):
    """``incoming`` is a whole object for PUT and PATCH, the posted body for POST.
    ``knows_policies``: whoever sent it knows of resize policies, and means what it leaves out."""

    identity: Identity
    target: Target
    stored: Object
    served: Object
    incoming: Object
    now: str
    knows_policies: bool = False

    @property
    def from_own_node(self) -> bool:
        """Sent by the node the pod runs on."""
        node = self.identity.node
        return bool(node) and lookup(self.stored, "spec", "nodeName") == node


SubresourceRule: TypeAlias = Callable[[SentChange], Object]
"""The object to store next; raises StatusError where the change is refused."""


def folded(change: SentChange) -> SentChange:
    """Without the container that a VM pod is served with; what it asks is its VM's."""
    incoming, errors = fold_container(
        change.incoming, change.stored, knows_policies=change.knows_policies
    )
    refuse_invalid(change.target, errors)
    return msgspec.structs.replace(change, incoming=incoming)


def refuse_invalid(target: Target, errors: Sequence[FieldError]) -> None:
    if errors:
        raise invalid(target.resource.kind, target.resource.group, target.name, errors)


def refuse_forbidden(target: Target, errors: Sequence[FieldError]) -> None:
    if errors:
        why = ", ".join(error.sentence() for error in errors)
        causes = [Cause(error.kind.value, error.body(), error.field) for error in errors]
        raise forbidden(target.resource, target.name, why, causes)
