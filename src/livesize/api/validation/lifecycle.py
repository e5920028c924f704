"""Checks of probes, lifecycle hooks, and of what an init container may have of them."""

from __future__ import annotations

from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.resources import stays

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NOT_NEGATIVE = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")
_THRESHOLDS = ("successThreshold", "failureThreshold")
_NOT_FOR_INIT = "may not be set for init containers without restartPolicy=Always"


def validate_lifecycle(container: Object, field: str, *, is_init: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if is_init and not stays(container):
        errors += _validate_init(container, field)
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            errors += _validate_probe(probe, name, f"{field}.{name}")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            errors += _validate_handler(hook, _HOOK_HANDLERS, f"{field}.lifecycle.{name}")
    return errors


def _validate_init(container: Object, field: str) -> list[FieldError]:
    errors = []
    policy = container.get("restartPolicy")
    if policy is not None:
        detail = 'supported values: "Always"'
        where = f"{field}.restartPolicy"
        errors.append(FieldError(FieldErrorKind.NOT_SUPPORTED, where, detail, policy))
    return errors + [
        FieldError(FieldErrorKind.FORBIDDEN, f"{field}.{name}", _NOT_FOR_INIT)
        for name in (*PROBES, "lifecycle")
        if container.get(name)
    ]


def _validate_probe(probe: Object, name: str, field: str) -> list[FieldError]:
    errors = _validate_handler(probe, _PROBE_HANDLERS, field)
    for key in (*_NOT_NEGATIVE, *_THRESHOLDS):
        number = probe.get(key)
        if number is not None and number < 0:
            detail = "must be greater than or equal to 0"
            errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.{key}", detail, number))
    successes = probe.get("successThreshold")
    if name != "readinessProbe" and successes not in (None, 0, 1):
        where = f"{field}.successThreshold"
        errors.append(FieldError(FieldErrorKind.INVALID, where, "must be 1", successes))
    return errors


def _validate_handler(handler: Object, known: tuple[str, ...], field: str) -> list[FieldError]:
    given = [name for name in known if handler.get(name) is not None]
    if not given:
        return [FieldError(FieldErrorKind.REQUIRED, field, "must specify a handler type")]
    errors = []
    for name in given[1:]:
        detail = "may not specify more than 1 handler type"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"{field}.{name}", detail))
    if given[0] == "exec" and not handler["exec"].get("command"):
        errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.exec.command", ""))
    if given[0] in ("httpGet", "tcpSocket"):
        where = f"{field}.{given[0]}.port"
        errors += _validate_port(handler[given[0]].get("port"), where)
    return errors


def _validate_port(port: Any, field: str) -> list[FieldError]:
    if port is None:
        return [FieldError(FieldErrorKind.REQUIRED, field, "")]
    named = isinstance(port, str) and 1 <= len(port) <= 15
    numbered = isinstance(port, int) and not isinstance(port, bool) and 1 <= port <= 65535
    if named or numbered:
        return []
    detail = "must be between 1 and 65535, inclusive, or the name of a port"
    return [FieldError(FieldErrorKind.INVALID, field, detail, port)]
