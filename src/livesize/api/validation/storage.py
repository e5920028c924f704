"""Checks of claims, volumes and classes of storage, and of what may change of them later."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import parse_quantity
from livesize.api.storage import (
    LOCAL_PROVISIONER,
    SOURCES,
    AccessMode,
    BindingMode,
    ReclaimPolicy,
    VolumeMode,
    node_terms,
    requested,
    volume_name,
)
from livesize.api.validation.choices import one_of, required_one_of
from livesize.api.validation.names import (
    DnsRule,
    validate_key,
    validate_name,
)
from livesize.api.validation.placement import validate_node_terms
from livesize.api.validation.resources import validate_quantities
from livesize.api.validation.selectors import validate_selector

_OTHER_SOURCES = ("csi", "fc", "iscsi", "nfs")
_COPIED = ("dataSource", "dataSourceRef")
_GROWS = (
    "spec is immutable after creation except resources.requests for bound claims: make a new claim"
    " with what you need, and copy what is in this one"
)
_FIXED = "is immutable after creation: make a new volume instead"
_FIXED_OF_CLASS = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def validate_claim(claim: Object) -> list[FieldError]:
    spec = claim.get("spec") or {}
    errors = [*_validate_modes(spec), *validate_selector(spec.get("selector") or {})]
    requests = lookup(spec, "resources", "requests", default={})
    field = "spec.resources.requests"
    errors += _validate_storage(requests, field) or _validate_limit(spec, field)
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


def validate_volume(volume: Object) -> list[FieldError]:
    spec = volume.get("spec") or {}
    errors = [*_validate_modes(spec), *_validate_source(spec)]
    errors += _validate_storage(spec.get("capacity") or {}, "spec.capacity")
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


def validate_storage_class(storage_class: Object) -> list[FieldError]:
    provisioner, mode = storage_class.get("provisioner"), storage_class.get("volumeBindingMode")
    errors = required_one_of(storage_class.get("reclaimPolicy"), ReclaimPolicy, "reclaimPolicy")
    errors += required_one_of(mode, BindingMode, "volumeBindingMode")
    if not provisioner:
        errors.append(FieldError(FieldErrorKind.REQUIRED, "provisioner", ""))
    else:
        errors += validate_key(provisioner.lower(), "provisioner")
    if provisioner == LOCAL_PROVISIONER and mode == BindingMode.IMMEDIATE:
        detail = f"{LOCAL_PROVISIONER} makes a folder on the pod's node: use WaitForFirstConsumer"
        errors.append(FieldError(FieldErrorKind.INVALID, "volumeBindingMode", detail, mode))
    return errors


def validate_storage_class_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_storage_class(new)
    for key in _FIXED_OF_CLASS:
        if (new.get(key) or "") != (old.get(key) or ""):
            detail = f"updates to {key} are forbidden: make another class instead"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, key, detail))
    return errors


def _fixed_of_claim(claim: Object, old: Object) -> Object:
    """Without what may grow. A volume is written in once, by whoever binds it."""
    spec = {**(claim.get("spec") or {})}
    spec["resources"] = {**(spec.get("resources") or {}), "requests": None}
    if not volume_name(old):
        spec.pop("volumeName", None)
    return spec


def _validate_modes(spec: Object) -> list[FieldError]:
    modes: list[str] = spec.get("accessModes") or []
    errors: list[FieldError] = []
    if not modes:
        detail = "at least 1 access mode is required"
        errors.append(FieldError(FieldErrorKind.REQUIRED, "spec.accessModes", detail))
    for index, mode in enumerate(modes):
        errors += one_of(mode, AccessMode, f"spec.accessModes[{index}]")
    if AccessMode.ONE_POD in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec.accessModes", detail))
    return errors + one_of(
        spec.get("volumeMode", VolumeMode.FILES.value), VolumeMode, "spec.volumeMode"
    )


def _validate_storage(quantities: Object, field: str) -> list[FieldError]:
    where = f"{field}.storage"
    if quantities.get("storage") is None:
        return [FieldError(FieldErrorKind.REQUIRED, where, "")]
    errors = validate_quantities(quantities, field)
    if not errors and parse_quantity(quantities["storage"]) <= 0:
        detail = "must be greater than zero"
        errors.append(FieldError(FieldErrorKind.INVALID, where, detail, quantities["storage"]))
    return errors


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
