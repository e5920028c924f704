"""Storage classes: how volumes are made, and what becomes of them."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    Column,
    at,
    truth,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.roles import RULING
from livesize.api.schema.fields import Message, boolean, list_of, string, string_map, strings
from livesize.api.schema.meta import TypedObject
from livesize.api.storage import (
    LOCAL_PROVISIONER,
    BindingMode,
    ReclaimPolicy,
    is_default,
)
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.names import validate_key

STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", False, "storageclass", ("sc",)
)
STORAGE = "io.k8s.api.storage.v1"


class TopologySelectorRequirement(Message):
    key = string(1)
    values = strings(2)


class TopologySelectorTerm(Message):
    matchLabelExpressions = list_of(TopologySelectorRequirement, 1)


class StorageClass(TypedObject, package=STORAGE):
    """How volumes for claims are made, when, and what becomes of them."""

    provisioner = string(2)
    parameters = string_map(3)
    reclaimPolicy = string(4, keeps_zero=True)
    mountOptions = strings(5)
    allowVolumeExpansion = boolean(6, keeps_zero=True)
    volumeBindingMode = string(7, keeps_zero=True)
    allowedTopologies = list_of(TopologySelectorTerm, 8)


_FIXED_OF_CLASS = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def default_storage_class(storage_class: Object) -> Object:
    return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **storage_class}


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


def _name_cell(storage_class: Object, _now: float) -> str:
    """The one that claims get which name none is marked."""
    name = str(lookup(storage_class, "metadata", "name", default=""))
    return f"{name} (default)" if is_default(storage_class) else name


STORAGE_CLASS = Kind(
    STORAGE_CLASSES,
    shape=StorageClass,
    defaults=default_storage_class,
    validate=validate_storage_class,
    validate_update=validate_storage_class_update,
    roles=RULING,
    columns=(
        Column("Name", _name_cell, format="name"),
        Column("Provisioner", at("provisioner", default="")),
        Column("ReclaimPolicy", at("reclaimPolicy", default="")),
        Column("VolumeBindingMode", at("volumeBindingMode", default="")),
        Column("AllowVolumeExpansion", truth("allowVolumeExpansion"), "boolean"),
        AGE,
    ),
)
