"""Checks of the kinds that are kept for others to read: ConfigMap, Secret, Service, and labels of
namespaces that rule what pods may be."""

from __future__ import annotations

import base64
import binascii
import re

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.validation.choices import one_of
from livesize.api.validation.names import DnsRule, validate_name

LARGEST_BYTES = 1024 * 1024
SECURITY_LEVELS = ("privileged", "baseline", "restricted")
SECURITY_LABELS = tuple(
    f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")
)
_KEY = re.compile("[-._a-zA-Z0-9]+")
_KEY_SENTENCE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
    " 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FROZEN = "field is immutable when `immutable` is set"


def validate_config_map(config: Object) -> list[FieldError]:
    texts, binaries = config.get("data") or {}, config.get("binaryData") or {}
    errors = [*_validate_keys(texts, "data"), *_validate_keys(binaries, "binaryData")]
    errors += _validate_encoded(binaries, "binaryData")
    for key in sorted(texts.keys() & binaries.keys()):
        detail = "duplicate of key present in binaryData"
        errors.append(FieldError(FieldErrorKind.INVALID, f"data[{key}]", detail, key))
    size_bytes = sum(len(word.encode(errors="surrogatepass")) for word in texts.values())
    size_bytes += sum(len(word) * 3 // 4 for word in binaries.values())
    return errors + _validate_size(size_bytes, "")


def validate_config_map_update(new: Object, old: Object) -> list[FieldError]:
    return [*validate_config_map(new), *_validate_frozen(new, old, ("data", "binaryData"))]


def validate_secret(secret: Object) -> list[FieldError]:
    kept = secret.get("data") or {}
    errors = [*_validate_keys(kept, "data"), *_validate_encoded(kept, "data")]
    return errors + _validate_size(sum(len(word) * 3 // 4 for word in kept.values()), "data")


def validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_secret(new)
    if new.get("type") != old.get("type"):
        kind, detail = FieldErrorKind.INVALID, "field is immutable"
        errors.append(FieldError(kind, "type", detail, new.get("type")))
    return errors + _validate_frozen(new, old, ("data",))


def validate_service(service: Object) -> list[FieldError]:
    spec = service.get("spec") or {}
    errors = one_of(spec.get("type", "ClusterIP"), _SERVICE_TYPES, "spec.type")
    ports: list[Object] = spec.get("ports") or []
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(FieldError(FieldErrorKind.REQUIRED, "spec.ports", ""))
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"spec.ports[{index}]", port.get("name") or ""
        errors += one_of(port.get("protocol", "TCP"), _PROTOCOLS, f"{field}.protocol")
        if not 1 <= (port.get("port") or 0) <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            where = f"{field}.port"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, port.get("port") or 0))
        if len(ports) > 1:
            errors += validate_name(name, f"{field}.name", DnsRule.LABEL)
            if name in seen:
                errors.append(FieldError(FieldErrorKind.DUPLICATE, f"{field}.name", "", name))
        seen.add(name)
    return errors


def validate_namespace(namespace: Object) -> list[FieldError]:
    errors = []
    for label in SECURITY_LABELS:
        level = lookup(namespace, "metadata", "labels", label)
        if level is not None and level not in SECURITY_LEVELS:
            detail = f"must be one of {', '.join(SECURITY_LEVELS)}"
            field = f"metadata.labels[{label}]"
            errors.append(FieldError(FieldErrorKind.INVALID, field, detail, level))
    return errors


def _validate_keys(entries: Object, field: str) -> list[FieldError]:
    return [
        FieldError(FieldErrorKind.INVALID, f"{field}[{key}]", _KEY_SENTENCE, key)
        for key in entries
        if len(key) > 253 or not _KEY.fullmatch(key) or key in (".", "..")
    ]


def _validate_encoded(entries: Object, field: str) -> list[FieldError]:
    errors = []
    for key, word in entries.items():
        try:
            base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            where, detail = f"{field}[{key}]", "must be base64"
            # The value itself may be a secret.
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, ""))
    return errors


def _validate_size(size_bytes: int, field: str) -> list[FieldError]:
    if size_bytes <= LARGEST_BYTES:
        return []
    detail = f"may not be more than {LARGEST_BYTES} bytes"
    return [FieldError(FieldErrorKind.TOO_LONG, field, detail)]


def _validate_frozen(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    if not new.get("immutable"):
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "immutable", _FROZEN))
    changed = [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return errors + [FieldError(FieldErrorKind.FORBIDDEN, field, _FROZEN) for field in changed]
