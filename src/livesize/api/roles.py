"""Roles, verbs, and the grants that several kinds have in common."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias


class Role(enum.StrEnum):
    ADMIN = "admin"
    EDITOR = "editor"
    VIEWER = "viewer"
    NODE = "node"
    SCHEDULER = "scheduler"
    CONTROLLER = "controller"
    APISERVER = "apiserver"


GET = frozenset({"get"})
READ = frozenset({"get", "list", "watch"})
CREATE = frozenset({"create"})
CHANGE = frozenset({"update", "patch"})
DELETE = frozenset({"delete"})
WRITE = CREATE | CHANGE | DELETE | {"deletecollection"}
ALL = READ | WRITE
COLLECT = READ | CHANGE | DELETE
"""What the garbage collector needs of any kind."""

Grants: TypeAlias = Mapping[Role, Mapping[str, frozenset[str]]]
"""The verbs of each role by subresource; the empty one is the object itself. An admin may do
everything, and stands in no table."""

EDITED: Grants = {
    Role.VIEWER: {"": READ},
    Role.EDITOR: {"": ALL},
    Role.SCHEDULER: {"": READ},
    Role.CONTROLLER: {"": COLLECT},
}
"""Of a kind that stands beside pods: whoever may write pods may write it."""

RULING: Grants = {**EDITED, Role.EDITOR: {"": READ}}
"""Of a kind that rules pods: everyone sees it, an admin makes it."""

STATUS: Grants = {
    Role.VIEWER: {"status": READ},
    Role.EDITOR: {"status": READ},
    Role.SCHEDULER: {"status": READ},
    Role.CONTROLLER: {"status": READ | CHANGE},
}
"""Of a status that controllers write."""

SCALE: Grants = {
    Role.VIEWER: {"scale": READ},
    Role.EDITOR: {"scale": READ | CHANGE},
    Role.CONTROLLER: {"scale": READ | CHANGE},
}
"""Of a number of replicas that users and autoscalers set."""


def combine(*grants: Grants) -> Grants:
    """All of them together; where two speak of the same, the later one."""
    combined: dict[Role, dict[str, frozenset[str]]] = {}
    for one in grants:
        for role, verbs in one.items():
            combined.setdefault(role, {}).update(verbs)
    return combined
