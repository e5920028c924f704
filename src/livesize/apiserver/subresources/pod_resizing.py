"""POST of pods/X/resizing: scheduler and node answer a resize, status and all, in one commit."""

from __future__ import annotations

from livesize.api.errors import forbidden
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object
from livesize.api.resize_state import apply_resizing
from livesize.api.roles import Role
from livesize.apiserver.subresources.change import SentChange


def answer_resize(change: SentChange) -> Object:
    """Everybody but the pod's own node may say no more than a scheduler may."""
    if change.identity.role is Role.NODE and not change.from_own_node:
        why = f'node "{change.identity.node}" can only answer for pods that run on it'
        raise forbidden(PODS, change.target.name, why)
    return apply_resizing(
        change.stored, change.incoming, now=change.now, from_node=change.from_own_node
    )
