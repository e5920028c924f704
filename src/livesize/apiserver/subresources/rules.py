"""The rules that kinds and their subresources name: how what was sent changes the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from livesize.api.errors import method_not_allowed
from livesize.api.kinds.registry import kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import Transfer
from livesize.api.objects import Object
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.subresources.change import SubresourceRule
from livesize.apiserver.subresources.objects import update_object, update_pod, update_workload
from livesize.apiserver.subresources.plain_status import update_status
from livesize.apiserver.subresources.pod_binding import bind_pod
from livesize.apiserver.subresources.pod_resize import resize_pod
from livesize.apiserver.subresources.pod_resizing import answer_resize
from livesize.apiserver.subresources.pod_status import update_pod_status
from livesize.apiserver.subresources.scale import scale_view, update_scale

View: TypeAlias = Callable[[Resource, Object], Object]
"""What clients read and write at a subresource, made from the object."""

VIEWS: Mapping[str, View] = {"scale": scale_view}
RULES: Mapping[str, SubresourceRule] = {
    "object": update_object,
    "scale": update_scale,
    "status": update_status,
    "workload": update_workload,
    "pod": update_pod,
    "pod-binding": bind_pod,
    "pod-resize": resize_pod,
    "pod-resizing": answer_resize,
    "pod-status": update_pod_status,
}


def change_rule(resource: Resource, subresource: str) -> SubresourceRule:
    """Of a PUT, a PATCH or an apply; raises 405 where there are none."""
    if not subresource:
        return RULES[strategy_of(resource).update_rule]
    return _rule(resource, subresource, Transfer.CHANGE)


def post_rule(resource: Resource, subresource: str) -> SubresourceRule:
    return _rule(resource, subresource, Transfer.POST)


def is_readable(resource: Resource, subresource: str) -> bool:
    """A GET answers with the object, or with a view of it."""
    if not subresource:
        return True
    served = kind_of(resource).subresources.get(subresource)
    return served is not None and served.transfer is Transfer.CHANGE


def view_of(resource: Resource, subresource: str) -> View | None:
    """None where clients read and write the object itself."""
    return VIEWS.get(kind_of(resource).subresources[subresource].rule) if subresource else None


def _rule(resource: Resource, subresource: str, transfer: Transfer) -> SubresourceRule:
    served = kind_of(resource).subresources.get(subresource)
    if served is None or served.transfer is not transfer or served.rule not in RULES:
        raise method_not_allowed()
    return RULES[served.rule]
