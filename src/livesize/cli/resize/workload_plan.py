"""What `livesize resize` asks of a workload, and what will become of its pods. Pure.

The sizes go into the template, as those of a pod go into the pod (plan.py). With them goes the
annotation resizeAction:

    --action                                     what it says
    something on the workload asks or refuses    what stands there
    nothing does                                 InPlaceResizePreferred: who types resize wants no
                                                 rollout, and a pod that cannot be resized on its
                                                 node may move
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from livesize.api.objects import Object, lookup, name_of, version_of
from livesize.api.qos import qos_class
from livesize.api.requested_action import ANNOTATION, RequestedAction
from livesize.api.resize_deadline import OnDeadline
from livesize.api.resize_policy import ResizeAction
from livesize.api.resources import (
    ResourceName,
    container_resources,
    is_vm,
    resizable_of,
    sidecars_of,
)
from livesize.api.workload_resize import (
    PREVIOUS,
    action_of,
    asks_in_place,
    deadline_seconds,
    fallback_of,
    hold_of,
    partition_of,
    previous_sizes,
    recreates,
    strongest_policy,
    template_of,
)
from livesize.cli.resize.plan import (
    RequestedSize,
    ResizePatch,
    ResizeRefusal,
    choose_container,
    plan_patch,
    undo_options,
)
from livesize.cli.resize.progress import covers

REFUSED = "refused"
_SIDES = ("requests", "limits")


class WorkloadPatch(msgspec.Struct, frozen=True):
    """The strategic merge patch of a workload: ``sizes`` of its template's containers, and where
    the action is to be written, if it is."""

    sizes: tuple[ResizePatch, ...]
    action: RequestedAction | None = None
    is_on_template: bool = False
    version: str = ""  # it is a change of just this version of the workload; empty: of any

    def body(self) -> Object:
        spec: Object = {}
        for patch in self.sizes:
            for field, part in patch.body()["spec"].items():
                spec[field] = [*spec.get(field, []), *part] if isinstance(part, list) else part
        template: Object = {"spec": spec}
        metadata: Object = {"resourceVersion": self.version} if self.version else {}
        if self.action is not None:
            said = {ANNOTATION: self.action.value}
            metadata["annotations"] = said
            if self.is_on_template:  # what stands there would win
                template["metadata"] = {"annotations": said}
        given = {"metadata": metadata} if metadata else {}
        return {**given, "spec": {"template": template}}


def plan_workload_patch(
    workload: Object,
    container: str,
    sizes: Mapping[ResourceName, RequestedSize],
    action: RequestedAction | None,
) -> WorkloadPatch | ResizeRefusal:
    """The patch that gives ``container`` of the template these sizes."""
    versioned = {**template_of(workload), "metadata": workload["metadata"]}
    patch = plan_patch(versioned, container, sizes, what="template")
    if isinstance(patch, ResizeRefusal):
        return patch
    unversioned = msgspec.structs.replace(patch, version="")
    return _with_action(workload, (unversioned,), action, patch.version)


def plan_undo(
    workload: Object, container: str, action: RequestedAction | None
) -> WorkloadPatch | ResizeRefusal:
    """The patch that brings back the sizes before the last resize, of ``container`` or of all."""
    previous = previous_sizes(workload)
    if previous is None:
        return ResizeRefusal(
            f"there are no former sizes to go back to: it was never resized ({PREVIOUS} is not on"
            " it); say the size with --cpu and --memory"
        )
    template = template_of(workload)
    if container:
        chosen = choose_container(template, container, "template")
        if isinstance(chosen, ResizeRefusal):
            return chosen
    sidecars = sidecars_of(template)
    patches = tuple(
        ResizePatch(
            name,
            _back(one, previous[name]),
            is_vm(template),
            name in sidecars,
            cells=tuple(previous[name].get("cells") or ()),
        )
        for one in resizable_of(template)
        if (name := one["name"]) in previous and container in ("", name)
    )
    if not patches:
        known = ", ".join(previous)
        return ResizeRefusal(f"the former sizes are of other containers ({known}); say the size")
    return _with_action(workload, patches, action, version_of(workload))


def _back(container: Object, former: Object) -> Object:
    """What was not there goes: a patch names it with null."""
    now = container.get("resources") or {}
    return {
        side: {
            resource.value: (former.get(side) or {}).get(resource)
            for resource in ResourceName
            if resource in (former.get(side) or {}) or resource in (now.get(side) or {})
        }
        for side in _SIDES
        if former.get(side) or now.get(side)
    }


def _with_action(
    workload: Object,
    patches: tuple[ResizePatch, ...],
    action: RequestedAction | None,
    version: str,
) -> WorkloadPatch:
    if action is None and action_of(workload) is None and not asks_in_place(workload):
        action = RequestedAction.IN_PLACE_PREFERRED
    stands_there = lookup(template_of(workload), "metadata", "annotations", ANNOTATION) is not None
    return WorkloadPatch(patches, action, stands_there, version)


def way_back(label: str, before: Object, after: Object, patch: WorkloadPatch) -> str:
    """The command that takes it back. ``after``: the workload as the server answered, which notes
    the former sizes if it is one of ours."""
    if previous_sizes(after) is not None:
        return f"livesize resize {label} --undo"
    sizes = container_resources(template_of(before))
    options = [undo_options(one, sizes[one.container]) for one in patch.sizes]
    return " && ".join(f"livesize resize {label} {one}" for one in options)


# Which pods it is about


def own_strategy(workload: Object) -> Object:
    """The update strategy that its user wants, which a hold puts aside."""
    hold = hold_of(workload)
    now: Object = lookup(workload, "spec", "updateStrategy", default={})
    return now if hold is None or hold.strategy is None else hold.strategy


def own_partition(workload: Object) -> int:
    """Pods of a StatefulSet below it keep their template; 0 for other kinds."""
    return partition_of(own_strategy(workload))


def is_paused(workload: Object) -> bool:
    """By its user."""
    return hold_of(workload) is None and bool(lookup(workload, "spec", "paused"))


def takes_part(workload: Object, pod: Object) -> bool:
    """It is not kept back by its StatefulSet's partition."""
    number = name_of(pod).rpartition("-")[2]
    start = int(lookup(workload, "spec", "ordinals", "start", default=0))
    return not number.isdigit() or int(number) - start >= own_partition(workload)


def has_sizes(pod: Object, template: Object) -> bool:
    """What the template says is what the pod asks for; what it does not say may have been added
    when the pod was made."""
    desired = container_resources(pod)
    return all(
        name in desired
        and covers(desired[name].requests, size.requests)
        and covers(desired[name].limits, size.limits)
        for name, size in container_resources(template).items()
    )


# What becomes of its pods


def forecast(before: Object, after: Object, pods: Sequence[Object]) -> list[tuple[Object, str]]:
    """Each pod, and what the change from ``before`` to ``after`` does to it."""
    change = _change_in_words(before, after)
    return [(pod, _pod_forecast(pod, after, change)) for pod in pods]


def _pod_forecast(pod: Object, workload: Object, change: str) -> str:
    if not takes_part(workload, pod):
        return f"nothing: kept back by partition {own_partition(workload)}"
    if has_sizes(pod, template_of(workload)):
        return "nothing: has this size"
    return change


def _change_in_words(before: Object, after: Object) -> str:
    template, target = template_of(before), template_of(after)
    if is_paused(after):
        return "waits until the deployment is resumed"
    policy = strongest_policy(after, template)
    if recreates(after, template) or not asks_in_place(after):
        return _recreated(after, "")
    if why := _impossible(template, target):
        if action_of(after) is RequestedAction.IN_PLACE:
            return f"{REFUSED}: {why}"
        return _recreated(after, f": {why}")
    if policy is ResizeAction.RESTART_CONTAINER:
        return "resized in place, containers restart"
    return "resized in place, live"


def fallback_in_words(workload: Object) -> str:
    """What becomes of a pod that cannot be resized where it is."""
    if not asks_in_place(workload):
        return "its pods are recreated"
    if own_strategy(workload).get("type") == "OnDelete":
        return "a pod that cannot be resized is recreated once you delete it"
    when = f"within {deadline_seconds(workload):g} s"
    match fallback_of(workload):
        case OnDeadline.KEEP:
            return "a pod that cannot be resized is kept as it is"
        case OnDeadline.REVERT:
            return f"if a pod cannot be resized {when}, all go back"
        case _:
            return f"a pod that cannot be resized {when} is recreated"


def _recreated(workload: Object, why: str) -> str:
    if own_strategy(workload).get("type") == "OnDelete":
        return f"recreated once you delete it{why}"
    return f"recreated{why}"


def _impossible(template: Object, target: Object) -> str:
    """Why no running pod can be changed from one to the other."""
    if qos_class(template) != qos_class(target):
        return f"the QoS class would change from {qos_class(template)} to {qos_class(target)}"
    gone = ", ".join(_removed(template, target))
    return f"a running pod cannot lose its {gone}" if gone else ""


def _removed(template: Object, target: Object) -> Iterator[str]:
    after = container_resources(target)
    for name, size in container_resources(template).items():
        for resource in ResourceName:
            if size.requests.amount(resource) and after[name].requests.amount(resource) is None:
                yield f"{resource} request"
            if size.limits.amount(resource) and after[name].limits.amount(resource) is None:
                yield f"{resource} limit"
