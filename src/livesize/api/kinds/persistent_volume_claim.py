"""Claims: storage that a pod asks for."""

from __future__ import annotations

from collections.abc import Iterable

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
from livesize.api.quantity import NANO, canonical_quantities, parse_quantity
from livesize.api.quota_rule import QuotaRule, QuotaUsage
from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    list_of,
    object_of,
    quantities,
    scalar,
    string,
    strings,
)
from livesize.api.schema.meta import LabelSelector, TypedObject
from livesize.api.schema.references import TypedLocalObjectReference, TypedObjectReference
from livesize.api.schema.resources import VolumeResourceRequirements
from livesize.api.storage import (
    class_of,
    requested,
    volume_name,
)
from livesize.api.validation.names import DnsRule, validate_name
from livesize.api.validation.resources import validate_quantities
from livesize.api.validation.selectors import validate_selector
from livesize.api.validation.storage import validate_modes, validate_storage, with_capacity

PERSISTENT_VOLUME_CLAIMS = Resource(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    True,
    "persistentvolumeclaim",
    ("pvc",),
)


class PersistentVolumeClaimSpec(Message):
    accessModes = strings(1)
    resources = object_of(
        VolumeResourceRequirements,
        2,
        description="How much it asks for; more can be asked for later, never less.",
    )
    volumeName = string(
        3, description="The volume it has; given by hand, it gets this one or none."
    )
    selector = object_of(LabelSelector, 4, keeps_zero=True)
    storageClassName = string(
        5,
        keeps_zero=True,
        description="How its volume is made; the default class where it is not given.",
    )
    volumeMode = string(6, keeps_zero=True)
    dataSource = object_of(TypedLocalObjectReference, 7)
    dataSourceRef = object_of(TypedObjectReference, 8)
    volumeAttributesClassName = string(9, keeps_zero=True)


class PersistentVolumeClaimCondition(Message):
    type = string(1)
    status = string(2)
    lastProbeTime = scalar(Type.TIME, 3)
    lastTransitionTime = scalar(Type.TIME, 4)
    reason = string(5)
    message = string(6)


class PersistentVolumeClaimStatus(Message):
    phase = string(1)
    accessModes = strings(2)
    capacity = quantities(3)
    conditions = list_of(PersistentVolumeClaimCondition, 4, key="type")
    allocatedResourceStatuses = anything()
    allocatedResources = anything()
    currentVolumeAttributesClassName = anything()
    modifyVolumeStatus = anything()


class PersistentVolumeClaim(TypedObject):
    """Storage that pods name and that outlives them."""

    spec = object_of(PersistentVolumeClaimSpec, 2)
    status = object_of(PersistentVolumeClaimStatus, 3)


_COPIED = ("dataSource", "dataSourceRef")


_GROWS = (
    "spec is immutable after creation except resources.requests for bound claims: make a new claim"
    " with what you need, and copy what is in this one"
)


def default_claim(claim: Object) -> Object:
    spec, status = claim.get("spec"), claim.get("status", {})
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return claim
    filled = {"volumeMode": "Filesystem", **spec}
    resources = spec.get("resources")
    if isinstance(resources, dict):
        sides = {side: canonical_quantities(resources[side]) for side in resources}
        filled["resources"] = sides
    return {**claim, "spec": filled, "status": {"phase": "Pending", **with_capacity(status)}}


def validate_claim(claim: Object) -> list[FieldError]:
    spec = claim.get("spec") or {}
    errors = [*validate_modes(spec), *validate_selector(spec.get("selector") or {})]
    requests = lookup(spec, "resources", "requests", default={})
    field = "spec.resources.requests"
    errors += validate_storage(requests, field) or _validate_limit(spec, field)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        errors += validate_name(name, "spec.storageClassName", DnsRule.SUBDOMAIN)
    if spec.get("volumeName"):
        errors += validate_name(spec["volumeName"], "spec.volumeName", DnsRule.SUBDOMAIN)
    for key in _COPIED:
        if spec.get(key):
            detail = "volumes begin empty here: leave the field out, and copy into it by a pod"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"spec.{key}", detail))
    return errors


def validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_claim(new)
    if errors:
        return errors
    if _fixed_of_claim(new, old) != _fixed_of_claim(old, old):
        return [FieldError(FieldErrorKind.FORBIDDEN, "spec", _GROWS)]
    if requested(new) < requested(old):
        before = lookup(old, "spec", "resources", "requests", "storage")
        field = "spec.resources.requests.storage"
        detail = f"a volume never shrinks: ask for at least {before}"
        return [FieldError(FieldErrorKind.FORBIDDEN, field, detail)]
    if requested(new) > requested(old) and lookup(old, "status", "phase") != "Bound":
        return [FieldError(FieldErrorKind.FORBIDDEN, "spec", _GROWS)]
    return []


def _fixed_of_claim(claim: Object, old: Object) -> Object:
    """Without what may grow. A volume is written in once, by whoever binds it."""
    spec = {**(claim.get("spec") or {})}
    spec["resources"] = {**(spec.get("resources") or {}), "requests": None}
    if not volume_name(old):
        spec.pop("volumeName", None)
    return spec


def _validate_limit(spec: Object, field: str) -> list[FieldError]:
    limits = lookup(spec, "resources", "limits", default={})
    errors = validate_quantities(limits, "spec.resources.limits")
    asked = lookup(spec, "resources", "requests", "storage")
    if errors or "storage" not in limits:
        return errors
    if parse_quantity(limits["storage"]) < parse_quantity(asked):
        detail = f"must be less than or equal to storage limit of {limits['storage']}"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, asked))
    return errors


def _usage(claim: Object, _names: Iterable[str]) -> QuotaUsage:
    """Of all claims, and of those of one class."""
    used = {PERSISTENT_VOLUME_CLAIMS.plural: NANO, "requests.storage": requested(claim)}
    if class_of(claim):
        of_class = f"{class_of(claim)}.storageclass.storage.k8s.io"
        used[f"{of_class}/requests.storage"] = requested(claim)
        used[f"{of_class}/persistentvolumeclaims"] = NANO
    return used


_ROLES = {
    roles.Role.NODE: {"": roles.READ},
    # Stateful sets make claims for their pods.
    roles.Role.CONTROLLER: {"": roles.COLLECT | roles.CREATE},
}

CLAIM = Kind(
    PERSISTENT_VOLUME_CLAIMS,
    shape=PersistentVolumeClaim,
    strategy="claim",
    defaults=default_claim,
    validate=validate_claim,
    validate_update=validate_claim_update,
    subresources={"status": STATUS},
    status=StatusWrites.SUBRESOURCE,
    quota=QuotaRule(_usage),
    node_scope=NodeScope.USED_BY_PODS,
    roles=roles.combine(roles.EDITED, roles.STATUS, _ROLES),
    columns=(
        NAME,
        Column("Status", leaving_or_phase),
        Column("Volume", at("spec", "volumeName", default="")),
        Column("Capacity", at("status", "capacity", "storage", default="")),
        Column("Access Modes", access_modes("status")),
        Column("StorageClass", at("spec", "storageClassName", default="")),
        Column("VolumeAttributesClass", at("spec", "volumeAttributesClassName", default="<unset>")),
        AGE,
        Column("VolumeMode", at("spec", "volumeMode", default=""), priority=1),
    ),
)
