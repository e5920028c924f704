"""Whether an identity may do something. Pure.

A kind says which verbs each role has on it (livesize.api.roles), an identity's namespaces say
where. Whose objects they may touch (a node only itself and its pods) admission decides
(livesize.apiserver.admission.plan), and livesize.apiserver.auth.node_reads which a node may read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity

_NONE: frozenset[str] = frozenset()
_NOTHING: Mapping[str, frozenset[str]] = {}


class Access(msgspec.Struct, frozen=True):
    """One thing to be done. ``subresource`` is empty for the object itself."""

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def target(self) -> str:
        """As refusals name it: ``pods`` or ``pods/resize``."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def granted(role: Role, resource: Resource, subresource: str = "") -> frozenset[str]:
    """The verbs that the resource's kind gives to a role; none of a kind that is not known."""
    kind = REGISTRY.find(resource)
    return _NONE if kind is None else kind.roles.get(role, _NOTHING).get(subresource, _NONE)


def allows(identity: Identity, access: Access) -> bool:
    if identity.namespaces and not _within(identity.namespaces, access):
        return False
    if identity.role is Role.ADMIN:
        return True
    if not access.subresource and access.verb not in access.resource.verbs:
        return False  # metrics have the roles of what they are about, and are only read
    return access.verb in granted(identity.role, access.resource, access.subresource)


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
