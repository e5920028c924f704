"""Checks of the metadata that every kind has."""

from __future__ import annotations

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.validation.names import (
    DnsRule,
    validate_key,
    validate_label_value,
    validate_name,
)

ANNOTATIONS_BYTES = 256 * 1024
_WRITTEN = ("labels", "annotations", "ownerReferences")
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")


def validate_metadata(obj: Object, *, namespaced: bool, rule: DnsRule) -> list[FieldError]:
    """Names, labels and annotations of a new object; generateName has been used up already."""
    name, namespace = lookup(obj, "metadata", "name"), lookup(obj, "metadata", "namespace")
    if name:
        errors = validate_name(name, "metadata.name", rule)
    else:
        detail = "name or generateName is required"
        errors = [FieldError(FieldErrorKind.REQUIRED, "metadata.name", detail)]
    if namespaced:
        errors += validate_name(namespace, "metadata.namespace", DnsRule.LABEL)
    elif namespace:
        detail = "not allowed on this type"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "metadata.namespace", detail))
    return errors + validate_written(obj)


def validate_metadata_update(new: Object, old: Object) -> list[FieldError]:
    """What identifies an object never changes; absent means unchanged."""
    errors = []
    for key in _IMMUTABLE:
        given, current = lookup(new, "metadata", key), lookup(old, "metadata", key)
        if given is not None and given != current:
            field, detail = f"metadata.{key}", "field is immutable"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, given))
    return errors + validate_written(new)


def validate_written(obj: Object) -> list[FieldError]:
    """What users write into the metadata of any object."""
    errors: list[FieldError] = []
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and not any(map(metadata.get, _WRITTEN)):
        return errors
    for key, value in lookup(obj, "metadata", "labels", default={}).items():
        errors += validate_key(key, "metadata.labels")
        errors += validate_label_value(value or "", "metadata.labels")
    annotations = lookup(obj, "metadata", "annotations", default={})
    size_bytes = 0
    for key, value in annotations.items():
        errors += validate_key(key.lower(), "metadata.annotations")
        size_bytes += len(key.encode()) + len((value or "").encode(errors="surrogatepass"))
    if size_bytes > ANNOTATIONS_BYTES:
        detail = f"may not be more than {ANNOTATIONS_BYTES} bytes"
        errors.append(FieldError(FieldErrorKind.TOO_LONG, "metadata.annotations", detail))
    for index, owner in enumerate(lookup(obj, "metadata", "ownerReferences", default=[])):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                field = f"metadata.ownerReferences[{index}].{key}"
                errors.append(FieldError(FieldErrorKind.REQUIRED, field, "must not be empty"))
    return errors
