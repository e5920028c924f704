"""What a node may write: Kubernetes' NodeRestriction, and a little less. Pure.

Which objects of a kind a node reaches, the kind says (livesize.api.node_scope).

A node that could choose its labels, drop its taints or uncordon itself would draw pods to itself
that are not meant for it; with an owner that is gone it would be collected, and come back as it
likes. So it registers with labels that describe the machine, and changes of its Node annotations,
status and the name of its architecture alone. (Kubernetes lets a kubelet also set labels outside of
kubernetes.io.)
"""

from __future__ import annotations

from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup
from livesize.apiserver.admission.storage import forbids_volume
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.auth.node_reads import NODE_LEASES, scope_of

HOSTNAME = "kubernetes.io/hostname"
ARCHITECTURE = "kubernetes.io/arch"
_LABELS = frozenset(
    {
        HOSTNAME,
        ARCHITECTURE,
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")


def forbids_write(node: str, access: Access, old: Object | None, new: Object | None) -> str:
    """Why a node may not make this change; empty where it may."""
    match scope_of(access.resource):
        case NodeScope.ALL:
            return ""
        case NodeScope.ITSELF:
            return _forbids_node(node, access.name, old, new)
        case NodeScope.OWN_PODS:
            return _forbids_pod(node, old, new)
        case NodeScope.OWN_LEASE:
            return _forbids_lease(node, access)
        case NodeScope.OWN_VOLUMES:
            return forbids_volume(node, old, new)
        case NodeScope.READ_ALL | NodeScope.USED_BY_PODS:
            return f'node "{node}" may not write {access.resource.plural}'


def _forbids_node(node: str, name: str, old: Object | None, new: Object | None) -> str:
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if new is None:
        return f'node "{node}" is not allowed to delete itself'
    return forbids_creation(node, new) if old is None else forbids_update(node, old, new)


def _forbids_pod(node: str, old: Object | None, new: Object | None) -> str:
    if node and lookup(old, "spec", "nodeName") == node:
        return ""
    doing = "delete pods" if new is None else "update pods"
    return f'node "{node}" can only {doing} with spec.nodeName set to itself'


def _forbids_lease(node: str, access: Access) -> str:
    if access.namespace != NODE_LEASES:
        return f'node "{node}" can only access leases in the "{NODE_LEASES}" namespace'
    if access.name != node:
        return f'node "{node}" can only access node lease with the same name as the requesting node'
    return ""


def forbids_creation(node: str, new: Object) -> str:
    """Why a node may not register so; empty where it may."""
    labels = lookup(new, "metadata", "labels", default={})
    unknown = sorted(key for key in labels if key not in _LABELS and not key.startswith(_PREFIXES))
    if unknown:
        return (
            f'node "{node}" is not allowed to set the following labels: {", ".join(unknown)};'
            " an admin may, when it has registered"
        )
    if labels.get(HOSTNAME, node) != node:
        return f'node "{node}" is not allowed to set {HOSTNAME} to another name than its own'
    for field in ("ownerReferences", "finalizers"):
        if lookup(new, "metadata", field, default=[]):
            return f'node "{node}" is not allowed to set {field} of itself'
    return ""


def forbids_update(node: str, old: Object, new: Object) -> str:
    """Why a node may not change its Node so; empty where it may."""
    if _chosen_labels(old) != _chosen_labels(new):
        return f'node "{node}" is not allowed to modify labels of itself'
    for field in ("ownerReferences", "finalizers"):
        if (lookup(old, "metadata", field) or None) != (lookup(new, "metadata", field) or None):
            return f'node "{node}" is not allowed to modify {field} of itself'
    before, after = (old.get("spec") or {}), (new.get("spec") or {})
    if (before.get("taints") or []) != (after.get("taints") or []):
        return f'node "{node}" is not allowed to modify taints'
    if bool(before.get("unschedulable")) != bool(after.get("unschedulable")):
        return f'node "{node}" is not allowed to cordon or uncordon itself'
    changed = sorted(
        key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
    )
    return f'node "{node}" is not allowed to modify spec.{changed[0]} of itself' if changed else ""


def _chosen_labels(node: Object) -> dict[str, str]:
    """All but the one that says what the machine is: a newer agent may have a better name for it,
    and says nothing of itself before it has corrected that."""
    labels: dict[str, str] = lookup(node, "metadata", "labels", default={})
    return {key: value for key, value in labels.items() if key != ARCHITECTURE}
