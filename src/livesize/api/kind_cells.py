"""Cells of the tables of quotas, services and the other stored kinds, as kubectl prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livesize.api.objects import Object, lookup
from livesize.api.storage import is_default

NONE = "<none>"


def quota_requests(quota: Object, _now: float) -> str:
    """Used of hard, for everything but limits."""
    return _quota(quota, lambda name: not name.startswith("limits."))


def quota_limits(quota: Object, _now: float) -> str:
    return _quota(quota, lambda name: name.startswith("limits."))


def _quota(quota: Object, wanted: Callable[[str], bool]) -> str:
    hard, used = (lookup(quota, "status", side, default={}) for side in ("hard", "used"))
    words = [f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if wanted(name)]
    return ", ".join(words)


def entries(*fields: str) -> Callable[[Object, float], int]:
    """How many entries these fields have together."""
    return lambda obj, _now: sum(len(obj.get(field) or ()) for field in fields)


def service_ports(service: Object, _now: float) -> str:
    words = []
    for port in lookup(service, "spec", "ports", default=[]):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        words.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(words) or NONE


def service_selector(service: Object, _now: float) -> str:
    selector = lookup(service, "spec", "selector", default={})
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or NONE


def external_addresses(service: Object, _now: float) -> str:
    if lookup(service, "spec", "type") == "ExternalName":
        return str(lookup(service, "spec", "externalName", default=NONE))
    return ",".join(lookup(service, "spec", "externalIPs", default=[])) or NONE


def share(field: str) -> Callable[[Object, float], str]:
    """minAvailable or maxUnavailable of a disruption budget."""
    return lambda budget, _now: str(lookup(budget, "spec", field, default="N/A"))


_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes(part: str) -> Callable[[Object, float], str]:
    """RWO,ROX of a claim's status or of a volume's spec, always in the same order."""

    def cell(obj: Object, _now: float) -> str:
        modes = lookup(obj, part, "accessModes", default=[])
        return ",".join(short for mode, short in _SHORT_MODES.items() if mode in modes)

    return cell


def leaving_or_phase(obj: Object, _now: float) -> str:
    """What waits for its finalizers says so."""
    if lookup(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(lookup(obj, "status", "phase", default=""))


def claim_reference(volume: Object, _now: float) -> str:
    claim = lookup(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def class_name(storage_class: Object, _now: float) -> str:
    """The one that claims get which name none is marked."""
    name = str(lookup(storage_class, "metadata", "name", default=""))
    return f"{name} (default)" if is_default(storage_class) else name


def truth(field: str) -> Callable[[Object, float], Any]:
    return lambda obj, _now: bool(obj.get(field))
