"""Nodes: the machines that run pods."""

from __future__ import annotations

from collections.abc import Callable

from livesize.api.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Column,
    at,
)
from livesize.api.conditions import find_condition
from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import STATUS
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup
from livesize.api.quantity import canonical_quantities
from livesize.api.roles import CHANGE, COLLECT, CREATE, READ, Role
from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    quantities,
    scalar,
    string,
    string_set,
    strings,
)
from livesize.api.schema.meta import TypedObject
from livesize.api.validation.names import validate_key
from livesize.api.validation.resources import validate_quantities

NODES = Resource("", "v1", "nodes", "Node", False, "node", ("no",))


class Taint(Message):
    key = string(1)
    value = string(2)
    effect = string(3)
    timeAdded = scalar(Type.TIME, 4)


class NodeSpec(Message):
    podCIDR = string(1)
    providerID = string(3)
    unschedulable = boolean(4)
    taints = list_of(Taint, 5)
    podCIDRs = string_set(7)
    configSource = anything()
    externalID = anything()


class NodeCondition(Message):
    type = string(1)
    status = string(2)
    lastHeartbeatTime = scalar(Type.TIME, 3)
    lastTransitionTime = scalar(Type.TIME, 4)
    reason = string(5)
    message = string(6)


class NodeAddress(Message):
    type = string(1)
    address = string(2)


class DaemonEndpoint(Message):
    Port = integer(1)


class NodeDaemonEndpoints(Message):
    kubeletEndpoint = object_of(DaemonEndpoint, 1)


class NodeSystemInfo(Message):
    machineID = string(1, keeps_zero=True)
    systemUUID = string(2, keeps_zero=True)
    bootID = string(3, keeps_zero=True)
    kernelVersion = string(4, keeps_zero=True)
    osImage = string(5, keeps_zero=True)
    containerRuntimeVersion = string(6, keeps_zero=True)
    kubeletVersion = string(7, keeps_zero=True)
    kubeProxyVersion = string(8, keeps_zero=True)
    operatingSystem = string(9, keeps_zero=True)
    architecture = string(10, keeps_zero=True)
    swap = anything()


class ContainerImage(Message):
    names = strings(1)
    sizeBytes = integer(2)


class NodeStatus(Message):
    capacity = quantities(1)
    allocatable = quantities(2)
    phase = string(3)
    conditions = list_of(NodeCondition, 4, key="type")
    addresses = list_of(NodeAddress, 5, key="type")
    daemonEndpoints = object_of(NodeDaemonEndpoints, 6)
    nodeInfo = object_of(NodeSystemInfo, 7)
    images = list_of(ContainerImage, 8)
    config = anything()
    declaredFeatures = anything()
    features = anything()
    runtimeHandlers = anything()
    volumesAttached = anything()
    volumesInUse = anything()


class Node(TypedObject):
    spec = object_of(NodeSpec, 2)
    status = object_of(NodeStatus, 3)


_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def default_node(node: Object) -> Object:
    """Allocatable is the capacity where nothing else is said."""
    status = node.get("status")
    if not isinstance(status, dict) or "capacity" not in status:
        return node
    capacity = canonical_quantities(status["capacity"])
    allocatable = canonical_quantities(status.get("allocatable", capacity))
    return {**node, "status": {**status, "capacity": capacity, "allocatable": allocatable}}


def validate_node(node: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for side in ("capacity", "allocatable"):
        quantities = lookup(node, "status", side, default={})
        errors += validate_quantities(quantities, f"status.{side}")
    for index, taint in enumerate(lookup(node, "spec", "taints", default=[])):
        field = f"spec.taints[{index}]"
        errors += validate_key(taint.get("key") or "", f"{field}.key")
        if taint.get("effect") not in _TAINT_EFFECTS:
            detail = "supported values: " + ", ".join(f'"{word}"' for word in _TAINT_EFFECTS)
            kind, where = FieldErrorKind.NOT_SUPPORTED, f"{field}.effect"
            errors.append(FieldError(kind, where, detail, taint.get("effect")))
    return errors


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
    return ",".join(role for role in roles if role) or NONE


def _node_address(kind: str) -> Callable[[Object, float], str]:
    def cell(node: Object, _now: float) -> str:
        for address in lookup(node, "status", "addresses", default=[]):
            if address.get("type") == kind:
                return str(address.get("address", NONE))
        return NONE

    return cell


_SEEN = {"": READ, "status": READ}
NODE = Kind(
    NODES,
    shape=Node,
    defaults=default_node,
    validate=validate_node,
    subresources={"status": STATUS},
    node_scope=NodeScope.ITSELF,
    roles={
        Role.VIEWER: _SEEN,
        Role.EDITOR: _SEEN,
        Role.SCHEDULER: _SEEN,
        Role.APISERVER: _SEEN,
        Role.NODE: {"": READ | CREATE | CHANGE, "status": READ | CHANGE},
        Role.CONTROLLER: {"": COLLECT, "status": READ | CHANGE},
    },
    selectable_fields=("spec.unschedulable",),
    columns=(
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", at("status", "nodeInfo", "kubeletVersion", default="")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("OS-Image", at("status", "nodeInfo", "osImage", default=UNKNOWN), priority=1),
        Column(
            "Kernel-Version",
            at("status", "nodeInfo", "kernelVersion", default=UNKNOWN),
            priority=1,
        ),
        Column(
            "Container-Runtime",
            at("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN),
            priority=1,
        ),
        Column("CPU", at("status", "allocatable", "cpu"), priority=1),
        Column("Memory", at("status", "allocatable", "memory"), priority=1),
    ),
)
