"""What the user requests of one resize besides its policy: IBM's annotation resizeAction. Pure.

- ``Restart``: the pod's containers start again with their new sizes, whatever the policy says;
- ``InPlaceResize``: as the policy says, and nothing beyond it;
- ``InPlaceResizePreferred``: the same; where that cannot be done, whoever owns the pod may make
  another one in its place. A pod without an owner restarts its containers where applying fails for
  longer than the deadline (api/resize_deadline.py); what its node has no room for restarts nothing,
  because there is no more room afterwards. ``LiveResizePreferred`` is the same word (decisions 15).

The action belongs to the resize that was requested while it stood on the pod
(status.resizeState.action).
"""

from __future__ import annotations

import enum

from livesize.api.objects import Object

ANNOTATION = "resizeAction"


class RequestedAction(enum.StrEnum):
    RESTART = "Restart"
    IN_PLACE = "InPlaceResize"
    IN_PLACE_PREFERRED = "InPlaceResizePreferred"


SPELLINGS = {one.value: one for one in RequestedAction} | {
    "LiveResizePreferred": RequestedAction.IN_PLACE_PREFERRED
}


def requested_action_of(pod: Object) -> RequestedAction | None:
    """None: the pod has no such annotation, or one that validation would refuse."""
    annotations = pod["metadata"].get("annotations")
    return SPELLINGS.get(annotations.get(ANNOTATION, "")) if annotations else None
