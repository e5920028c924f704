"""Checks of a pod's volumes, and of where its containers mount them."""

from __future__ import annotations

from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.quantity import QuantityError, memory_bytes
from livesize.api.validation.names import DnsRule, validate_name

_WITHIN = "must be a relative path without '..'"
_ITEM_SOURCES = ("configMap", "secret", "downwardAPI")


def validate_volumes(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        where, name = f"spec.volumes[{index}]", volume.get("name")
        errors += validate_name(name, f"{where}.name", DnsRule.LABEL)
        if name in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, f"{where}.name", "", name))
        seen.add(name)
        errors += _validate_volume(volume, where)
    return errors


def validate_mounts(container: Object, volumes: set[str], field: str) -> list[FieldError]:
    """``volumes``: the names of those the pod has."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        where, path = f"{field}.volumeMounts[{index}]", mount.get("mountPath")
        if mount.get("name") not in volumes:
            kind = FieldErrorKind.NOT_FOUND
            errors.append(FieldError(kind, f"{where}.name", "", mount.get("name")))
        errors += _validate_mount_path(path, seen, f"{where}.mountPath")
        for key in ("subPath", "subPathExpr"):
            errors += _validate_within(mount.get(key), f"{where}.{key}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, mount["subPath"]))
    return errors


def _validate_mount_path(path: str | None, seen: set[str], field: str) -> list[FieldError]:
    if not path:
        return [FieldError(FieldErrorKind.REQUIRED, field, "")]
    if not path.startswith("/") or ":" in path or ".." in path.split("/"):
        detail = "must be an absolute path without ':' and '..'"
        return [FieldError(FieldErrorKind.INVALID, field, detail, path)]
    if path in seen:
        return [FieldError(FieldErrorKind.INVALID, field, "must be unique", path)]
    seen.add(path)
    return []


def _validate_volume(volume: Object, where: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = sorted(volume.keys() - {"name"})
    if len(kinds) > 1:
        detail = f"may not specify more than 1 volume type: {', '.join(kinds)}"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, where, detail))
    host = volume.get("hostPath")
    if host is not None:
        path = host.get("path")
        if not path:
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"{where}.hostPath.path", ""))
        elif not path.startswith("/") or ".." in path.split("/"):
            detail = "must be an absolute path without '..'"
            field = f"{where}.hostPath.path"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, path))
    claim = volume.get("persistentVolumeClaim")
    if claim is not None:
        field = f"{where}.persistentVolumeClaim.claimName"
        errors += validate_name(claim.get("claimName"), field, DnsRule.SUBDOMAIN)
    errors += _validate_size(lookup(volume, "emptyDir", "sizeLimit"), f"{where}.emptyDir.sizeLimit")
    for source in (volume, *lookup(volume, "projected", "sources", default=[])):
        errors += _validate_items(source, where)
    return errors


def _validate_size(size: Any, field: str) -> list[FieldError]:
    if size is None:
        return []
    try:
        amount = memory_bytes(size)
    except QuantityError as error:
        return [FieldError(FieldErrorKind.INVALID, field, str(error), size)]
    if amount < 0:
        detail = "must be greater than or equal to 0"
        return [FieldError(FieldErrorKind.INVALID, field, detail, size)]
    return []


def _validate_items(source: Object, where: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for kind in _ITEM_SOURCES:
        for index, item in enumerate(lookup(source, kind, "items", default=[])):
            field = f"{where}.{kind}.items[{index}]"
            if kind != "downwardAPI" and not item.get("key"):
                errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.key", ""))
            if not item.get("path"):
                errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.path", ""))
            errors += _validate_within(item.get("path"), f"{field}.path")
    return errors


def _validate_within(path: str | None, field: str) -> list[FieldError]:
    if path and (path.startswith("/") or ".." in path.split("/")):
        return [FieldError(FieldErrorKind.INVALID, field, _WITHIN, path)]
    return []
