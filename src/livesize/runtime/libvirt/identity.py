"""What a VM's domain is called, and how it is known to be this pod's. Pure.

Name and UUID are the VM's: the same on every node, and in whichever pod it runs. That the domain on
this machine belongs to a pod is a mark in it, beside the one of the node (decisions 38). Earlier
versions named the domain by its pod and made the same UUID of that uid, so that a lookup by UUID
finds their domains too.
"""

from __future__ import annotations

import uuid
from xml.etree import ElementTree as ET

import msgspec

_NAMESPACE = uuid.UUID("6f0d4f5c-3f5e-5d0e-9b1c-6a1f6c1f0a11")
_NODE_TITLE = "livesize node "
_POD_DESCRIPTION = "livesize pod "
_EARLIER_NAME = "pod-"  # and the pod's uid


class DomainIdentity(msgspec.Struct, frozen=True):
    """``pod_uid``: the pod that runs the VM here."""

    vm_uid: str
    pod_uid: str

    @property
    def name(self) -> str:
        return domain_name(self.vm_uid)

    @property
    def uuid(self) -> str:
        return str(uuid.uuid5(_NAMESPACE, self.vm_uid))


def domain_name(vm_uid: str) -> str:
    return f"vm-{vm_uid}"


def node_title(node_uid: str) -> str:
    return f"{_NODE_TITLE}{node_uid}"


def pod_description(pod_uid: str) -> str:
    return f"{_POD_DESCRIPTION}{pod_uid}"


def node_of(root: ET.Element) -> str:
    """The uid of the node whose domain it is; empty where it does not say."""
    return _after(_NODE_TITLE, root.findtext("title", ""))


def pod_of(root: ET.Element) -> str:
    """The uid of the pod whose domain it is; empty where it does not say."""
    marked = _after(_POD_DESCRIPTION, root.findtext("description", ""))
    return marked or _after(_EARLIER_NAME, root.findtext("name", ""))


def _after(prefix: str, text: str) -> str:
    return text.removeprefix(prefix) if text.startswith(prefix) else ""
