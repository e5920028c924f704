"""Services: names for sets of pods. They are stored for clients; no traffic is directed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from livesize.api.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    at,
)
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup
from livesize.api.quantity import NANO
from livesize.api.quota_rule import QuotaRule, QuotaUsage
from livesize.api.roles import EDITED
from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    scalar,
    string,
    string_map,
    strings,
)
from livesize.api.schema.meta import Condition, TypedObject
from livesize.api.validation.choices import one_of
from livesize.api.validation.names import DnsRule, validate_name

SERVICES = Resource("", "v1", "services", "Service", True, "service", ("svc",), ("all",))


class ServicePort(Message):
    name = string(1)
    protocol = string(2)
    port = integer(3, keeps_zero=True)
    targetPort = scalar(
        Type.INT_OR_STRING, 4, description="A number, or the name of a container's port."
    )
    nodePort = integer(5)
    appProtocol = string(6, keeps_zero=True)


class ServiceSpec(Message):
    ports = list_of(ServicePort, 1, key="port", keys=("port", "protocol"))
    selector = string_map(2, is_atomic=True)
    clusterIP = string(3)
    type = string(4)
    externalIPs = strings(5)
    sessionAffinity = string(7)
    loadBalancerIP = string(8)
    loadBalancerSourceRanges = strings(9)
    externalName = string(10)
    externalTrafficPolicy = string(11)
    healthCheckNodePort = integer(12)
    publishNotReadyAddresses = boolean(13)
    ipFamilyPolicy = string(17, keeps_zero=True)
    clusterIPs = strings(18)
    ipFamilies = strings(19)
    allocateLoadBalancerNodePorts = boolean(20, keeps_zero=True)
    loadBalancerClass = string(21, keeps_zero=True)
    internalTrafficPolicy = string(22, keeps_zero=True)
    trafficDistribution = string(23, keeps_zero=True)
    sessionAffinityConfig = anything()


class ServiceStatus(Message):
    loadBalancer = anything()
    conditions = list_of(Condition, 2, key="type")


class Service(TypedObject):
    """Stored and served; nothing routes by it."""

    spec = object_of(ServiceSpec, 2)
    status = object_of(ServiceStatus, 3)


_SERVICE_SPEC: Object = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}


_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


_PROTOCOLS = ("SCTP", "TCP", "UDP")


def default_service(service: Object) -> Object:
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


def _external_addresses(service: Object, _now: float) -> str:
    if lookup(service, "spec", "type") == "ExternalName":
        return str(lookup(service, "spec", "externalName", default=NONE))
    return ",".join(lookup(service, "spec", "externalIPs", default=[])) or NONE


def _ports_cell(service: Object, _now: float) -> str:
    words = []
    for port in lookup(service, "spec", "ports", default=[]):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        words.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(words) or NONE


def _selector_cell(service: Object, _now: float) -> str:
    selector = lookup(service, "spec", "selector", default={})
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or NONE


def _usage(service: Object, _names: Iterable[str]) -> QuotaUsage:
    kind = lookup(service, "spec", "type", default="ClusterIP")
    ports = len(lookup(service, "spec", "ports", default=[]))
    return {
        SERVICES.plural: NANO,
        "services.loadbalancers": NANO if kind == "LoadBalancer" else 0,
        "services.nodeports": ports * NANO if kind in ("LoadBalancer", "NodePort") else 0,
    }


SERVICE = Kind(
    SERVICES,
    shape=Service,
    defaults=default_service,
    validate=validate_service,
    name_rule=DnsRule.LABEL,
    quota=QuotaRule(_usage),
    roles=EDITED,
    selectable_fields=("spec.clusterIP", "spec.type"),
    columns=(
        NAME,
        Column("Type", at("spec", "type", default="")),
        Column("Cluster-IP", at("spec", "clusterIP")),
        Column("External-IP", _external_addresses),
        Column("Port(s)", _ports_cell),
        AGE,
        Column("Selector", _selector_cell, priority=1),
    ),
)
