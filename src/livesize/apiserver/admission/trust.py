"""Who may run programs where containers are processes of the machine. Pure.

Such containers share the machine's kernel and its network. An API server that answers only on the
loopback has users of that machine; one that answers others runs only what its admins bring, unless
its admin trusts the editors (--trust-editors; design 5.6). Virtual machines are not concerned, nor
are nodes with another runtime.

Whoever else brings a pod is noted in it, so that it is not bound to such a node later either.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.resize_hooks import hooks_of
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity

BROUGHT_BY = "livesize.dev/brought-by"
_ANNOTATION = ("metadata", "annotations", BROUGHT_BY)
_PROCESS = "process://"
_TRUSTED = frozenset({Role.ADMIN, Role.NODE, Role.SCHEDULER})
_KINDS = ("initContainers", "containers", "ephemeralContainers")


class Distrust(msgspec.Struct, frozen=True):
    """Nodes by what their containers are: processes of the machine (or unknown), or isolated."""

    shared: tuple[str, ...] = ()
    isolated: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[Object]) -> Distrust:
        shared: list[str] = []
        isolated: list[str] = []
        for node in nodes:
            runtime = str(lookup(node, "status", "nodeInfo", "containerRuntimeVersion", default=""))
            group = shared if not runtime or runtime.startswith(_PROCESS) else isolated
            group.append(name_of(node))
        return cls(tuple(shared), tuple(isolated))

    def forbids_program(self, identity: Identity, pod: Object) -> str:
        """Why this identity may not bring a program into that pod; empty where it may."""
        if not _concerns(identity, pod):
            return ""
        bound_to = lookup(pod, "spec", "nodeName", default="")
        if bound_to:
            return "" if bound_to in self.isolated else _why(bound_to)
        return _why(self.shared[0]) if self.shared else ""  # it may come to any of them

    def forbids_change(self, identity: Identity, old: Object | None, new: Object) -> str:
        """The same for a pod that is created or changed by ``identity``."""
        if old is not None and lookup(old, *_ANNOTATION) != lookup(new, *_ANNOTATION):
            return "" if identity.role is Role.ADMIN else f"only an admin changes {BROUGHT_BY}"
        if old is not None and _programs(old) == _programs(new):
            return self._forbids_binding(old, new)
        return self.forbids_program(identity, new)

    def _forbids_binding(self, old: Object, new: Object) -> str:
        bound_to = lookup(new, "spec", "nodeName", default="")
        if lookup(old, "spec", "nodeName", default="") == bound_to or bound_to in self.isolated:
            return ""
        return _why(bound_to) if lookup(old, *_ANNOTATION) else ""


def note_who_brings(identity: Identity, pod: Object) -> Object:
    """The pod, with who brings it where that is not an admin."""
    return evolve(pod, _ANNOTATION, identity.name) if _concerns(identity, pod) else pod


def _concerns(identity: Identity, pod: Object) -> bool:
    return identity.role not in _TRUSTED and lookup(pod, "spec", "virtualMachine") is None


def _why(node: str) -> str:
    return (
        f'on node "{node}" containers are processes of the machine, and the API server answers'
        " other machines: only an admin brings programs there. Ask an admin to create the pod, or"
        " to start the API server with --trust-editors, or the node with --runtime containerd"
    )


def _programs(pod: Object) -> tuple[list[str], Object]:
    """What of a pod's programs can be changed later: images, and commands around a resize."""
    images = [
        one.get("image", "") for kind in _KINDS for one in lookup(pod, "spec", kind, default=[])
    ]
    return images, hooks_of(pod)
