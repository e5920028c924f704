"""Which rule answers which door: (plural, subresource) for changes, and for what is posted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livesize.api.errors import method_not_allowed
from livesize.api.kinds.node import NODES
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.kinds.persistent_volume_claim import PERSISTENT_VOLUME_CLAIMS
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.apiserver.subresources.change import Rule
from livesize.apiserver.subresources.objects import update_object, update_pod
from livesize.apiserver.subresources.plain_status import update_status
from livesize.apiserver.subresources.pod_binding import bind_pod
from livesize.apiserver.subresources.pod_resize import resize_pod
from livesize.apiserver.subresources.pod_resizing import answer_resize
from livesize.apiserver.subresources.pod_status import update_pod_status


class Posted(msgspec.Struct, frozen=True):
    """What is posted to a subresource; it may be of another group than the object."""

    kind: str
    group: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


CHANGES: Mapping[tuple[Resource, str], Rule] = {
    (PODS, ""): update_pod,
    (PODS, "resize"): resize_pod,
    (PODS, "status"): update_pod_status,
    (NODES, "status"): update_status,
    (RESOURCE_QUOTAS, "status"): update_status,
    (DISRUPTION_BUDGETS, "status"): update_status,
    (PERSISTENT_VOLUME_CLAIMS, "status"): update_status,
    (PERSISTENT_VOLUMES, "status"): update_status,
}
POSTS: Mapping[tuple[Resource, str], Rule] = {
    (PODS, "binding"): bind_pod,
    (PODS, "resizing"): answer_resize,
}
POSTED_KINDS: Mapping[tuple[Resource, str], Posted] = {
    (PODS, "binding"): Posted("Binding"),
    (PODS, "eviction"): Posted("Eviction", "policy"),
    (PODS, "resizing"): Posted("Resizing"),
}
# Answered by the node of the pod (livesize.apiserver.streaming); nothing is stored.
STREAMED_KINDS: Mapping[tuple[Resource, str], str] = {
    (PODS, "attach"): "PodAttachOptions",
    (PODS, "exec"): "PodExecOptions",
    (PODS, "log"): "Pod",
    (PODS, "portforward"): "PodPortForwardOptions",
}


def change_rule(resource: Resource, subresource: str) -> Rule:
    if not subresource:
        return CHANGES.get((resource, ""), update_object)
    rule = CHANGES.get((resource, subresource))
    if rule is None:
        raise method_not_allowed()
    return rule


def post_rule(resource: Resource, subresource: str) -> Rule:
    rule = POSTS.get((resource, subresource))
    if rule is None:
        raise method_not_allowed()
    return rule
