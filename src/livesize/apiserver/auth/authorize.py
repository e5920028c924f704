"""What each role may do, as one table. Pure.

Roles say which verbs on which resources, an identity's namespaces where; whose objects they may
touch (a node only itself and its pods) is admission's business (livesize.apiserver.admission.plan),
and which objects a node may read is that of livesize.apiserver.auth.node_reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.resource import Resource
from livesize.apiserver.auth.identities import Identity, Role

READ = frozenset({"get", "list", "watch"})
WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})
CHANGE = frozenset({"update", "patch"})
CREATE = frozenset({"create"})
ALL = READ | WRITE


class Access(msgspec.Struct, frozen=True):
    """One thing to be done. ``subresource`` is empty for the object itself."""

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def target(self) -> str:
        """As the table names it: ``pods`` or ``pods/resize``."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


# Kept for the pods of a namespace: whoever may write pods may write these.
_STORED = (
    "configmaps",
    "persistentvolumeclaims",
    "serviceaccounts",
    "services",
    "poddisruptionbudgets",
)
# Rules over pods: everybody sees them, an admin makes them.
_RULES = (
    "limitranges",
    "persistentvolumeclaims/status",
    "persistentvolumes",
    "persistentvolumes/status",
    "priorityclasses",
    "resourcequotas",
    "resourcequotas/status",
    "poddisruptionbudgets/status",
    "storageclasses",
)
_READ_STORED = dict.fromkeys((*_STORED, *_RULES), READ)
_WRITE_STORED = {**_READ_STORED, **dict.fromkeys((*_STORED, "secrets"), READ | WRITE)}
# Garbage is collected whatever it is, quotas are counted, and claims get their volumes.
_COLLECT = {
    **dict.fromkeys((*_STORED, *_RULES, "secrets"), READ | CHANGE | {"delete"}),
    "resourcequotas/status": READ | CHANGE,
    "persistentvolumes": READ | CREATE | CHANGE | {"delete"},
    "persistentvolumes/status": READ | CHANGE,
    "persistentvolumeclaims/status": READ | CHANGE,
}

_POD_WRITES = {
    "pods": ALL,
    "pods/eviction": CREATE,
    "pods/resize": READ | CHANGE,
    "pods/status": READ,
}
_READ_ALL = {
    "namespaces": READ,
    "nodes": READ,
    "nodes/status": READ,
    "pods": READ,
    "pods/resize": READ,
    "pods/status": READ,
    "events": READ,
    "leases": READ,
}

_READ_LOGS = {"pods/log": frozenset({"get"})}
# A shell in a container, its streams and its ports: for who may change the pod.
_ENTER = dict.fromkeys(("pods/exec", "pods/attach", "pods/portforward"), CREATE)

TABLE: Mapping[Role, Mapping[str, frozenset[str]]] = {
    Role.VIEWER: {**_READ_ALL, **_READ_STORED, **_READ_LOGS},
    Role.EDITOR: {
        **_READ_ALL,
        **_WRITE_STORED,
        **_POD_WRITES,
        **_READ_LOGS,
        **_ENTER,
        "namespaces": READ | WRITE,
        "events": ALL,
    },
    # Which of them: livesize.apiserver.auth.node_reads, and admission for what it writes.
    Role.NODE: {
        "nodes": READ | CREATE | CHANGE,
        "nodes/status": READ | CHANGE,
        "pods": READ | CHANGE | {"delete"},
        "pods/resize": READ,
        "pods/status": READ | CHANGE,
        "pods/resizing": CREATE,
        "events": CREATE | CHANGE,
        "leases": CREATE | CHANGE | {"get", "delete"},
        "secrets": READ,
        "configmaps": READ,
        "persistentvolumeclaims": READ,
        "persistentvolumes": READ | CHANGE,
    },
    Role.SCHEDULER: {
        **_READ_ALL,
        **_READ_STORED,
        "pods/binding": CREATE,
        "pods/status": READ | CHANGE,
        "pods/resizing": CREATE,
        "events": READ | CREATE | CHANGE,
        "leases": READ | CREATE | CHANGE,
    },
    Role.CONTROLLER: {
        **_READ_ALL,
        **_COLLECT,
        **_POD_WRITES,
        "pods/status": READ | CHANGE,
        "nodes": READ | CHANGE | {"delete"},
        "nodes/status": READ | CHANGE,
        "namespaces": READ | CHANGE | {"delete"},
        "events": ALL,
        "leases": ALL,
    },
    Role.APISERVER: _READ_ALL,
}


def allows(identity: Identity, access: Access) -> bool:
    if identity.namespaces and not _within(identity.namespaces, access):
        return False
    if identity.role is Role.ADMIN:
        return True
    if not access.subresource and access.verb not in access.resource.verbs:
        return False  # metrics are named like what they are about, and only read
    return access.verb in TABLE[identity.role].get(access.target, frozenset())


def _within(namespaces: tuple[str, ...], access: Access) -> bool:
    """Inside one of them; of what lies outside all namespaces, only their own objects are seen."""
    if access.resource.namespaced:
        return access.namespace in namespaces
    return access.resource == NAMESPACES and access.verb == "get" and access.name in namespaces


def refusal(identity: Identity, access: Access, why: str = "") -> StatusError:
    """403 in Kubernetes' words: a create has no name yet, a namespace lies in itself."""
    resource = access.resource
    name = "" if access.verb == "create" and not access.subresource else access.name
    namespace = access.namespace or (name if resource == NAMESPACES else "")
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    named = f'{qualified} "{name}"' if name else qualified
    details = {"kind": resource.plural}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    sentence = (
        f'{named} is forbidden: User "{identity.name}" cannot {access.verb} resource'
        f' "{access.target}" in API group "{resource.group}" {where}'
    )
    return StatusError(403, "Forbidden", f"{sentence}: {why}" if why else sentence, details=details)


def authorize(identity: Identity, access: Access) -> None:
    """Raise 403 unless the identity's role allows it, there."""
    if not allows(identity, access):
        raise refusal(identity, access)
