"""The kinds the API serves, as data: discovery, routing, clients and tables all read this table."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True, cache_hash=True):
    """One served resource: where it lives on the wire and what can be done with it. Tables are
    looked up by it many times in each request."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """Path of the group and version, without a trailing slash."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = [self.prefix]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, "namespace", ("ns",))
NODES = Resource("", "v1", "nodes", "Node", False, "node", ("no",), subresources=("status",))
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    True,
    "pod",
    ("po",),
    ("all",),
    subresources=(
        "attach",
        "binding",
        "eviction",
        "exec",
        "log",
        "portforward",
        "resize",
        "resizing",
        "status",
    ),
)
EVENTS = Resource("", "v1", "events", "Event", True, "event", ("ev",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, "lease")

RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", True, "resourcequota", ("quota",), (), ("status",)
)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", True, "limitrange", ("limits",))
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", True, "serviceaccount", ("sa",)
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, "configmap", ("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret", True, "secret")
SERVICES = Resource("", "v1", "services", "Service", True, "service", ("svc",), ("all",))
DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    True,
    "poddisruptionbudget",
    ("pdb",),
    subresources=("status",),
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    False,
    "priorityclass",
    ("pc",),
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    True,
    "persistentvolumeclaim",
    ("pvc",),
    subresources=("status",),
)
PERSISTENT_VOLUMES = Resource(
    "",
    "v1",
    "persistentvolumes",
    "PersistentVolume",
    False,
    "persistentvolume",
    ("pv",),
    subresources=("status",),
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", False, "storageclass", ("sc",)
)

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    EVENTS,
    LEASES,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
