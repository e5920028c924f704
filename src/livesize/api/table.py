"""Objects as rows, the way kubectl prints them (meta.k8s.io/v1 Table).

``table_for`` gives ``columnDefinitions`` and ``rows``; columns of priority 1 show with -o wide.
The door puts the object itself, or its metadata, into each row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from livesize.api.conditions import find_condition, is_true
from livesize.api.container_state import is_running
from livesize.api.kind_cells import (
    access_modes,
    claim_reference,
    class_name,
    entries,
    external_addresses,
    leaving_or_phase,
    quota_limits,
    quota_requests,
    service_ports,
    service_selector,
    share,
    truth,
)
from livesize.api.kinds import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from livesize.api.metrics_kinds import NODE_METRICS, POD_METRICS
from livesize.api.objects import Object, lookup, name_of
from livesize.api.pod_words import pod_status_word, resources_words
from livesize.api.quantity import QuantityStyle, format_quantity, parse_quantity
from livesize.api.resize_state import allocated_sizes
from livesize.api.resources import resizable_of
from livesize.api.vm_status import resizable_statuses_of

_UNKNOWN = "<unknown>"
_NONE = "<none>"


class Column(msgspec.Struct, frozen=True):
    name: str
    cell: Callable[[Object, float], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


def table_for(resource: Resource, objects: Iterable[Object], *, now: float) -> Object:
    """``{columnDefinitions, rows: [{cells}]}`` for the objects, in their order."""
    columns = columns_for(resource)
    return {
        "columnDefinitions": [column.definition() for column in columns],
        "rows": [{"cells": [column.cell(obj, now) for column in columns]} for obj in objects],
    }


def columns_for(resource: Resource) -> tuple[Column, ...]:
    return _METERED.get(resource) or _COLUMNS.get(resource.plural, _PLAIN)


def format_age(seconds: float) -> str:
    """A duration as kubectl prints it: 5s, 3m20s, 2h5m, 2d, 3y10d."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    for below, limit, text in (
        (whole, 120, f"{whole}s"),
        (minutes, 10, _pair(minutes, "m", whole % 60, "s")),
        (hours, 3, f"{minutes}m"),
        (hours, 8, _pair(hours, "h", minutes % 60, "m")),
        (hours, 48, f"{hours}h"),
        (days, 8, _pair(days, "d", hours % 24, "h")),
        (days, 730, f"{days}d"),
        (days, 365 * 8, _pair(days // 365, "y", days % 365, "d")),
    ):
        if below < limit:
            return text
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _since(timestamp: Any, now: float) -> str:
    if not isinstance(timestamp, str) or not timestamp:
        return _UNKNOWN
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return _UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return format_age(now - moment.timestamp())


def _name(obj: Object, _now: float) -> str:
    return name_of(obj)


def _age(obj: Object, now: float) -> str:
    return _since(lookup(obj, "metadata", "creationTimestamp"), now)


def _at(*path: str | int, default: str = _NONE) -> Callable[[Object, float], Any]:
    return lambda obj, _now: lookup(obj, *path, default=default)


def _ready(pod: Object, _now: float) -> str:
    """As kubectl counts: sidecars are containers too."""
    ready = sum(1 for status in resizable_statuses_of(pod) if status.get("ready"))
    return f"{ready}/{len(resizable_of(pod))}"


def _restarts(pod: Object, now: float) -> str:
    statuses = resizable_statuses_of(pod)
    count = sum(status.get("restartCount") or 0 for status in statuses)
    finished = [lookup(one, "lastState", "terminated", "finishedAt") for one in statuses]
    last = max((time for time in finished if time), default=None)
    return f"{count} ({_since(last, now)} ago)" if count and last else str(count)


def _gates(pod: Object, _now: float) -> str:
    """How many of the conditions that it names as readiness gates hold."""
    names = [
        gate.get("conditionType") for gate in lookup(pod, "spec", "readinessGates", default=[])
    ]
    return f"{sum(is_true(pod, str(name)) for name in names)}/{len(names)}" if names else _NONE


def _desired(pod: Object, _now: float) -> str:
    return resources_words([container.get("resources") or {} for container in resizable_of(pod)])


def _allocated(pod: Object, _now: float) -> str:
    return resources_words(list(allocated_sizes(pod).values()))


def _actual(pod: Object, _now: float) -> str:
    running = [status for status in resizable_statuses_of(pod) if is_running(status)]
    return resources_words([one.get("resources") or {} for one in running]) if running else "-"


def _node_status(node: Object, _now: float) -> str:
    """As Kubernetes prints it: Unknown is a node that has never said anything."""
    ready = find_condition(node, "Ready")
    words = ["Unknown" if ready is None else "NotReady"]
    if ready is not None and ready.get("status") == "True":
        words = ["Ready"]
    if lookup(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object, _now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = lookup(node, "metadata", "labels", default={})
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(role for role in roles if role) or _NONE


def _node_address(kind: str) -> Callable[[Object, float], str]:
    def cell(node: Object, _now: float) -> str:
        for address in lookup(node, "status", "addresses", default=[]):
            if address.get("type") == kind:
                return str(address.get("address", _NONE))
        return _NONE

    return cell


def _event_last_seen(event: Object, now: float) -> str:
    for path in (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("eventTime",),
        ("firstTimestamp",),
    ):
        if time := lookup(event, *path):
            return _since(time, now)
    return _age(event, now)


def _used(name: str, style: QuantityStyle) -> Callable[[Object, float], str]:
    """What all containers of a pod use."""

    def cell(metrics: Object, _now: float) -> str:
        return format_quantity(
            sum(parse_quantity(one["usage"][name]) for one in metrics["containers"]), style
        )

    return cell


def _event_object(event: Object, _now: float) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME = Column("Name", _name, format="name")
_AGE = Column("Age", _age)
_PLAIN = (_NAME, _AGE)
# Named like the kinds they are about, so the plural does not tell them apart.
_METERED: dict[Resource, tuple[Column, ...]] = {
    NODE_METRICS: (
        _NAME,
        Column("CPU", _at("usage", "cpu")),
        Column("Memory", _at("usage", "memory")),
        Column("Window", _at("window")),
    ),
    POD_METRICS: (
        _NAME,
        Column("CPU", _used("cpu", QuantityStyle.DECIMAL_SI)),
        Column("Memory", _used("memory", QuantityStyle.BINARY_SI)),
        Column("Window", _at("window")),
    ),
}
_COLUMNS: dict[str, tuple[Column, ...]] = {
    PODS.plural: (
        _NAME,
        Column("Ready", _ready),
        Column("Status", lambda pod, _now: pod_status_word(pod)),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", _at("status", "podIP"), priority=1),
        Column("Node", _at("spec", "nodeName"), priority=1),
        Column("Readiness Gates", _gates, priority=1),
        Column("Desired", _desired, priority=1, description="Requests/limits the spec asks for"),
        Column("Allocated", _allocated, priority=1, description="What the node has promised"),
        Column("Actual", _actual, priority=1, description="What the machine itself reports"),
    ),
    NODES.plural: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _at("status", "nodeInfo", "kubeletVersion", default="")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("OS-Image", _at("status", "nodeInfo", "osImage", default=_UNKNOWN), priority=1),
        Column(
            "Kernel-Version",
            _at("status", "nodeInfo", "kernelVersion", default=_UNKNOWN),
            priority=1,
        ),
        Column(
            "Container-Runtime",
            _at("status", "nodeInfo", "containerRuntimeVersion", default=_UNKNOWN),
            priority=1,
        ),
        Column("CPU", _at("status", "allocatable", "cpu"), priority=1),
        Column("Memory", _at("status", "allocatable", "memory"), priority=1),
    ),
    NAMESPACES.plural: (_NAME, Column("Status", _at("status", "phase", default="Active")), _AGE),
    EVENTS.plural: (
        Column("Last Seen", _event_last_seen),
        Column("Type", _at("type", default="")),
        Column("Reason", _at("reason", default="")),
        Column("Object", _event_object),
        Column("Message", lambda event, _now: str(event.get("message") or "").strip()),
        Column("Name", _name, format="name", priority=1),
    ),
    LEASES.plural: (_NAME, Column("Holder", _at("spec", "holderIdentity", default="")), _AGE),
    RESOURCE_QUOTAS.plural: (
        _NAME,
        Column("Request", quota_requests, description="Used of hard"),
        Column("Limit", quota_limits, description="Used of hard"),
        _AGE,
    ),
    LIMIT_RANGES.plural: (
        _NAME,
        Column("Created At", _at("metadata", "creationTimestamp", default=_UNKNOWN)),
    ),
    SERVICE_ACCOUNTS.plural: (_NAME, Column("Secrets", entries("secrets"), "integer"), _AGE),
    CONFIG_MAPS.plural: (_NAME, Column("Data", entries("data", "binaryData"), "integer"), _AGE),
    SECRETS.plural: (
        _NAME,
        Column("Type", _at("type", default="")),
        Column("Data", entries("data"), "integer"),
        _AGE,
    ),
    SERVICES.plural: (
        _NAME,
        Column("Type", _at("spec", "type", default="")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("External-IP", external_addresses),
        Column("Port(s)", service_ports),
        _AGE,
        Column("Selector", service_selector, priority=1),
    ),
    DISRUPTION_BUDGETS.plural: (
        _NAME,
        Column("Min Available", share("minAvailable")),
        Column("Max Unavailable", share("maxUnavailable")),
        Column(
            "Allowed Disruptions",
            lambda budget, _now: lookup(budget, "status", "disruptionsAllowed", default=0),
            "integer",
        ),
        _AGE,
    ),
    PRIORITY_CLASSES.plural: (
        _NAME,
        Column("Value", lambda priority, _now: priority.get("value", 0), "integer"),
        Column("Global-Default", truth("globalDefault"), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy", default="")),
    ),
    PERSISTENT_VOLUME_CLAIMS.plural: (
        _NAME,
        Column("Status", leaving_or_phase),
        Column("Volume", _at("spec", "volumeName", default="")),
        Column("Capacity", _at("status", "capacity", "storage", default="")),
        Column("Access Modes", access_modes("status")),
        Column("StorageClass", _at("spec", "storageClassName", default="")),
        Column(
            "VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")
        ),
        _AGE,
        Column("VolumeMode", _at("spec", "volumeMode", default=""), priority=1),
    ),
    PERSISTENT_VOLUMES.plural: (
        _NAME,
        Column("Capacity", _at("spec", "capacity", "storage", default="")),
        Column("Access Modes", access_modes("spec")),
        Column("Reclaim Policy", _at("spec", "persistentVolumeReclaimPolicy", default="")),
        Column("Status", leaving_or_phase),
        Column("Claim", claim_reference),
        Column("StorageClass", _at("spec", "storageClassName", default="")),
        Column(
            "VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")
        ),
        Column("Reason", _at("status", "reason", default="")),
        _AGE,
        Column("VolumeMode", _at("spec", "volumeMode", default=""), priority=1),
    ),
    STORAGE_CLASSES.plural: (
        Column("Name", class_name, format="name"),
        Column("Provisioner", _at("provisioner", default="")),
        Column("ReclaimPolicy", _at("reclaimPolicy", default="")),
        Column("VolumeBindingMode", _at("volumeBindingMode", default="")),
        Column("AllowVolumeExpansion", truth("allowVolumeExpansion"), "boolean"),
        _AGE,
    ),
}
