"""What a pod may read of itself: fieldRef and resourceFieldRef, in Kubernetes' words. Pure."""

from __future__ import annotations

import re

from livesize.api.objects import Object, lookup
from livesize.api.quantity import parse_quantity

FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.podIP",
)
_WHOLE = ("metadata.labels", "metadata.annotations")
_ONE_OF = re.compile(r"(metadata\.(?:labels|annotations))\['([^']+)'\]")
_RESOURCES = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def knows_field(path: str, *, whole: bool) -> bool:
    """``whole``: all labels or annotations too, as files may have them."""
    known = path in FIELD_PATHS or _ONE_OF.fullmatch(path) is not None
    return known or (whole and path in _WHOLE)


def knows_resource(name: str) -> bool:
    return name in _RESOURCES


def field_value(pod: Object, path: str) -> str:
    """Empty where the pod has nothing there."""
    one = _ONE_OF.fullmatch(path)
    if one is not None:
        return str(lookup(pod, *one.group(1).split("."), one.group(2), default=""))
    value = lookup(pod, *path.split("."), default="")
    if isinstance(value, dict):
        return "\n".join(f"{key}={_quoted(str(value[key]))}" for key in sorted(value))
    return str(value)


def resource_value(size: Object, name: str, divisor: str, node: Object) -> str:
    """``size`` {requests, limits} in units of ``divisor``, rounded up. A limit that is not set is
    all that the node has to give (``node``: its allocatable cpu and memory)."""
    side, _, resource = name.partition(".")
    quantity = lookup(size, side, resource)
    if quantity is None and side == "requests":
        quantity = lookup(size, "limits", resource, default="0")
    if quantity is None:
        quantity = node[resource]
    unit = parse_quantity(divisor or "0") or parse_quantity("1")
    return str(-(-parse_quantity(quantity) // unit))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
