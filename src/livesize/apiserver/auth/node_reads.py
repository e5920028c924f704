"""What a node may read (design 5.6), as Kubernetes' node authorizer has it. Pure.

Its own Node and lease; its own pods, listed by spec.nodeName; the Secrets, ConfigMaps and claims
that its pods use, one by one; of the volumes those of such claims and those whose folders it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.pod_references import CLAIMS, references_of
from livesize.api.roles import CHANGE, READ
from livesize.api.selectors import SelectorError, parse_field_selector
from livesize.api.storage import NODE_LABEL, volume_name
from livesize.apiserver.auth.authorize import Access

NODE_LEASES = "kube-node-lease"
_READ_OWN = frozenset({NodeScope.ITSELF, NodeScope.OWN_LEASE, NodeScope.OWN_PODS})
_LIMITED = frozenset({NodeScope.USED_BY_PODS, NodeScope.OWN_VOLUMES})


def scope_of(resource: Resource) -> NodeScope:
    """As its kind says; of a kind that is not known there is nothing to limit."""
    kind = REGISTRY.find(resource)
    return NodeScope.READ_ALL if kind is None else kind.node_scope


class NodeRead(msgspec.Struct, frozen=True):
    """``node`` is empty where it is no node that asks; ``labels`` and ``fields``: the selectors of
    a list."""

    node: str
    access: Access
    labels: str = ""
    fields: str = ""

    @property
    def is_limited(self) -> bool:
        if self.scope in _READ_OWN:  # whose it writes is admission's business
            return bool(self.node) and self.access.verb in READ
        return bool(self.node) and self.scope in _LIMITED

    @property
    def scope(self) -> NodeScope:
        return scope_of(self.access.resource)


class Cluster(msgspec.Struct, frozen=True):
    """What decides it: everything there is of these kinds."""

    pods: Iterable[Object] = ()
    claims: Iterable[Object] = ()
    volumes: Iterable[Object] = ()


def forbids_outright(read: NodeRead) -> str | None:
    """What can be said without looking at other objects: why not, or empty where it may. None: that
    depends on them."""
    access, node = read.access, read.node
    if read.scope is NodeScope.OWN_LEASE:
        is_own = (access.namespace, access.name) == (NODE_LEASES, node)
        return "" if is_own else "can only access node lease with the same name as the node"
    if read.scope is NodeScope.ITSELF:
        return "" if access.name == node else "a node reads only its own Node object"
    if read.scope is NodeScope.OWN_PODS and access.verb != "get":
        return "" if selected(read.fields, "spec.nodeName") == node else _only_by_node(read)
    return None


def _only_by_node(read: NodeRead) -> str | None:
    """One pod by its name may be one of the node's."""
    if read.access.name and read.access.namespace:
        return None
    return f"can only list/watch pods with the field selector spec.nodeName={read.node}"


def forbids_reading(read: NodeRead, cluster: Cluster) -> str:
    """Why not, in Kubernetes' words; empty where a pod of the node uses the object."""
    if read.scope is NodeScope.OWN_VOLUMES:
        return _forbids_volume(read, cluster)
    access = read.access
    if read.scope is NodeScope.OWN_PODS:
        return "" if _runs(read, cluster.pods) else _unrelated(read)
    if access.verb not in READ:
        return "can only read resources of this type"
    if not (access.namespace and access.name):
        missing = "No Object name found" if access.namespace else ""
        return missing or "can only read namespaced object of this type"
    wanted = (access.resource.plural, access.name)
    if _uses(read.node, access.namespace, wanted, cluster.pods):
        return ""
    return _unrelated(read)


def selected_name(fields: str) -> str:
    """The one name that a field selector lets through, as list and watch of one object have."""
    return selected(fields, "metadata.name")


def selected(fields: str, wanted: str) -> str:
    """The one value of a field that a selector lets through."""
    if not fields:
        return ""
    try:
        requirements = parse_field_selector(fields).requirements
    except SelectorError:
        return ""  # refused where it is read
    for one in requirements:
        if one.field == wanted and not one.negated:
            return one.value
    return ""


def _forbids_volume(read: NodeRead, cluster: Cluster) -> str:
    """A node lists its own by their label; any other it has to name."""
    name, verb = read.access.name, read.access.verb
    if not name:
        mine = f"{NODE_LABEL}={read.node}"
        return "" if verb in READ and read.labels == mine else f"can only list {mine}"
    if verb in READ | CHANGE and any(_keeps(read.node, name, one) for one in cluster.volumes):
        return ""
    if verb not in READ:
        return _unrelated(read)
    for claim in cluster.claims:
        wanted = (CLAIMS, name_of(claim))
        if volume_name(claim) != name:
            continue
        if _uses(read.node, namespace_of(claim), wanted, cluster.pods):
            return ""
    return _unrelated(read)


def _keeps(node: str, name: str, volume: Object) -> bool:
    return name_of(volume) == name and lookup(volume, "metadata", "labels", NODE_LABEL) == node


def _uses(node: str, namespace: str, wanted: tuple[str, str], pods: Iterable[Object]) -> bool:
    """A pod of the node uses that object of its namespace."""
    return any(
        namespace_of(pod) == namespace
        and lookup(pod, "spec", "nodeName") == node
        and wanted in references_of(pod)
        for pod in pods
    )


def _runs(read: NodeRead, pods: Iterable[Object]) -> bool:
    """It is a pod of the node that is asked for."""
    wanted = (read.access.namespace, read.access.name)
    return any(
        (namespace_of(pod), name_of(pod)) == wanted and lookup(pod, "spec", "nodeName") == read.node
        for pod in pods
    )


def _unrelated(read: NodeRead) -> str:
    return f"no relationship found between node '{read.node}' and this object"
