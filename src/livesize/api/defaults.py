"""Fills in what Kubernetes fills in, so that clients read back what they expect.

Quantities come out canonical ("1000m" → "1"), null means absent, and the dialects of resizePolicy
come out in today's words (decisions 1). resizePolicy itself is never added (decisions 2).
A virtual machine gets its maxima, its boot memory and its overhead (decisions 18).
An object of the wrong shape comes back as far as it could be read: validation refuses it next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from livesize.api.kind_defaults import (
    KIND_DEFAULTS,
    canonical_quantities,
    canonical_quantity,
)
from livesize.api.kinds import NAMESPACES, NODES, PODS, Resource
from livesize.api.objects import Object
from livesize.api.pod_defaults import filled_probes, filled_volume
from livesize.api.qos import qos_class
from livesize.api.quantity import QuantityError, format_memory
from livesize.api.resize_policy import normalize_policy_item
from livesize.api.validation.shapes import check_shape
from livesize.api.vm_size import (
    VM_FIXED,
    fill_vm,
    is_filled,
    vm_overhead_bytes,
    vm_size_of,
)

_POD_SPEC: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
}
_CONTAINER: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}

_DEEPEST = 100  # nothing we know lies deeper, and recursion stays bounded


def default_object(resource: Resource, obj: Object) -> Object:
    """``obj`` with everything filled in; doing it twice changes nothing more."""
    pruned = {"apiVersion": resource.api_version, "kind": resource.kind, **_pruned(obj)}
    filled = _DEFAULTS.get((resource.group, resource.plural))
    return pruned if filled is None else filled(pruned)


def default_sizes(pod: Object) -> Object:
    """``pod``, which was filled in before, with its sizes filled in again: a resize has changed
    nothing else."""
    spec = pod["spec"]
    if isinstance(spec.get("virtualMachine"), dict):
        return default_object(PODS, pod)
    sized = {
        kind: [_sized(container) for container in spec[kind]]
        for kind in ("containers", "initContainers")
        if isinstance(spec.get(kind), list)
    }
    return {**pod, "spec": {**spec, **sized}}


def _sized(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    sizes = {key: container[key] for key in ("resources", "resizePolicy") if key in container}
    filled = {**container, "resources": {}, **_pruned(sizes)}
    _default_sizes(filled)
    return filled


def _default_pod(pod: Object) -> Object:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    filled = {**_POD_SPEC, **_account(spec), **spec}
    for kind in ("containers", "initContainers"):
        if isinstance(spec.get(kind), list):
            filled[kind] = [_default_container(container) for container in spec[kind]]
    if isinstance(spec.get("volumes"), list):
        filled["volumes"] = [filled_volume(volume) for volume in spec["volumes"]]
    if "overhead" in spec:
        filled["overhead"] = canonical_quantities(spec["overhead"])
    if isinstance(spec.get("virtualMachine"), dict):
        filled = _default_vm_spec(filled)
    status = pod.get("status", {})
    if not isinstance(status, dict):
        return {**pod, "spec": filled}
    if "phase" not in status:
        status = {"phase": "Pending", **status}
    if "qosClass" not in status:
        status = {**status, **_qos({"spec": filled})}
    return {**pod, "spec": filled, "status": status}


def _account(spec: Object) -> Object:
    """serviceAccount is the old name of serviceAccountName."""
    return {"serviceAccountName": spec["serviceAccount"]} if spec.get("serviceAccount") else {}


def _qos(pod: Object) -> Object:
    if check_shape(PODS, pod):
        return {}  # validation says what is wrong
    try:
        return {"qosClass": qos_class(pod)}
    except QuantityError:
        return {}


def _default_vm_spec(spec: Object) -> Object:
    """Maxima, boot memory and overhead are written down once: later defaults find them there."""
    vm = {"resources": {}, **spec["virtualMachine"]}
    _default_sizes(vm)
    for part, name in VM_FIXED:
        if isinstance(vm.get(part), dict) and name in vm[part]:
            vm[part] = {**vm[part], name: canonical_quantity(vm[part][name])}
    filled = {**spec, "virtualMachine": vm}
    if filled.get("containers") == []:
        del filled["containers"]
    if check_shape(PODS, {"spec": filled}):
        return filled  # validation says what is wrong
    try:
        filled["virtualMachine"] = fill_vm(vm)
        if not is_filled(filled["virtualMachine"]):
            return filled
        size = vm_size_of({"spec": filled})
    except QuantityError:
        return filled
    overhead = {"memory": format_memory(vm_overhead_bytes(size))}
    return {**filled, "overhead": {**overhead, **(filled.get("overhead") or {})}}


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    filled = {**_CONTAINER, **container, **filled_probes(container)}
    _default_sizes(filled)
    if isinstance(container.get("image"), str):
        filled.setdefault("imagePullPolicy", _pull_policy(container["image"]))
    if isinstance(container.get("ports"), list):
        filled["ports"] = [
            {**port, "protocol": port.get("protocol", "TCP")} if isinstance(port, dict) else port
            for port in container["ports"]
        ]
    return filled


def _default_sizes(made: Object) -> None:
    """What containers and virtual machines have in common: resources and the policy. Filled into
    ``made``, which nobody else has seen yet."""
    made["resources"] = _default_resources(made["resources"])
    if isinstance(made.get("resizePolicy"), list):
        made["resizePolicy"] = [normalize_policy_item(item) for item in made["resizePolicy"]]


def _default_resources(resources: Any) -> Any:
    """Requests that are absent become the limits."""
    if not isinstance(resources, dict):
        return resources
    filled = dict(resources)
    for side in ("requests", "limits"):
        if side in filled:
            filled[side] = canonical_quantities(filled[side])
    requests, limits = filled.get("requests", {}), filled.get("limits", {})
    if isinstance(requests, dict) and isinstance(limits, dict) and limits.keys() - requests:
        absent = {name: limit for name, limit in limits.items() if name not in requests}
        filled["requests"] = {**requests, **absent}
    return filled


def _pull_policy(image: str) -> str:
    """Always for the tag latest, given or meant; IfNotPresent otherwise."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_namespace(namespace: Object) -> Object:
    metadata, status = namespace.get("metadata", {}), namespace.get("status", {})
    if not isinstance(metadata, dict) or not isinstance(status, dict):
        return namespace
    labels, name = metadata.get("labels", {}), metadata.get("name")
    if isinstance(labels, dict) and isinstance(name, str) and name:
        metadata = {**metadata, "labels": {**labels, "kubernetes.io/metadata.name": name}}
    return {**namespace, "metadata": metadata, "status": {"phase": "Active", **status}}


def _default_node(node: Object) -> Object:
    """Allocatable is the capacity where nothing else is said."""
    status = node.get("status")
    if not isinstance(status, dict) or "capacity" not in status:
        return node
    capacity = canonical_quantities(status["capacity"])
    allocatable = canonical_quantities(status.get("allocatable", capacity))
    return {**node, "status": {**status, "capacity": capacity, "allocatable": allocatable}}


def _pruned(obj: Object) -> Object:
    """Nearly no object has nulls, and that its encoding has none is seen in microseconds."""
    try:
        if b"null" not in orjson.dumps(obj):
            return obj
    except TypeError:  # too deep or too large a number to encode: validation is next
        pass
    pruned: Object = _without_nulls(obj)
    return pruned


def _without_nulls(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        return {
            key: _without_nulls(item, depth + 1) for key, item in value.items() if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item, depth + 1) for item in value]
    return value


_DEFAULTS: dict[tuple[str, str], Callable[[Object], Object]] = {
    (PODS.group, PODS.plural): _default_pod,
    (NAMESPACES.group, NAMESPACES.plural): _default_namespace,
    (NODES.group, NODES.plural): _default_node,
    **KIND_DEFAULTS,
}
