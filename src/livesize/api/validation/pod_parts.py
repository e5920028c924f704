"""Checks of what a new pod says besides its containers' sizes: hosts, gates, kernel settings, and
where its containers write why they ended."""

from __future__ import annotations

import ipaddress
import re

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup
from livesize.api.validation.choices import required_one_of
from livesize.api.validation.names import DnsRule, validate_key, validate_name

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_SYSCTL = re.compile(r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_LONGEST_SYSCTL = 253


def validate_pod_parts(spec: Object) -> list[FieldError]:
    return [*_validate_hosts(spec), *_validate_gates(spec), *_validate_sysctls(spec)]


def validate_termination(container: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    path = container.get("terminationMessagePath")
    if path and (not path.startswith("/") or ".." in path.split("/")):
        where = f"{field}.terminationMessagePath"
        detail = "must be an absolute path without '..'"
        errors.append(FieldError(FieldErrorKind.INVALID, where, detail, path))
    policy = container.get("terminationMessagePolicy", _MESSAGE_POLICIES[0])
    return errors + required_one_of(policy, _MESSAGE_POLICIES, f"{field}.terminationMessagePolicy")


def _validate_hosts(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, alias in enumerate(spec.get("hostAliases") or []):
        where, address = f"spec.hostAliases[{index}]", alias.get("ip") or ""
        if not _is_address(address):
            detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            errors.append(FieldError(FieldErrorKind.INVALID, f"{where}.ip", detail, address))
        for hostname in alias.get("hostnames") or []:
            errors += validate_name(hostname, f"{where}.hostnames", DnsRule.SUBDOMAIN)
    return errors


def _is_address(text: str) -> bool:
    """Without a zone (fe80::1%eth0), which may hold any characters."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _validate_gates(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, gate in enumerate(spec.get("readinessGates") or []):
        where = f"spec.readinessGates[{index}].conditionType"
        errors += validate_key(gate.get("conditionType") or "", where)
    return errors


def _validate_sysctls(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, setting in enumerate(lookup(spec, "securityContext", "sysctls", default=[])):
        where = f"spec.securityContext.sysctls[{index}].name"
        name = setting.get("name") or ""
        if not name:
            errors.append(FieldError(FieldErrorKind.REQUIRED, where, ""))
        elif len(name) > _LONGEST_SYSCTL or not _SYSCTL.fullmatch(name):
            detail = "must be the name of a kernel setting, such as net.ipv4.ip_local_port_range"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, name))
        elif name in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, where, "", name))
        seen.add(name)
    return errors
