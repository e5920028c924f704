"""A node reads only the Secrets and ConfigMaps that its own pods use (design 5.6). Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.objects import Object, lookup, namespace_of
from livesize.api.pod_references import CONFIG_MAPS, SECRETS, references_of
from livesize.api.selectors import SelectorError, parse_field_selector
from livesize.apiserver.auth.authorize import READ, Access

_LIMITED = frozenset({SECRETS, CONFIG_MAPS})


class NodeRead(msgspec.Struct, frozen=True):
    """``node`` is empty where it is no node that asks."""

    node: str
    access: Access

    @property
    def is_limited(self) -> bool:
        resource = self.access.resource
        return bool(self.node) and not resource.group and resource.plural in _LIMITED


def forbids_reading(read: NodeRead, pods: Iterable[Object]) -> str:
    """Why not, in Kubernetes' words; empty where a pod of the node uses the object."""
    access = read.access
    if access.verb not in READ:
        return "can only read resources of this type"
    if not access.namespace:
        return "can only read namespaced object of this type"
    if not access.name:
        return "No Object name found"
    wanted = (access.resource.plural, access.name)
    for pod in pods:
        if namespace_of(pod) != access.namespace:
            continue
        if lookup(pod, "spec", "nodeName") == read.node and wanted in references_of(pod):
            return ""
    return f"no relationship found between node '{read.node}' and this object"


def selected_name(fields: str) -> str:
    """The one name that a field selector lets through, as list and watch of one object have."""
    if not fields:
        return ""
    try:
        requirements = parse_field_selector(fields).requirements
    except SelectorError:
        return ""  # refused where it is read
    for one in requirements:
        if one.field == "metadata.name" and not one.negated:
            return one.value
    return ""
