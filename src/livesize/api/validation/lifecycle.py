"""Checks of probes, lifecycle hooks, a container's own restarts, and of what an init container may
have of them."""

from __future__ import annotations

from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.resources import stays
from livesize.api.restart_policy import RestartPolicy
from livesize.api.validation.choices import one_of

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NOT_NEGATIVE = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")
_THRESHOLDS = ("successThreshold", "failureThreshold")
_RULE_ACTIONS = ("Restart",)
_OPERATORS = ("In", "NotIn")
_MOST_RULES = 20
_MOST_EXIT_CODES = 255
_NOT_FOR_INIT = "may not be set for init containers without restartPolicy=Always"


def validate_lifecycle(container: Object, field: str, *, is_init: bool) -> list[FieldError]:
    errors = _validate_restarts(container, field)
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


def _validate_restarts(container: Object, field: str) -> list[FieldError]:
    """A container's own restartPolicy, and the rules that go before it (Kubernetes 1.35)."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    where = f"{field}.restartPolicy"
    errors: list[FieldError] = []
    if policy is not None:
        errors += one_of(policy, sorted(RestartPolicy), where)
    elif rules:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(FieldError(FieldErrorKind.REQUIRED, where, detail))
    if len(rules) > _MOST_RULES:
        detail = f"must have at most {_MOST_RULES} items"
        errors.append(FieldError(FieldErrorKind.TOO_MANY, f"{where}Rules", detail, len(rules)))
    for index, rule in enumerate(rules[:_MOST_RULES]):
        errors += _validate_rule(rule, f"{where}Rules[{index}]")
    return errors


def _validate_rule(rule: Object, field: str) -> list[FieldError]:
    errors = one_of(rule.get("action"), _RULE_ACTIONS, f"{field}.action")
    codes = rule.get("exitCodes")
    if codes is None:
        where = f"{field}.exitCodes"
        return [*errors, FieldError(FieldErrorKind.REQUIRED, where, "must be specified")]
    errors += one_of(codes.get("operator"), _OPERATORS, f"{field}.exitCodes.operator")
    values = codes.get("values") or []
    if len(values) > _MOST_EXIT_CODES:
        where = f"{field}.exitCodes.values"
        detail = f"must have at most {_MOST_EXIT_CODES} items"
        errors.append(FieldError(FieldErrorKind.TOO_MANY, where, detail, len(values)))
    return errors


def _validate_init(container: Object, field: str) -> list[FieldError]:
    return [
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
