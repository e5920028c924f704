"""Claims, volumes and classes of storage: their words, and what can be read off them. Pure.

PersistentVolumeClaim   what a pod asks for     Pending ─► Bound ─► Lost (its volume is gone)
PersistentVolume        what there is           Available ─► Bound ─► Released | Failed
StorageClass            how one is made, when, and what becomes of it afterwards
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.quantity import parse_quantity

LOCAL_PROVISIONER = "livesize.dev/local"
"""Makes folders on the node of the first pod that uses the claim."""
LOCAL_CLASS = "local"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
FOLDER_FINALIZER = "livesize.dev/local-folder"
"""On volumes that a folder of a node belongs to; the node takes it off when it is done."""

NODE_LABEL = "livesize.dev/node"
"""On such a volume: which node its folder is on, so that the node finds it."""
FOLDERS_AT = "livesize.dev/local-volumes"
"""An annotation of nodes: where they keep such folders."""
HOSTNAME = "kubernetes.io/hostname"

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class ClaimPhase(enum.StrEnum):
    PENDING = "Pending"
    BOUND = "Bound"
    LOST = "Lost"


class VolumePhase(enum.StrEnum):
    PENDING = "Pending"
    AVAILABLE = "Available"
    BOUND = "Bound"
    RELEASED = "Released"
    FAILED = "Failed"


class AccessMode(enum.StrEnum):
    ONCE = "ReadWriteOnce"
    READ_MANY = "ReadOnlyMany"
    WRITE_MANY = "ReadWriteMany"
    ONE_POD = "ReadWriteOncePod"


class BindingMode(enum.StrEnum):
    IMMEDIATE = "Immediate"
    FIRST_CONSUMER = "WaitForFirstConsumer"


class ReclaimPolicy(enum.StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class VolumeMode(enum.StrEnum):
    FILES = "Filesystem"
    BLOCK = "Block"


SOURCES = ("hostPath", "local")
"""Of volumes: what a node here can give to a pod."""


def claims_of(pod: Object) -> tuple[str, ...]:
    """Names of the claims a pod uses; they lie in its own namespace."""
    volumes = lookup(pod, "spec", "volumes", default=())
    named = (lookup(one, "persistentVolumeClaim", "claimName", default="") for one in volumes)
    return tuple(sorted({name for name in named if name}))


def class_of(obj: Object) -> str:
    """Of a claim or a volume; empty where it belongs to none."""
    return str(lookup(obj, "spec", "storageClassName", default=""))


def mode_of(obj: Object) -> str:
    return str(lookup(obj, "spec", "volumeMode", default=VolumeMode.FILES.value))


def volume_name(claim: Object) -> str:
    return str(lookup(claim, "spec", "volumeName", default=""))


def requested(claim: Object) -> int:
    """In nano-bytes, to be compared with ``capacity``."""
    return parse_quantity(lookup(claim, "spec", "resources", "requests", "storage", default="0"))


def capacity(volume: Object) -> int:
    return parse_quantity(lookup(volume, "spec", "capacity", "storage", default="0"))


def node_terms(volume: Object) -> tuple[Object, ...] | None:
    """One of these terms a node has to match for its pods to have the volume; None: every node."""
    required = lookup(volume, "spec", "nodeAffinity", "required")
    return None if required is None else tuple(required.get("nodeSelectorTerms") or [])


def is_going(obj: Object) -> bool:
    return bool(lookup(obj, "metadata", "deletionTimestamp"))


def claim_key(volume: Object) -> tuple[str, str] | None:
    """Namespace and name of the claim a volume is kept for."""
    reference = lookup(volume, "spec", "claimRef")
    if not reference:
        return None
    return str(reference.get("namespace") or ""), str(reference.get("name") or "")


def is_set_aside_for(volume: Object, claim: Object) -> bool:
    """The volume's reference names the claim; without a uid it means whoever has the name."""
    if claim_key(volume) != (namespace_of(claim), name_of(claim)):
        return False
    return lookup(volume, "spec", "claimRef", "uid", default="") in ("", uid_of(claim))


def is_bound_to(claim: Object, volume: Object | None) -> bool:
    """Both say so, and the claim by its uid."""
    return (
        volume is not None
        and volume_name(claim) == name_of(volume)
        and is_set_aside_for(volume, claim)
        and bool(lookup(volume, "spec", "claimRef", "uid"))
    )


def is_ours(volume: Object) -> bool:
    """Made by us: a folder of a node, which goes with the volume where its policy says so."""
    return bool(lookup(volume, "metadata", "annotations", PROVISIONED_BY) == LOCAL_PROVISIONER)


def is_default(storage_class: Object) -> bool:
    return bool(lookup(storage_class, "metadata", "annotations", DEFAULT_CLASS) == "true")


def default_class(classes: Iterable[Object]) -> str:
    """What claims that name none get: the newest of the defaults; empty where there is none."""
    defaults = [one for one in classes if is_default(one)]
    created = ("metadata", "creationTimestamp")
    defaults.sort(key=name_of)
    defaults.sort(key=lambda one: str(lookup(one, *created, default="")), reverse=True)
    return name_of(defaults[0]) if defaults else ""


def waits_for_consumer(storage_class: Object | None) -> bool:
    return (
        storage_class is not None
        and storage_class.get("volumeBindingMode") == BindingMode.FIRST_CONSUMER
    )


def is_local_class(storage_class: Object | None) -> bool:
    return storage_class is not None and storage_class.get("provisioner") == LOCAL_PROVISIONER
