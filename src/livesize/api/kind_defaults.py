"""What Kubernetes fills in of the kinds beside pods, nodes and namespaces.

As everywhere: quantities come out canonical, doing it twice changes nothing more, and what has the
wrong shape comes back as it is, for validation to refuse.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from livesize.api.kept import kept
from livesize.api.kinds import (
    LIMIT_RANGES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
)
from livesize.api.objects import Object
from livesize.api.quantity import MAXIMUM_CHARACTERS, QuantityError, canonical

_SERVICE_SPEC: Object = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}
_LIMIT_SIDES = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def canonical_quantities(quantities: Any) -> Any:
    if not isinstance(quantities, dict):
        return quantities
    return {
        name: _canonical_text(item) if isinstance(item, str) else canonical_quantity(item)
        for name, item in quantities.items()
    }


@kept(4096, longest=MAXIMUM_CHARACTERS)
def _canonical_text(text: str) -> Any:
    return canonical_quantity(text)


def canonical_quantity(quantity: Any) -> Any:
    if not isinstance(quantity, str | int | float) or isinstance(quantity, bool):
        return quantity
    try:
        return canonical(quantity)
    except QuantityError:
        return quantity


def _default_quota(quota: Object) -> Object:
    filled = dict(quota)
    for part, sides in (("spec", ("hard",)), ("status", ("hard", "used"))):
        given = quota.get(part, {})
        if not isinstance(given, dict):
            continue
        sized = {side: canonical_quantities(given[side]) for side in sides if side in given}
        filled[part] = {**given, **sized}
    return filled


def _default_limit_range(limits: Object) -> Object:
    spec = limits.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("limits"), list):
        return limits
    items = [_default_limits(item) for item in spec["limits"]]
    return {**limits, "spec": {**spec, "limits": items}}


def _default_limits(item: Any) -> Any:
    """A container's default limit is the most it may have; its default request is its default
    limit, or else the least it may have."""
    if not isinstance(item, dict):
        return item
    sized = {side: canonical_quantities(item[side]) for side in _LIMIT_SIDES if side in item}
    if not all(isinstance(side, dict) for side in sized.values()):
        return item
    filled = {**item, **sized}
    if item.get("type") != "Container":
        return filled
    limits = {**sized.get("max", {}), **sized.get("default", {})}
    requests = {**sized.get("min", {}), **limits, **sized.get("defaultRequest", {})}
    if limits:
        filled["default"] = limits
    if requests:
        filled["defaultRequest"] = requests
    return filled


def _default_secret(secret: Object) -> Object:
    filled = {"type": "Opaque", **secret}
    words, known = secret.get("stringData"), secret.get("data", {})
    if not isinstance(words, dict) or not isinstance(known, dict):
        return filled
    if not all(isinstance(word, str) for word in words.values()):
        return filled
    del filled["stringData"]
    encoded = {name: _encode(word) for name, word in words.items()}
    return {**filled, "data": {**known, **encoded}}


def _encode(word: str) -> str:
    return base64.b64encode(word.encode(errors="surrogatepass")).decode()


def _default_service(service: Object) -> Object:
    spec = service.get("spec")
    if not isinstance(spec, dict):
        return service
    filled = {**_SERVICE_SPEC, **spec}
    if isinstance(spec.get("ports"), list):
        filled["ports"] = [_default_port(port) for port in spec["ports"]]
    return {"status": {"loadBalancer": {}}, **service, "spec": filled}


def _default_port(port: Any) -> Any:
    if not isinstance(port, dict) or "port" not in port:
        return port
    return {"protocol": "TCP", "targetPort": port["port"], **port}


def _default_priority_class(priority: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority", **priority}


def _default_claim(claim: Object) -> Object:
    spec, status = claim.get("spec"), claim.get("status", {})
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return claim
    filled = {"volumeMode": "Filesystem", **spec}
    resources = spec.get("resources")
    if isinstance(resources, dict):
        sides = {side: canonical_quantities(resources[side]) for side in resources}
        filled["resources"] = sides
    return {**claim, "spec": filled, "status": {"phase": "Pending", **_with_capacity(status)}}


def _default_volume(volume: Object) -> Object:
    spec, status = volume.get("spec"), volume.get("status", {})
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return volume
    filled: Object = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
    filled |= _with_capacity(spec)
    if isinstance(filled.get("hostPath"), dict):
        filled["hostPath"] = {"type": "", **filled["hostPath"]}
    return {**volume, "spec": filled, "status": {"phase": "Pending", **status}}


def _with_capacity(part: Object) -> Object:
    if "capacity" not in part:
        return part
    return {**part, "capacity": canonical_quantities(part["capacity"])}


def _default_storage_class(storage_class: Object) -> Object:
    return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **storage_class}


KIND_DEFAULTS: dict[tuple[str, str], Callable[[Object], Object]] = {
    (RESOURCE_QUOTAS.group, RESOURCE_QUOTAS.plural): _default_quota,
    (LIMIT_RANGES.group, LIMIT_RANGES.plural): _default_limit_range,
    (SECRETS.group, SECRETS.plural): _default_secret,
    (SERVICES.group, SERVICES.plural): _default_service,
    (PRIORITY_CLASSES.group, PRIORITY_CLASSES.plural): _default_priority_class,
    (PERSISTENT_VOLUME_CLAIMS.group, PERSISTENT_VOLUME_CLAIMS.plural): _default_claim,
    (PERSISTENT_VOLUMES.group, PERSISTENT_VOLUMES.plural): _default_volume,
    (STORAGE_CLASSES.group, STORAGE_CLASSES.plural): _default_storage_class,
}
