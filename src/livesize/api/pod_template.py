"""The defaults of pods, and of the template that pods share with the kinds that make pods. Pure.

The dialects of resizePolicy come out in today's words (decisions 1). resizePolicy itself is never
added (decisions 2). A virtual machine gets its maxima, its boot memory and its overhead (decisions
18).
"""

from __future__ import annotations

from typing import Any

from livesize.api.nulls import without_nulls
from livesize.api.objects import Object
from livesize.api.qos import qos_class
from livesize.api.quantity import (
    QuantityError,
    canonical_quantities,
    canonical_quantity,
    format_memory,
)
from livesize.api.resize_policy import normalize_policy_item
from livesize.api.resources import cells_of
from livesize.api.vm_defaults import VM_AMOUNTS, fill_vm, is_filled
from livesize.api.vm_size import vm_overhead_bytes, vm_size_of

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
_PROBE: Object = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644
_FILES = ("configMap", "secret", "downwardAPI", "projected")


def default_pod(pod: Object) -> Object:
    """The pod with its template's defaults, its phase and its QoS class."""
    filled = default_pod_template(pod)
    status = pod.get("status", {})
    if filled is pod or not isinstance(status, dict):
        return filled
    if "phase" not in status:
        status = {"phase": "Pending", **status}
    if "qosClass" not in status:
        status = {**status, **_qos(filled)}
    return {**filled, "status": status}


def default_pod_template(template: Object) -> Object:
    """Metadata and spec of a pod, or of what makes pods; ``template`` itself where it has no spec.
    An object of the wrong shape comes back as far as it could be read."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return template
    filled = {**_POD_SPEC, **_account(spec), **spec}
    for kind in ("containers", "initContainers"):
        if isinstance(spec.get(kind), list):
            filled[kind] = [_default_container(container) for container in spec[kind]]
    if isinstance(spec.get("volumes"), list):
        filled["volumes"] = [_filled_volume(volume) for volume in spec["volumes"]]
    if "overhead" in spec:
        filled["overhead"] = canonical_quantities(spec["overhead"])
    if isinstance(spec.get("virtualMachine"), dict):
        filled = _default_vm_spec(filled)
    return {**template, "spec": filled}


def default_sizes(pod: Object) -> Object:
    """``pod``, which was filled in before, with its sizes filled in again: a resize has changed
    nothing else."""
    spec = pod["spec"]
    if isinstance(spec.get("virtualMachine"), dict):
        return default_pod(without_nulls(pod))
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
    filled = {**container, "resources": {}, **without_nulls(sizes)}
    _default_sizes(filled)
    return filled


def _account(spec: Object) -> Object:
    """serviceAccount is the old name of serviceAccountName."""
    return {"serviceAccountName": spec["serviceAccount"]} if spec.get("serviceAccount") else {}


def _qos(pod: Object) -> Object:
    try:
        return {"qosClass": qos_class(pod)}
    except QuantityError:
        return {}


def _default_vm_spec(spec: Object) -> Object:
    """Maxima, boot memory and overhead are written down once: later defaults find them there."""
    vm = {"resources": {}, **spec["virtualMachine"]}
    _default_sizes(vm)
    for part, name in VM_AMOUNTS:
        if isinstance(vm.get(part), dict) and name in vm[part]:
            vm[part] = {**vm[part], name: canonical_quantity(vm[part][name])}
    if cells_of(vm):
        vm["numa"] = {**vm["numa"], "cells": [_default_cell(cell) for cell in cells_of(vm)]}
    filled = {**spec, "virtualMachine": vm}
    if filled.get("containers") == []:
        del filled["containers"]
    try:
        filled["virtualMachine"] = fill_vm(vm)
        if not is_filled(filled["virtualMachine"]):
            return filled
        size = vm_size_of({"spec": filled})
    except QuantityError:
        return filled
    overhead = {"memory": format_memory(vm_overhead_bytes(size))}
    return {**filled, "overhead": {**overhead, **(filled.get("overhead") or {})}}


def _default_cell(cell: Any) -> Any:
    if not isinstance(cell, dict):
        return cell
    amounts = {
        name: canonical_quantity(cell[name])
        for name in ("memory", "boot")
        if cell.get(name) is not None
    }
    return {**cell, **amounts}


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    filled = {**_CONTAINER, **container, **_filled_probes(container)}
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
    ``made``, which no other function has seen yet."""
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


def _filled_probes(container: Object) -> Object:
    """The probes of the container, with what they leave out; only those it has."""
    return {
        name: _filled_probe(container[name])
        for name in _PROBES
        if isinstance(container.get(name), dict)
    }


def _filled_volume(volume: Any) -> Any:
    """A volume that says nothing is an empty folder."""
    if not isinstance(volume, dict):
        return volume
    if volume.keys() == {"name"}:
        return {**volume, "emptyDir": {}}
    files = {
        kind: {"defaultMode": _FILE_MODE, **volume[kind]}
        for kind in _FILES
        if isinstance(volume.get(kind), dict)
    }
    host = volume.get("hostPath")
    kind = {"hostPath": {"type": "", **host}} if isinstance(host, dict) else {}
    return {**volume, **files, **kind}


def _filled_probe(probe: Object) -> Object:
    """Zero is as good as absent."""
    given = {key: value for key, value in probe.items() if not (key in _PROBE and value == 0)}
    filled = {**_PROBE, **given}
    page = filled.get("httpGet")
    if isinstance(page, dict):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **page}
    return filled
