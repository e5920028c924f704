"""The patches that bring one pod to its workload's template. Pure.

Sizes go through pods/resize, with the amounts of the template alone: what only the pod has, such as
the defaults of a LimitRange, stays. A request that the template leaves out is its limit. Policies
and the annotations that a resize may change are written to the pod itself, before its sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from livesize.api.objects import Object, evolve, lookup
from livesize.api.resize_progress import resizable_containers
from livesize.api.resources import (
    VM_NAME,
    ResourceName,
    is_vm,
    resizable_of,
    same_cells,
    same_quantities,
    size_of,
    with_cells,
)
from livesize.api.workload_resize import our_annotations
from livesize.controllers.in_place.view import REVISION_LABEL

_SIDES = ("requests", "limits")
_SIZES = tuple(name.value for name in ResourceName)

TemplateSizes: TypeAlias = Mapping[str, Object]
"""By container: {requests, limits}, with cpu and memory alone; of a virtual machine with NUMA cells
also {cells: [{id, memory}]}."""


def template_sizes(template: Object) -> TemplateSizes:
    return {
        one["name"]: {**_sizes(one.get("resources") or {}), **_cells(one)}
        for one in resizable_of(template)
    }


def has_sizes(pod: Object, sizes: TemplateSizes) -> bool:
    return all(_has(container, sizes.get(container["name"])) for container in resizable_of(pod))


def removes_sizes(own: Object, sizes: TemplateSizes) -> bool:
    """The template has amounts no more that ``own`` has, the one the pod was made from."""
    return any(
        before.get(side, {}).keys() - sizes.get(name, {}).get(side, {}).keys()
        for name, before in template_sizes(own).items()
        for side in _SIDES
    )


def size_patch(pod: Object, sizes: TemplateSizes) -> Object | None:
    """A strategic merge patch for pods/resize; None where the pod asks for all of it already."""
    spec: Object = {}
    for field, container in _containers(pod):
        wanted = sizes.get(container["name"])
        if wanted is not None and not _has(container, wanted):
            resources = {side: wanted[side] for side in _SIDES if side in wanted}
            change = {"name": container["name"], "resources": resources}
            spec.setdefault(field, []).append(change)
            if "cells" in wanted:
                spec["virtualMachine"] = {"numa": {"cells": wanted["cells"]}}
    return {"spec": spec} if spec else None


def resized_pod(pod: Object, sizes: TemplateSizes, own: Object | None) -> Object:
    """The pod as the template wants it: also without what the template has no more, which no patch
    can do, and validation refuses."""
    before = template_sizes(own) if own is not None else {}

    def resized(container: Object) -> Object:
        name = container.get("name", VM_NAME)
        resources = dict(container.get("resources") or {})
        for side in _SIDES:
            wanted = sizes.get(name, {}).get(side, {})
            gone = before.get(name, {}).get(side, {}).keys() - wanted.keys()
            amounts = {**(resources.get(side) or {}), **wanted}
            resources[side] = {key: one for key, one in amounts.items() if key not in gone}
        return {**container, "resources": {key: one for key, one in resources.items() if one}}

    if is_vm(pod):
        path = ("spec", "virtualMachine")
        cells = sizes.get(VM_NAME, {}).get("cells") or ()
        return evolve(pod, path, with_cells(resized(lookup(pod, *path)), cells))
    changed = {field for field, _ in resizable_containers(pod)}
    names = {container["name"] for _, container in resizable_containers(pod)}
    for field in sorted(changed):
        containers = [resized(one) if one["name"] in names else one for one in pod["spec"][field]]
        pod = evolve(pod, ("spec", field), containers)
    return pod


def comparable_pod(pod: Object, sizes: TemplateSizes) -> Object:
    """The pod's sizes as a template: as far as the workload's template speaks of them."""
    containers = []
    for container in resizable_of(pod):
        given, wanted = container.get("resources") or {}, sizes.get(container["name"], {})
        amounts = {
            side: {key: one for key, one in (given.get(side) or {}).items() if key in wanted[side]}
            for side in _SIDES
            if side in wanted
        }
        containers.append({"name": container["name"], "resources": amounts})
    return {"spec": {"containers": containers}}


def note_patch(pod: Object, template: Object, own: Object | None) -> Object | None:
    """A strategic merge patch of the pod: policies and annotations that have changed since ``own``,
    or, where that is not known, that differ. None where the pod has them."""
    spec = dict(_policy_patches(pod, template, own))
    annotations = _annotation_patch(pod, template, own)
    patch: Object = {"spec": spec} if spec else {}
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    return patch or None


def notes_differ(own: Object, template: Object) -> bool:
    same = our_annotations(own) == our_annotations(template)
    return not same or _policies(own) != _policies(template)


def label_patch(revision: str) -> Object:
    """The patch that counts a pod as updated."""
    return {"metadata": {"labels": {REVISION_LABEL: revision}}}


def _annotation_patch(pod: Object, template: Object, own: Object | None) -> Object:
    after = our_annotations(template)
    before = {} if own is None else our_annotations(own)
    have = lookup(pod, "metadata", "annotations", default={})
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return {name: after.get(name) for name in sorted(changed) if have.get(name) != after.get(name)}


def _policy_patches(pod: Object, template: Object, own: Object | None) -> Iterator[tuple[str, Any]]:
    wanted = _policies(template)
    if own is not None and _policies(own) == wanted:
        return
    have = _policies(pod)
    if is_vm(pod):
        if have != wanted:
            yield "virtualMachine", _policy_patch(have[VM_NAME], wanted[VM_NAME])
        return
    fields: dict[str, list[Object]] = {}
    for field, container in resizable_containers(pod):
        name = container["name"]
        if name in wanted and have[name] != wanted[name]:
            patch = {"name": name, **_policy_patch(have[name], wanted[name])}
            fields.setdefault(field, []).append(patch)
    yield from fields.items()


def _containers(pod: Object) -> list[tuple[str, Object]]:
    """Each with the field of the patch; a virtual machine is the container it is served with."""
    if is_vm(pod):
        return [("containers", container) for container in resizable_of(pod)]
    return resizable_containers(pod)


def _policies(template: Object) -> dict[str, tuple[Any, Any]]:
    return {
        one["name"]: (one.get("resizePolicy"), lookup(one, "resources", "resizePolicy"))
        for one in resizable_of(template)
    }


def _policy_patch(have: tuple[Any, Any], wanted: tuple[Any, Any]) -> Object:
    patch: Object = {}
    if have[0] != wanted[0]:
        patch["resizePolicy"] = wanted[0]
    if have[1] != wanted[1]:
        gone = dict.fromkeys((have[1] or {}).keys() - (wanted[1] or {}).keys())
        mapped = None if wanted[1] is None else {**gone, **wanted[1]}
        patch["resources"] = {"resizePolicy": mapped}
    return patch


def _sizes(resources: Object) -> Object:
    limits = _amounts(resources.get("limits"))
    sizes = {"requests": {**limits, **_amounts(resources.get("requests"))}, "limits": limits}
    return {side: amounts for side, amounts in sizes.items() if amounts}


def _amounts(quantities: Object | None) -> Object:
    return {name: quantities[name] for name in _SIZES if name in quantities} if quantities else {}


def _cells(container: Object) -> Object:
    """Of a virtual machine with NUMA cells."""
    size = size_of(container)
    return {"cells": size["cells"]} if "cells" in size else {}


def _has(container: Object, wanted: Object | None) -> bool:
    resources, sizes = container.get("resources") or {}, wanted or {}
    if "cells" in sizes and not same_cells(_cells(container).get("cells"), sizes["cells"]):
        return False
    for side in _SIDES:
        given, amounts = resources.get(side) or {}, sizes.get(side, {})
        if given != amounts and not same_quantities(
            {name: given[name] for name in amounts if name in given}, amounts
        ):
            return False
    return True
