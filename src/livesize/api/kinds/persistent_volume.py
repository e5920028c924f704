"""Volumes: storage that there is."""

from __future__ import annotations

from livesize.api import roles
from livesize.api.columns import (
    AGE,
    NAME,
    Column,
    access_modes,
    at,
    leaving_or_phase,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup
from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    object_of,
    quantities,
    scalar,
    string,
    strings,
)
from livesize.api.schema.meta import TypedObject
from livesize.api.schema.placement import NodeSelector
from livesize.api.schema.references import ObjectReference
from livesize.api.schema.volumes import HostPathVolumeSource
from livesize.api.storage import (
    SOURCES,
    ReclaimPolicy,
    node_terms,
)
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.names import DnsRule, validate_name
from livesize.api.validation.placement import validate_node_terms
from livesize.api.validation.storage import validate_modes, validate_storage, with_capacity

PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", False, "persistentvolume", ("pv",)
)


class LocalVolumeSource(Message):
    path = string(1)
    fsType = string(2, keeps_zero=True)


class PersistentVolumeSource(Message, refuses_unknown=True):
    hostPath = object_of(HostPathVolumeSource, 3)
    local = object_of(LocalVolumeSource, 20)


class VolumeNodeAffinity(Message):
    required = object_of(NodeSelector, 1)


class PersistentVolumeSpec(Message, inlined={2: PersistentVolumeSource}):
    capacity = quantities(1)
    accessModes = strings(3)
    claimRef = object_of(
        ObjectReference,
        4,
        description="The claim that has it; nobody else gets it until this is taken off.",
    )
    persistentVolumeReclaimPolicy = string(
        5, description="Whether it goes with its claim: Delete or Retain."
    )
    storageClassName = string(6)
    mountOptions = strings(7)
    volumeMode = string(8, keeps_zero=True)
    nodeAffinity = object_of(
        VolumeNodeAffinity, 9, description="The nodes on which pods can have it."
    )
    volumeAttributesClassName = string(10, keeps_zero=True)
    csi = anything()
    fc = anything()
    iscsi = anything()
    nfs = anything()


class PersistentVolumeStatus(Message):
    phase = string(1)
    message = string(2)
    reason = string(3)
    lastPhaseTransitionTime = scalar(Type.TIME, 4)


class PersistentVolume(TypedObject):
    """A folder of a machine that a claim can have."""

    spec = object_of(PersistentVolumeSpec, 2)
    status = object_of(PersistentVolumeStatus, 3)


_OTHER_SOURCES = ("csi", "fc", "iscsi", "nfs")


_FIXED = "is immutable after creation: make a new volume instead"


def default_volume(volume: Object) -> Object:
    spec, status = volume.get("spec"), volume.get("status", {})
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return volume
    filled: Object = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
    filled |= with_capacity(spec)
    if isinstance(filled.get("hostPath"), dict):
        filled["hostPath"] = {"type": "", **filled["hostPath"]}
    return {**volume, "spec": filled, "status": {"phase": "Pending", **status}}


def validate_volume(volume: Object) -> list[FieldError]:
    spec = volume.get("spec") or {}
    errors = [*validate_modes(spec), *_validate_source(spec)]
    errors += validate_storage(spec.get("capacity") or {}, "spec.capacity")
    policy, field = spec.get("persistentVolumeReclaimPolicy"), "spec.persistentVolumeReclaimPolicy"
    errors += required_one_of(policy, ReclaimPolicy, field)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        errors += validate_name(name, "spec.storageClassName", DnsRule.SUBDOMAIN)
    terms = node_terms(volume)
    if terms is not None:
        errors += validate_node_terms(terms, "spec.nodeAffinity.required.nodeSelectorTerms")
    elif spec.get("local"):
        detail = "a local volume is on some nodes only: say on which"
        errors.append(FieldError(FieldErrorKind.REQUIRED, "spec.nodeAffinity", detail))
    reference = spec.get("claimRef") or {}
    for key in ("namespace", "name") if reference else ():
        if not reference.get(key):
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"spec.claimRef.{key}", ""))
    return errors


def validate_volume_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_volume(new)
    for key in (*SOURCES, "volumeMode"):
        if lookup(new, "spec", key) != lookup(old, "spec", key):
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"spec.{key}", _FIXED))
    before, field = lookup(old, "spec", "nodeAffinity"), "spec.nodeAffinity"
    if before is not None and lookup(new, "spec", "nodeAffinity") != before:
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, _FIXED))
    return errors


def _validate_source(spec: Object) -> list[FieldError]:
    given = [key for key in (*SOURCES, *_OTHER_SOURCES) if spec.get(key) is not None]
    words = " or ".join(SOURCES)
    if len(given) != 1:
        detail = f"must specify exactly one volume type: {words}"
        return [FieldError(FieldErrorKind.REQUIRED, "spec", detail)]
    (key,) = given
    if key in _OTHER_SOURCES:
        return [FieldError(FieldErrorKind.FORBIDDEN, f"spec.{key}", f"nodes know only {words}")]
    path, field = spec[key].get("path"), f"spec.{key}.path"
    if not path:
        return [FieldError(FieldErrorKind.REQUIRED, field, "")]
    if not path.startswith("/") or ".." in path.split("/"):
        detail = "must be an absolute path without '..'"
        return [FieldError(FieldErrorKind.INVALID, field, detail, path)]
    return []


def _claim_cell(volume: Object, _now: float) -> str:
    claim = lookup(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


VOLUME = Kind(
    PERSISTENT_VOLUMES,
    shape=PersistentVolume,
    strategy="volume",
    defaults=default_volume,
    validate=validate_volume,
    validate_update=validate_volume_update,
    subresources={"status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    node_scope=NodeScope.OWN_VOLUMES,
    roles=roles.combine(
        roles.RULING,
        roles.STATUS,
        {
            roles.Role.NODE: {"": roles.READ | roles.CHANGE},
            roles.Role.CONTROLLER: {"": roles.COLLECT | roles.CREATE},
        },
    ),
    columns=(
        NAME,
        Column("Capacity", at("spec", "capacity", "storage", default="")),
        Column("Access Modes", access_modes("spec")),
        Column("Reclaim Policy", at("spec", "persistentVolumeReclaimPolicy", default="")),
        Column("Status", leaving_or_phase),
        Column("Claim", _claim_cell),
        Column("StorageClass", at("spec", "storageClassName", default="")),
        Column("VolumeAttributesClass", at("spec", "volumeAttributesClassName", default="<unset>")),
        Column("Reason", at("status", "reason", default="")),
        AGE,
        Column("VolumeMode", at("spec", "volumeMode", default=""), priority=1),
    ),
)
