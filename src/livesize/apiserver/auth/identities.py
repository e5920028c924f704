"""Who is asking: a name and a role, for nodes also which node, and where they may do it.

A role reaches everywhere unless the identity names namespaces; editors and viewers can be limited
so. On the wire a role is a group, as Kubernetes knows groups: in a client certificate it is an
organization (O), in SelfSubjectReview one of the user's groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.roles import Role

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
NODES_GROUP = "system:nodes"
NODE_USER = "system:node:"
_ROLE_GROUP = "livesize:"
_NAMESPACE_GROUP = "livesize:namespace:"


LIMITABLE = frozenset({Role.EDITOR, Role.VIEWER})


class IdentityError(ValueError):
    """A name, role, node and namespaces that do not go together; the sentence says why."""


class Identity(msgspec.Struct, frozen=True):
    name: str
    role: Role
    node: str = ""  # the node it speaks for; empty unless the role is NODE
    namespaces: tuple[str, ...] = ()  # empty: everywhere

    def __post_init__(self) -> None:
        if (self.role is Role.NODE) != bool(self.node):
            raise IdentityError(f"{self.name}: the role node, and only it, names a node")
        if self.namespaces and self.role not in LIMITABLE:
            raise IdentityError(
                f"{self.name}: only an editor or a viewer can be limited to namespaces,"
                f" the role {self.role} reaches everywhere"
            )

    @property
    def groups(self) -> tuple[str, ...]:
        """As SelfSubjectReview and the audit log show them."""
        return (*role_groups(self.role, self.namespaces), AUTHENTICATED)


def node_identity(node: str) -> Identity:
    """The agent of one node, named as Kubernetes names kubelets."""
    return Identity(f"{NODE_USER}{node}", Role.NODE, node)


def make_identity(name: str, role_text: str, namespaces: Sequence[str] = ()) -> Identity:
    """From what a person types: ``role_text`` is a role, or ``node:NAME``."""
    word, _, node = role_text.partition(":")
    try:
        role = Role(word)
    except ValueError:
        known = ", ".join(one if one is not Role.NODE else "node:NAME" for one in Role)
        raise IdentityError(f"there is no role {role_text!r}: use one of {known}") from None
    if role is Role.NODE:
        if not node:
            raise IdentityError("say which node: --role node:NAME")
        return node_identity(node)
    if node:
        raise IdentityError(f"the role {role} takes no {node!r}: only node:NAME has a second part")
    return Identity(name, role, "", tuple(sorted(set(namespaces))))


def role_groups(role: Role, namespaces: Sequence[str] = ()) -> tuple[str, ...]:
    """The organizations of a certificate that carries this role."""
    match role:
        case Role.ADMIN:
            return (MASTERS,)
        case Role.NODE:
            return (NODES_GROUP,)
        case _:
            limits = [f"{_NAMESPACE_GROUP}{namespace}" for namespace in namespaces]
            return (f"{_ROLE_GROUP}{role}", *limits)


def identity_of_groups(name: str, groups: Sequence[str]) -> Identity | None:
    """Whom a certificate with this name (CN) and these groups (O) stands for; None for nobody.

    The strongest group does not win: where several roles are named it is nobody, so that what a
    certificate may do can be read off it at a glance.
    """
    namespaces = tuple(
        sorted(
            group.removeprefix(_NAMESPACE_GROUP)
            for group in groups
            if group.startswith(_NAMESPACE_GROUP)
        )
    )
    roles = {role for group in groups if (role := _role_of(group)) is not None}
    if len(roles) != 1 or not name:
        return None
    (role,) = roles
    if (role is Role.NODE) != name.startswith(NODE_USER):
        return None  # only a node is called like one
    node = name.removeprefix(NODE_USER) if role is Role.NODE else ""
    try:
        return Identity(name, role, node, namespaces)
    except IdentityError:
        return None


_BY_GROUP = {role_groups(role)[0]: role for role in Role} | {
    f"{_ROLE_GROUP}{Role.ADMIN}": Role.ADMIN
}


def _role_of(group: str) -> Role | None:
    return _BY_GROUP.get(group)
