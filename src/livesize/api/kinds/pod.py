"""Pods: containers, or one virtual machine, that are placed together and resized in place."""

from __future__ import annotations

from livesize.api.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    at,
    since,
)
from livesize.api.conditions import is_true
from livesize.api.container_state import is_running
from livesize.api.kinds.event import Event
from livesize.api.kinds.kind import Kind, StatusWrites
from livesize.api.kinds.pod_resource import PODS
from livesize.api.kinds.subresource import Subresource, posted, streamed
from livesize.api.node_scope import NodeScope
from livesize.api.objects import Object, lookup
from livesize.api.pod_quota import POD_QUOTA
from livesize.api.pod_summary import pod_status_text, resources_text
from livesize.api.pod_template import default_pod
from livesize.api.resize_state import allocated_sizes
from livesize.api.resources import resizable_of
from livesize.api.roles import ALL, CHANGE, CREATE, DELETE, GET, READ, Role
from livesize.api.schema.fields import integer, list_of, object_of, string
from livesize.api.schema.meta import DeleteOptions, TypedObject
from livesize.api.schema.pod_status import PodStatus, ResizeStep
from livesize.api.schema.pod_template import PodSpec, ResizeRequest
from livesize.api.schema.references import ObjectReference
from livesize.api.schema.resources import ContainerSize
from livesize.api.validation.pod import validate_pod
from livesize.api.validation.pod_update import validate_pod_update
from livesize.api.vm_status import resizable_statuses_of

__all__ = ["POD", "PODS"]
POLICY = "io.k8s.api.policy.v1"


class Pod(TypedObject):
    spec = object_of(PodSpec, 2, description="What is asked for.")
    status = object_of(
        PodStatus, 3, description="What was read back from the machine, and how far a resize is."
    )


class Binding(TypedObject):
    target = object_of(ObjectReference, 2)


class Eviction(TypedObject, package=POLICY):
    """Body of POST pods/X/eviction, in policy/v1."""

    deleteOptions = object_of(DeleteOptions, 2)


class Resizing(TypedObject):
    """Body of POST pods/X/resizing. The fields after ``request`` are ours, and optional."""

    request = object_of(ResizeRequest)
    generation = integer()
    phase = string()
    reason = string()
    message = string()
    allocated = list_of(ContainerSize)
    steps = list_of(ResizeStep)
    status = object_of(PodStatus)
    events = list_of(Event)


def _ready(pod: Object, _now: float) -> str:
    """As kubectl counts: sidecars are containers too."""
    ready = sum(1 for status in resizable_statuses_of(pod) if status.get("ready"))
    return f"{ready}/{len(resizable_of(pod))}"


def _restarts(pod: Object, now: float) -> str:
    statuses = resizable_statuses_of(pod)
    count = sum(status.get("restartCount") or 0 for status in statuses)
    finished = [lookup(one, "lastState", "terminated", "finishedAt") for one in statuses]
    last = max((time for time in finished if time), default=None)
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def _gates(pod: Object, _now: float) -> str:
    """How many of the conditions that it names as readiness gates hold."""
    names = [
        gate.get("conditionType") for gate in lookup(pod, "spec", "readinessGates", default=[])
    ]
    return f"{sum(is_true(pod, str(name)) for name in names)}/{len(names)}" if names else NONE


def _desired(pod: Object, _now: float) -> str:
    return resources_text([container.get("resources") or {} for container in resizable_of(pod)])


def _allocated(pod: Object, _now: float) -> str:
    return resources_text(list(allocated_sizes(pod).values()))


def _actual(pod: Object, _now: float) -> str:
    running = [status for status in resizable_statuses_of(pod) if is_running(status)]
    return resources_text([one.get("resources") or {} for one in running]) if running else "-"


_SEEN = {"": READ, "resize": READ, "status": READ}
_EDITED = {"": ALL, "eviction": CREATE, "resize": READ | CHANGE, "status": READ}
_ROLES = {
    Role.VIEWER: {**_SEEN, "log": GET},
    Role.EDITOR: {
        **_EDITED,
        "log": GET,
        # A shell in a container, its streams and its ports: for who may change the pod.
        **dict.fromkeys(("attach", "exec", "portforward"), CREATE),
    },
    # Of its own pods: see node_scope below.
    Role.NODE: {
        "": READ | CHANGE | DELETE,
        "resize": READ,
        "resizing": CREATE,
        "status": READ | CHANGE,
    },
    Role.SCHEDULER: {
        **_SEEN,
        "binding": CREATE,
        "resizing": CREATE,
        "status": READ | CHANGE,
    },
    Role.CONTROLLER: {**_EDITED, "status": READ | CHANGE},
    Role.APISERVER: _SEEN,
}
POD = Kind(
    PODS,
    shape=Pod,
    defaults=default_pod,
    validate=validate_pod,
    validate_update=validate_pod_update,
    subresources={
        "attach": streamed("PodAttachOptions"),
        "binding": posted("pod-binding", Binding),
        "eviction": posted("pod-eviction", Eviction, "policy/v1"),
        "exec": streamed("PodExecOptions"),
        "log": streamed(verbs=("get",)),
        "portforward": streamed("PodPortForwardOptions"),
        "resize": Subresource("pod-resize"),
        "resizing": posted("pod-resizing", Resizing),
        "status": Subresource("pod-status"),
    },
    status=StatusWrites.SUBRESOURCE,
    has_generation=True,
    strategy="pod",
    quota=POD_QUOTA,
    node_scope=NodeScope.OWN_PODS,
    roles=_ROLES,
    selectable_fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    columns=(
        NAME,
        Column("Ready", _ready),
        Column("Status", lambda pod, _now: pod_status_text(pod)),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", at("status", "podIP"), priority=1),
        Column("Node", at("spec", "nodeName"), priority=1),
        Column("Readiness Gates", _gates, priority=1),
        Column("Desired", _desired, priority=1, description="Requests/limits the spec asks for"),
        Column("Allocated", _allocated, priority=1, description="What the node has promised"),
        Column("Actual", _actual, priority=1, description="What the machine itself reports"),
    ),
)
