"""A workload's resize: what a change of its template is, and what stands on the workload. Pure.

A template change that touches only sizes, policies and our own annotations is a resize; anything
else is a rollout (decisions 15). A workload asks for its resizes in place by (decisions 45)

    resizeAction                   other than Restart, on the workload or its template, which wins
    resources.resizePolicy         IBM's map, in a container of the template
    livesize.dev/resize-policy     the same for API servers that cannot store the map: a JSON text,
                                   container → resource → policy, on the workload or its template

While a resize is under way the workload is held: the controller of its kind does not roll it out.
The annotation ``livesize.dev/held`` says by which write, and what is put back afterwards. It counts
only on the object whose uid it names; copies of it on other objects mean nothing.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from livesize.api.duration import parse_duration
from livesize.api.objects import Object, evolve, generation_of, lookup, uid_of, without
from livesize.api.requested_action import ANNOTATION, SPELLINGS, RequestedAction
from livesize.api.resize_deadline import DEADLINE, DEFAULT_SECONDS, ON_DEADLINE, OnDeadline
from livesize.api.resize_policy import (
    MAP_POLICIES,
    ResizeAction,
    changed_resources,
    policy_of,
    strongest,
)
from livesize.api.resources import (
    VM_NAME,
    ResourceName,
    Resources,
    cells_of,
    container_resources,
    resizable_of,
    same_cells,
    size_of,
    stays,
    with_cells,
)

HELD: Final = "livesize.dev/held"
PREVIOUS: Final = "livesize.dev/previous"
RESIZE_STATUS: Final = "livesize.dev/resize-status"
POLICIES: Final = "livesize.dev/resize-policy"
PARALLELISM: Final = "livesize.dev/resize-parallelism"
OURS: Final = "livesize.dev/"
TEMPLATE_HASH: Final = "pod-template-hash"
STRATEGY: Final = ("spec", "updateStrategy")
PAUSED: Final = ("spec", "paused")
ANNOTATIONS: Final = ("metadata", "annotations")
_SIDES = ("requests", "limits")
_SIZES = frozenset(ResourceName)


class TemplateChange(enum.Enum):
    NONE = "none"
    POLICY = "policy"
    """Policies and annotations of ours: no pod restarts for them."""
    RESIZE = "resize"
    ROLLOUT = "rollout"


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """``generation``: of the write that holds. ``partition``: the one that holds a StatefulSet.
    ``strategy`` (StatefulSet) and ``paused`` (Deployment): what is put back."""

    uid: str
    generation: int
    partition: int = 0
    strategy: Object | None = None
    paused: bool = False


def template_of(workload: Object) -> Object:
    template: Object = lookup(workload, "spec", "template", default={})
    return template


# What a change is


def template_change(before: Object, after: Object) -> TemplateChange:
    if _rest(before) != _rest(after):
        return TemplateChange.ROLLOUT
    if container_resources(before) != container_resources(after) or not same_cells(
        template_cells(before), template_cells(after)
    ):
        return TemplateChange.RESIZE
    same = _policies(before) == _policies(after) and our_annotations(before) == our_annotations(
        after
    )
    return TemplateChange.NONE if same else TemplateChange.POLICY


def template_cells(template: Object) -> list[Object]:
    """The NUMA cells of a template's virtual machine, each as {id, memory}."""
    spec = template.get("spec") or {}
    vm = spec.get("virtualMachine")
    cells = cells_of(vm) if isinstance(vm, dict) else []
    return [{"id": cell.get("id"), "memory": cell.get("memory")} for cell in cells]


def recreates(workload: Object, before: Object) -> bool:
    """Going from ``before`` to the workload's template takes new pods, whatever was asked: by
    RestartOnly, or by resizeAction Restart (decisions 16)."""
    if action_of(workload) is RequestedAction.RESTART:
        return True
    return strongest_policy(workload, before) is ResizeAction.RESTART_POD


def strongest_policy(workload: Object, before: Object) -> ResizeAction | None:
    """What the policies of the workload's template say to the change from ``before``; None where
    no size changes."""
    template, sizes = template_of(workload), container_resources(before)
    return strongest(
        policy_for(workload, container, resource)
        for container, resource in _changes(template, sizes)
    )


def policy_for(workload: Object, container: Object, resource: ResourceName) -> ResizeAction:
    """What a change of ``resource`` in a container of the template does."""
    return _policy(container, resource, said_policies(workload).get(container["name"]))


def our_annotations(template: Object) -> dict[str, str]:
    """Those of a template's annotations that a resize may change."""
    annotations: dict[str, str] = lookup(template, "metadata", "annotations", default={})
    return {name: value for name, value in annotations.items() if _is_ours(name)}


# Who asks for what


def asks_in_place(workload: Object) -> bool:
    action = action_of(workload)
    if action is not None:
        return action is not RequestedAction.RESTART
    if said_policies(workload):
        return True
    containers = resizable_of(template_of(workload))
    return any(lookup(one, "resources", "resizePolicy") for one in containers)


def action_of(workload: Object) -> RequestedAction | None:
    return SPELLINGS.get(annotation_of(workload, ANNOTATION) or "")


def annotation_of(workload: Object, name: str) -> str | None:
    """On the template, which wins, or on the workload."""
    for place in (template_of(workload), workload):
        value = lookup(place, "metadata", "annotations", name)
        if isinstance(value, str):
            return value
    return None


def fallback_of(workload: Object) -> OnDeadline:
    """What becomes of a pod that cannot be resized: KEEP (as it is), REVERT (the workload goes
    back) or EVICT (it is recreated)."""
    said = lookup(workload, "metadata", "annotations", ON_DEADLINE)
    if said in (OnDeadline.KEEP, OnDeadline.REVERT):
        return OnDeadline(said)
    recreated = said in (OnDeadline.RESTART, OnDeadline.EVICT)
    stays = action_of(workload) is RequestedAction.IN_PLACE and not recreated
    return OnDeadline.KEEP if stays else OnDeadline.EVICT


def deadline_seconds(workload: Object) -> float:
    """How long a pod's resize may be deferred or in error before its fallback."""
    said = parse_duration(annotation_of(workload, DEADLINE) or "")
    return DEFAULT_SECONDS if said is None else said


def parallelism_of(workload: Object) -> int | None:
    """How many of its pods may be under way at once; None where it says nothing that counts."""
    said = lookup(workload, *ANNOTATIONS, PARALLELISM, default="")
    number = int(said) if isinstance(said, str) and said.isascii() and said.isdigit() else 0
    return number or None


def said_policies(workload: Object) -> Mapping[str, Mapping[str, str]]:
    """What the annotation says, by container; empty without one, or where it makes no sense."""
    text = annotation_of(workload, POLICIES)
    return {} if text is None else _read_policies(text)


@functools.lru_cache(256)
def _read_policies(text: str) -> Mapping[str, Mapping[str, str]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except msgspec.DecodeError:
        return {}


# What stands on the workload


def hold_of(workload: Object) -> Hold | None:
    """None: not held; or the annotation is another object's, or from a time that is yet to come."""
    text = lookup(workload, "metadata", "annotations", HELD)
    if not isinstance(text, str):
        return None
    try:
        hold = msgspec.json.decode(text, type=Hold)
    except msgspec.DecodeError:
        return None
    known = hold.uid == uid_of(workload) and hold.generation <= generation_of(workload)
    return hold if known else None


def held(workload: Object, hold: Hold) -> Object:
    """The workload, kept from being rolled out."""
    if is_deployment(workload):
        workload = evolve(workload, PAUSED, True)
    else:
        workload = evolve(workload, STRATEGY, _held_strategy(hold))
    return note_hold(workload, _text(msgspec.to_builtins(hold)))


def released(workload: Object, hold: Hold) -> Object:
    """The workload as its user wants it, without the hold."""
    if is_deployment(workload):
        workload = evolve(workload, PAUSED, True) if hold.paused else without(workload, PAUSED)
    else:
        workload = evolve(workload, STRATEGY, hold.strategy)
    return note_hold(workload, None)


def put_aside(hold: Hold, workload: Object) -> Hold:
    """The hold, with what the workload says now instead of being held: that is what its user wants
    to have afterwards. Who writes the partition that holds has only read it."""
    if is_deployment(workload):
        written = bool(lookup(workload, *PAUSED))
        return hold if written else msgspec.structs.replace(hold, paused=False)
    strategy = lookup(workload, *STRATEGY, default={})
    if strategy == _held_strategy(hold):
        return hold
    if partition_of(strategy) == hold.partition:
        strategy = _with_partition(strategy, partition_of(hold.strategy))
    return msgspec.structs.replace(hold, strategy=strategy)


def note_hold(workload: Object, hold: str | None) -> Object:
    path = (*ANNOTATIONS, HELD)
    return without(workload, path) if hold is None else evolve(workload, path, hold)


def partition_of(strategy: Object | None) -> int:
    value: Any = lookup(strategy, "rollingUpdate", "partition", default=0)
    return value if isinstance(value, int) else 0


def is_deployment(workload: Object) -> bool:
    return workload.get("kind") == "Deployment"


def _held_strategy(hold: Hold) -> Object:
    return _with_partition({**(hold.strategy or {}), "type": "RollingUpdate"}, hold.partition)


def _with_partition(strategy: Object, partition: int) -> Object:
    return evolve(strategy, ("rollingUpdate", "partition"), partition)


def previous_sizes(workload: Object) -> dict[str, Object] | None:
    """By container {requests, limits}: what the template had before its last resize."""
    text = lookup(workload, "metadata", "annotations", PREVIOUS)
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        return None


def format_sizes(template: Object) -> str:
    """The value of ``livesize.dev/previous`` for a workload that had this template."""
    return _text({one["name"]: _sizes(one) for one in resizable_of(template)})


def with_sizes(workload: Object, sizes: Mapping[str, Object]) -> Object:
    """The workload with these sizes in its template; containers that are not named keep theirs."""

    def sized(container: Object) -> Object:
        former = sizes.get(container.get("name", VM_NAME))
        if former is None:
            return container
        given = container.get("resources") or {}
        others = {name: part for name, part in given.items() if name not in _SIDES}
        sides = {side: former[side] for side in _SIDES if side in former}
        return with_cells(
            {**container, "resources": {**others, **sides}}, former.get("cells") or ()
        )

    template = template_of(workload)
    spec = dict(template.get("spec") or {})
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [sized(container) for container in spec[field]]
    if isinstance(spec.get("virtualMachine"), dict):
        spec["virtualMachine"] = sized(spec["virtualMachine"])
    return evolve(workload, ("spec", "template", "spec"), spec)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# Parts of a template


def _changes(
    template: Object, before: Mapping[str, Resources]
) -> Iterator[tuple[Object, ResourceName]]:
    after = container_resources(template)
    for container in resizable_of(template):
        name = container["name"]
        for resource in changed_resources(before.get(name, Resources()), after[name]):
            yield container, resource


def _policy(
    container: Object, resource: ResourceName, said: Mapping[str, str] | None
) -> ResizeAction:
    """The stronger one of what the container says and what the annotation says of it; a resource
    that the annotation does not name is RestartOnly, as in IBM's map."""
    policy = policy_of(container, resource)
    if said is None:
        return policy
    noted = MAP_POLICIES.get(said.get(resource, "RestartOnly"), ResizeAction.RESTART_POD)
    return max(policy, noted)


def _policies(template: Object) -> list[tuple[str, Any, Any]]:
    return [
        (one["name"], one.get("resizePolicy"), lookup(one, "resources", "resizePolicy"))
        for one in resizable_of(template)
    ]


def _sizes(container: Object) -> Object:
    given = container.get("resources") or {}
    sizes = {side: given[side] for side in _SIDES if given.get(side)}
    return {**sizes, "cells": size["cells"]} if "cells" in (size := size_of(container)) else sizes


def _rest(template: Object) -> Object:
    """All of a template that no resize may change."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    rest = {
        **spec,
        "containers": _each(spec.get("containers"), _rest_of_container),
        "initContainers": _each(spec.get("initContainers"), _rest_of_starting),
    }
    if isinstance(spec.get("virtualMachine"), dict):
        rest["virtualMachine"] = _rest_of_vm(spec["virtualMachine"])
    return {
        "labels": {name: value for name, value in labels.items() if name != TEMPLATE_HASH},
        "annotations": {name: one for name, one in annotations.items() if not _is_ours(name)},
        "spec": rest,
    }


def _each(items: Any, change: Callable[[Object], Object]) -> list[Object]:
    return [change(one) for one in items or ()]


def _rest_of_starting(container: Object) -> Object:
    """Init containers other than sidecars keep the size they were created with."""
    return _rest_of_container(container) if stays(container) else container


def _rest_of_vm(vm: Object) -> Object:
    rest = _rest_of_container(vm)
    if not cells_of(vm):
        return rest
    cells = [{key: one for key, one in cell.items() if key != "memory"} for cell in cells_of(vm)]
    return evolve(rest, ("numa", "cells"), cells)


def _rest_of_container(container: Object) -> Object:
    given = container.get("resources") or {}
    others = {
        side: {name: one for name, one in (given.get(side) or {}).items() if name not in _SIZES}
        for side in _SIDES
    }
    more = {name: one for name, one in given.items() if name not in (*_SIDES, "resizePolicy")}
    rest = {name: one for name, one in container.items() if name != "resizePolicy"}
    return {**rest, "resources": {**more, **others}}


def _is_ours(annotation: str) -> bool:
    return annotation == ANNOTATION or annotation.startswith(OURS)
