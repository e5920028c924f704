"""Who is asking: a name and a role, for nodes also which node."""

from __future__ import annotations

import enum

import msgspec


class Role(enum.StrEnum):
    ADMIN = "admin"
    EDITOR = "editor"
    VIEWER = "viewer"
    NODE = "node"
    SCHEDULER = "scheduler"
    CONTROLLER = "controller"


class Identity(msgspec.Struct, frozen=True):
    name: str
    role: Role
    node: str = ""  # the node it speaks for; empty unless the role is NODE

    def __post_init__(self) -> None:
        if (self.role is Role.NODE) != bool(self.node):
            raise ValueError(f"{self.name}: the role node, and only it, names a node")


def node_identity(node: str) -> Identity:
    """The agent of one node, named as Kubernetes names kubelets."""
    return Identity(f"system:node:{node}", Role.NODE, node)
