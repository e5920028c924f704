"""Checks of a resize, by pods/resize and by a change of the pod itself.

Codes, fields and sentences are those of a real kube-apiserver (facts D.4), with the rows that
decisions 3 overrides: resizePolicy may change, and a size beyond the node is not refused here.
"""

from __future__ import annotations

from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, evolve, lookup
from livesize.api.qos import qos_class
from livesize.api.quantity import QuantityError
from livesize.api.resources import (
    ResourceName,
    cells_of,
    containers_of,
    is_vm,
    same_quantities,
    stays,
)
from livesize.api.validation.pod import validate_pod_sizes
from livesize.api.validation.vm_cells import changed_cells
from livesize.api.vm_status import resizable_statuses_of

_MIRROR = "kubernetes.io/config.mirror"
_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"
_ONLY_OF_SIDECARS = "only cpu and memory resources for init or sidecar containers are mutable"
_INIT_IS_FIXED = "resources for non-sidecar init containers are immutable"
_SIDES = ("requests", "limits")
_RESIZABLE = frozenset(name.value for name in ResourceName)
_CHANGEABLE = frozenset({*_SIDES, "resizePolicy"})
_NONE: Object = {}


def prepare_resize(old: Object, incoming: Object, *, keeps_policies: bool = True) -> Object:
    """``old`` with the resources and policies of ``incoming``; what else it says is dropped.
    ``keeps_policies``: a policy that it does not name stays (``keep_policies``).

    Containers that were added, removed, renamed or moved stay so, for validation to refuse, and so
    do the resources of init containers that are no sidecars.
    """
    spec = incoming.get("spec")
    if not isinstance(spec, dict):
        return old
    prepared = dict(old["spec"])
    for kind in ("containers", "initContainers"):
        if kind in spec:
            taken = _take_sizes(prepared.get(kind) or [], spec[kind], keeps_policies)
            prepared[kind] = taken
    if "virtualMachine" in spec:
        vm = _take_vm(prepared.get("virtualMachine"), spec["virtualMachine"], keeps_policies)
        prepared["virtualMachine"] = vm
    if prepared.get("initContainers") == []:
        del prepared["initContainers"]
    return {**old, "spec": prepared}


def _take_sizes(old: list[Object], incoming: Any, keeps_policies: bool) -> Any:
    if not isinstance(incoming, list) or not all(isinstance(item, dict) for item in incoming):
        return incoming
    if [item.get("name") for item in incoming] != [item.get("name") for item in old]:
        return incoming
    pairs = zip(old, incoming, strict=True)
    return [_take_size(before, after, keeps_policies) for before, after in pairs]


def _take_vm(before: Object | None, incoming: Any, keeps_policies: bool) -> Any:
    if before is None or not isinstance(incoming, dict):
        return incoming
    taken = _take_size(before, incoming, keeps_policies)
    given = incoming.get("numa")
    if given is None or given == before.get("numa"):
        return taken
    return {**taken, "numa": _take_cells(before, given)}


def _take_cells(before: Object, given: Any) -> Any:
    """Of each cell its memory. Those that were added or removed stay so, for validation."""
    cells = cells_of({"numa": given})
    known = {cell["id"]: cell for cell in cells_of(before)}
    taken = [
        {**known[cell["id"]], "memory": cell.get("memory")} if cell.get("id") in known else cell
        for cell in cells
    ]
    return {**(before.get("numa") or {}), "cells": taken}


def _take_size(before: Object, after: Object, keeps_policies: bool) -> Object:
    if keeps_policies:
        after = _keep_policy(before, after)
    taken = dict(before)
    taken.pop("resizePolicy", None)
    taken["resources"] = after.get("resources") or {}
    if after.get("resizePolicy") is not None:
        taken["resizePolicy"] = after["resizePolicy"]
    return taken


def keep_policies(old: Object, new: Object) -> Object:
    """``new`` with the resize policies of ``old`` for containers that say nothing about theirs: an
    older client does not know them and must not erase them (F27). Not for a change that speaks of
    policies, and an apply: there, what is left out is meant to go (ADR 0074)."""
    if is_vm(old) and is_vm(new):
        path = ("spec", "virtualMachine")
        return evolve(new, path, _keep_policy(lookup(old, *path), lookup(new, *path)))
    for kind in ("containers", "initContainers"):
        before = {one.get("name"): one for one in lookup(old, "spec", kind, default=[])}
        containers = lookup(new, "spec", kind)
        if before and isinstance(containers, list):
            kept = [
                _keep_policy(before.get(one.get("name"), {}), one) if isinstance(one, dict) else one
                for one in containers
            ]
            new = evolve(new, ("spec", kind), kept)
    return new


def _keep_policy(before: Object, after: Object) -> Object:
    """Who names a policy in either dialect knows of both: then nothing is kept."""
    resources = after.get("resources") or {}
    says = after.get("resizePolicy") is not None
    if says or not isinstance(resources, dict) or resources.get("resizePolicy") is not None:
        return after
    if before.get("resizePolicy") is not None:
        after = {**after, "resizePolicy": before["resizePolicy"]}
    mapped = lookup(before, "resources", "resizePolicy")
    if mapped is None:
        return after
    return {**after, "resources": {**resources, "resizePolicy": mapped}}


def validate_pod_resize(new: Object, old: Object) -> list[FieldError]:
    """Everything wrong with resizing ``old`` (stored) to ``new`` (defaulted)."""
    if errors := _added_or_moved(new, old):
        return errors
    return [*validate_pod_sizes(new), *resize_errors(new, old)]


def resize_errors(new: Object, old: Object) -> list[FieldError]:
    """The rules of a resize alone; ``new`` has the containers of ``old`` and the right shape."""
    errors = [*unsupported(old), *_init_errors(new, old), *_container_errors(new, old)]
    try:
        before = lookup(old, "status", "qosClass") or qos_class(old)
        after = qos_class(new)
    except QuantityError:
        return errors  # already said by the checks of the pod
    if before != after:
        detail = "Pod QOS Class may not change as a result of resizing"
        errors.append(FieldError(FieldErrorKind.INVALID, "spec", detail, before))
    return errors


def _added_or_moved(new: Object, old: Object) -> list[FieldError]:
    errors = changed_cells(new, old)
    if is_vm(new) != is_vm(old):
        detail = "a virtual machine may not be added or removed on resize"
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec.virtualMachine", detail))
    for kind in ("containers", "initContainers"):
        if old["spec"].get(kind) is new["spec"].get(kind):
            continue
        before, after = _names(old, kind), _names(new, kind)
        if before == after:
            continue
        if len(before) != len(after):
            detail = "containers may not be added or removed on resize"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"spec.{kind}", detail))
            continue
        detail = "containers may not be renamed or reordered on resize"
        errors += [
            FieldError(FieldErrorKind.FORBIDDEN, f"spec.{kind}[{index}].name", detail)
            for index, name in enumerate(after)
            if name != before[index]
        ]
    return errors


def _names(pod: Object, kind: str) -> list[Any]:
    containers = (pod.get("spec") or {}).get(kind)
    return [container.get("name") for container in containers] if containers else []


def unsupported(old: Object) -> list[FieldError]:
    """Why a pod cannot be resized at all, whatever is asked."""
    if "os" in old["spec"] and lookup(old, "spec", "os", "name") == "windows":
        return [FieldError(FieldErrorKind.FORBIDDEN, "[]", "windows pods cannot be resized")]
    if _MIRROR in (old["metadata"].get("annotations") or _NONE):
        return [FieldError(FieldErrorKind.FORBIDDEN, "[]", "static pods cannot be resized")]
    for status in resizable_statuses_of(old):
        if status.get("resources") is None and lookup(status, "state", "running") is not None:
            detail = "Pod running on node without support for resize"
            return [FieldError(FieldErrorKind.FORBIDDEN, "spec", detail)]
    return []


def _init_errors(new: Object, old: Object) -> list[FieldError]:
    """A sidecar may have other cpu and memory, and another policy; other init containers may not
    (Kubernetes 1.33 and later)."""
    errors: list[FieldError] = []
    starting = new["spec"].get("initContainers")
    if not starting:
        return errors
    before = lookup(old, "spec", "initContainers", default=[])
    for index, container in enumerate(starting):
        field = f"spec.initContainers[{index}]"
        was, now = before[index].get("resources") or {}, container.get("resources") or {}
        if stays(container):
            errors += _removal_errors(was, now, f"{field}.resources")
            if not _same_others(was, now):
                errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, _ONLY_OF_SIDECARS))
        elif not _same_resources(container, before[index]):
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, field, _INIT_IS_FIXED))
    return errors


def _container_errors(new: Object, old: Object) -> list[FieldError]:
    errors = []
    others_changed = False
    before = containers_of(old)
    for index, container in enumerate(containers_of(new)):
        where = "virtualMachine" if is_vm(new) else f"containers[{index}]"
        was, now = before[index].get("resources") or {}, container.get("resources") or {}
        errors += _removal_errors(was, now, f"spec.{where}.resources")
        others_changed = others_changed or not _same_others(was, now)
    if others_changed:
        errors.append(FieldError(FieldErrorKind.FORBIDDEN, "spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _removal_errors(was: Object, now: Object, field: str) -> list[FieldError]:
    errors = []
    for side in _SIDES:
        before, after = was.get(side) or _NONE, now.get(side) or _NONE
        if before.keys() != after.keys() and _removed(before, after):
            detail = f"resource {side} cannot be removed"
            errors.append(FieldError(FieldErrorKind.FORBIDDEN, f"{field}.{side}", detail))
    return errors


def _removed(before: Object, after: Object) -> bool:
    return not _RESIZABLE.isdisjoint(before.keys() - after.keys())


def _same_others(before: Object, after: Object) -> bool:
    """Everything in ``resources`` but cpu, memory and the policy is unchanged."""
    if before.keys() | after.keys() <= _CHANGEABLE and _are_resizable(before, after):
        return True  # there are none
    for side in _SIDES:
        was, now = _others(before.get(side), _RESIZABLE), _others(after.get(side), _RESIZABLE)
        if not same_quantities(was, now):
            return False
    return _others(before, _CHANGEABLE) == _others(after, _CHANGEABLE)


def _are_resizable(*resources: Object) -> bool:
    for one in resources:
        for side in _SIDES:
            if not (one.get(side) or _NONE).keys() <= _RESIZABLE:
                return False
    return True


def _others(obj: Object | None, keys: frozenset[str]) -> Object:
    return {key: value for key, value in (obj or {}).items() if key not in keys}


def _same_resources(left: Object, right: Object) -> bool:
    one, other = left.get("resources") or {}, right.get("resources") or {}
    sides = all(same_quantities(one.get(side), other.get(side)) for side in _SIDES)
    return sides and left.get("resizePolicy") == right.get("resizePolicy")
