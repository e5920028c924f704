"""Every dialect of a pod's resize, derived from the one stored state and from nothing else.

The stored pod has none of the derived fields; the served pod has them all:

    spec.containers[].resourcesAllocated             allocated requests (ARK)
    spec.initContainers[].resourcesAllocated         the same of a sidecar
    spec.virtualMachine.resourcesAllocated           the same of a VM (ARK)
    spec.resizeRequest {requestStatus, newResources} (IBM)
    status.containerStatuses[].allocatedResources    allocated requests (Kubernetes)
    status.initContainerStatuses[]                   the same of init containers
    status.virtualMachineStatus.allocatedResources   the same of a VM
    status.resize                                    one word (Kubernetes before 1.33)
    status.resizeState.resizePolicy                  what holds for each resource, by default too
    status.conditions                                PodResized (IBM), PodResizePending and
                                                     PodResizeInProgress (Kubernetes)

A VM pod is also served with its virtual machine as a container named "vm", in spec.containers and
status.containerStatuses, for clients that know only these (vm_as_container.py).
``strip_dialects(derive_dialects(stored)) == stored``, so old clients can erase nothing. The table
is design 5.1's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup, without
from livesize.api.reasons import RESIZE_CONDITIONS, ConditionType, Reason
from livesize.api.resize_phase import PENDING, REQUEST_STATUS, RequestStatus, ResizePhase
from livesize.api.resize_policy import shown_policy
from livesize.api.resources import (
    VM_NAME,
    resizable_of,
    same_quantities,
    size_of,
    stays,
    vm_container,
)
from livesize.api.vm_as_container import derived_container, is_derived
from livesize.api.vm_status import vm_as_status

_CONTAINER_LISTS = ("containers", "initContainers")
_STATUS_LISTS = ("containerStatuses", "initContainerStatuses")
_POD_RESIZED = ConditionType.POD_RESIZED.value
_STATUS_WORDS = {phase.value: status.value for phase, status in REQUEST_STATUS.items()}
_OLDER_WORDS = {
    ResizePhase.REQUESTED.value: "Proposed",
    ResizePhase.ACCEPTED.value: "InProgress",
    ResizePhase.IN_PROGRESS.value: "InProgress",
    ResizePhase.ERROR.value: "InProgress",
    ResizePhase.DEFERRED.value: "Deferred",
    ResizePhase.INFEASIBLE.value: "Infeasible",
}
"""status.resize of Kubernetes 1.27 to 1.32, by which kubectl of those versions counts."""
_RESIZED_REASONS: dict[ResizePhase, Reason] = {
    ResizePhase.INFEASIBLE: Reason.UNRESIZABLE,
    ResizePhase.DEFERRED: Reason.UNRESIZABLE,
    ResizePhase.ERROR: Reason.RESIZER_FAILED,
}
_IN_PROGRESS_REASONS: dict[ResizePhase, str] = {
    ResizePhase.IN_PROGRESS: "",
    ResizePhase.ERROR: Reason.ERROR.value,
}


def derive_dialects(stored: Object) -> Object:
    """The pod as it is served. Anything that is not a pod comes back as it is."""
    if stored.get("kind") != "Pod" or "spec" not in stored:
        return stored
    status: Object = stored.get("status") or {}
    state: Object = status.get("resizeState") or {}
    allocated = {size["name"]: size.get("requests") for size in state.get("allocated") or ()}
    served = {**stored, "spec": _served_spec(stored["spec"], state, allocated)}
    if status:
        shown = allocated
        if status.get("initContainerStatuses"):
            shown = {**_fixed_requests(stored["spec"]), **allocated}
        served["status"] = _served_status(status, state, shown)
        vm = served["status"].get("virtualMachineStatus")
        if vm and served["spec"]["containers"]:
            image = served["spec"]["containers"][-1].get("image", "")
            served["status"]["containerStatuses"] = [vm_as_status(vm, image)]
        if state:
            policies = [shown_policy(one, one.get("name", "")) for one in resizable_of(stored)]
            served["status"]["resizeState"] = {**state, "resizePolicy": policies}
    return served


def _fixed_requests(spec: Object) -> Object:
    """Of init containers: those that are no sidecars keep what they were created with."""
    return {
        one.get("name"): (one.get("resources") or {}).get("requests")
        for one in spec.get("initContainers") or ()
    }


def strip_dialects(obj: Object) -> Object:
    """The pod as it is stored: without derived fields, whoever sent them."""
    if obj.get("kind") != "Pod":
        return obj
    stored = dict(obj)
    if isinstance(obj.get("spec"), dict):
        stored["spec"] = _without_keys(obj["spec"], _CONTAINER_LISTS, "resourcesAllocated")
        stored["spec"].pop("resizeRequest", None)
        if isinstance(obj["spec"].get("virtualMachine"), dict):
            stored["spec"] = _stripped_vm_spec(stored["spec"])
    if isinstance(obj.get("status"), dict):
        stored["status"] = _stripped_status(obj["status"])
    return stored


def check_derived(
    incoming: Object, served_current: Object, *, from_own_node: bool
) -> list[FieldError]:
    """What a client wrote into derived fields although it is not its to write (403).

    Absent, null or equal is fine (older clients, read-modify-write). The pod's own node may
    differ in cpu and memory of resourcesAllocated (decisions 4): see ``node_allocation``. The
    stored state itself is written by the API server alone.
    """
    errors: list[FieldError] = []
    # What a patch leaves alone is the very same object, and equal for that.
    if incoming.get("spec") is not served_current.get("spec"):
        errors += _check_allocated(incoming, served_current, from_own_node=from_own_node)
        errors += _check_resize_request(incoming, served_current)
    if incoming.get("status") is not served_current.get("status"):
        errors += _check_statuses(incoming, served_current)
        errors += _check_conditions(incoming, served_current)
        errors += _check_older_word(incoming, served_current)
        errors += _check_state(incoming, served_current)
    return errors


def node_allocation(incoming: Object, served_current: Object) -> list[Object] | None:
    """The ``allocated`` a node writes by PATCH or PUT of resourcesAllocated (ARK), for the body of
    a ``resizing``; None where it changes nothing."""
    given = _allocated_by_name(incoming)
    current = _allocated_by_name(served_current)
    changed = {
        name
        for name, requests in given.items()
        if requests is not None and not same_quantities(requests, current.get(name))
    }
    if not changed:
        return None
    stored = lookup(served_current, "status", "resizeState", "allocated", default=[])
    desired = {
        container.get("name"): size_of(container) for container in resizable_of(served_current)
    }
    return [
        # ARK writes requests only: limits and cells go with them, as the spec asks.
        {**size, **desired[size["name"]], "requests": given[size["name"]]}
        if size["name"] in changed
        else size
        for size in stored
    ]


def _served_spec(spec: Object, state: Object, allocated: Object) -> Object:
    containers = [
        _with_allocated(container, container.get("name"), allocated)
        for container in spec.get("containers") or ()
    ]
    request: Object = {"requestStatus": _STATUS_WORDS[state.get("phase", "None")]}
    if state.get("desired"):
        request["newResources"] = state["desired"]
    served = {**spec, "containers": containers, "resizeRequest": request}
    if spec.get("initContainers"):
        served["initContainers"] = [
            _with_allocated(one, one.get("name"), allocated) if stays(one) else one
            for one in spec["initContainers"]
        ]
    vm = spec.get("virtualMachine")
    if vm is not None:
        served["virtualMachine"] = _with_allocated(vm, VM_NAME, allocated)
        served["containers"] = [*containers, derived_container(vm)] if vm else containers
    return served


def _with_allocated(container: Object, name: str | None, allocated: Object) -> Object:
    """Allocated requests; until the pod is bound they follow the spec."""
    if name in allocated:
        requests = allocated[name]
    else:
        requests = (container.get("resources") or {}).get("requests")
    return {**container, "resourcesAllocated": requests} if requests else container


def _served_status(status: Object, state: Object, allocated: Object) -> Object:
    served = dict(status)
    for kind in _STATUS_LISTS:
        if status.get(kind):
            served[kind] = [
                {**one, "allocatedResources": allocated[one["name"]]}
                if allocated.get(one.get("name"))
                else one
                for one in status[kind]
            ]
    vm = status.get("virtualMachineStatus")
    if vm and allocated.get(VM_NAME):
        served["virtualMachineStatus"] = {**vm, "allocatedResources": allocated[VM_NAME]}
    word = _OLDER_WORDS.get(state.get("phase", ""))
    if word is not None:
        served["resize"] = word
    conditions = resize_conditions(state, lookup(status, "observedGeneration", default=0))
    if conditions:
        kept = [
            condition
            for condition in status.get("conditions") or ()
            if condition.get("type") not in RESIZE_CONDITIONS
        ]
        served["conditions"] = kept + conditions
    return served


def resize_conditions(state: Object, observed: int = 0) -> list[Object]:
    """The conditions of a resize; a condition of Kubernetes' is there only while it is true. They
    hold for the generation that was requested, and for every later one that the node has observed:
    a change of the pod's policies is no new request."""
    word = state.get("phase", "None")
    if word == ResizePhase.NONE:
        return []
    phase = ResizePhase(word)
    shared: Object = {
        "message": state.get("message", ""),
        "lastTransitionTime": state.get("transitionTime"),
        "observedGeneration": max(state.get("generation") or 0, observed) or None,
    }
    resized: Object = {"type": _POD_RESIZED, "status": _STATUS_WORDS[word], **shared}
    if phase in _RESIZED_REASONS:
        resized["reason"] = _RESIZED_REASONS[phase].value
    conditions = [resized]
    if phase in PENDING:
        kind = ConditionType.POD_RESIZE_PENDING.value
        conditions.append({"type": kind, "status": "True", "reason": phase.value, **shared})
    if phase in _IN_PROGRESS_REASONS:
        kind = ConditionType.POD_RESIZE_IN_PROGRESS.value
        # Kubernetes says nothing while all goes well; the error is in the message otherwise.
        reason = _IN_PROGRESS_REASONS[phase]
        said = {"reason": reason} if reason else {}
        conditions.append({"type": kind, "status": "True", **said, **shared})
    return conditions


def _stripped_status(status: Object) -> Object:
    stored = _without_keys(status, _STATUS_LISTS, "allocatedResources")
    stored.pop("resize", None)
    state = status.get("resizeState")
    if isinstance(state, dict) and "resizePolicy" in state:
        stored["resizeState"] = _stored_state(state)
    if isinstance(status.get("virtualMachineStatus"), dict):
        stored = without(stored, ("virtualMachineStatus", "allocatedResources"))
        stored.pop("containerStatuses", None)
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        stored["conditions"] = [
            condition
            for condition in conditions
            if not (isinstance(condition, dict) and condition.get("type") in RESIZE_CONDITIONS)
        ]
        if not stored["conditions"]:
            del stored["conditions"]
    return stored


def _stored_state(state: Any) -> Any:
    if not isinstance(state, dict) or "resizePolicy" not in state:
        return state
    return _lacking(state, "resizePolicy")


def _stripped_vm_spec(spec: Object) -> Object:
    stored = without(spec, ("virtualMachine", "resourcesAllocated"))
    return without(stored, ("containers",)) if is_derived(stored.get("containers")) else stored


def _without_keys(parent: Object, lists: tuple[str, ...], key: str) -> Object:
    """``parent`` with ``key`` left out of every object in these of its lists."""
    written = dict(parent)
    for name in lists:
        items = parent.get(name)
        if isinstance(items, list):
            written[name] = [
                _lacking(item, key) if isinstance(item, dict) and key in item else item
                for item in items
            ]
    return written


def _lacking(item: Object, key: str) -> Object:
    kept = dict(item)
    del kept[key]
    return kept


def _check_allocated(incoming: Object, current: Object, *, from_own_node: bool) -> list[FieldError]:
    given, served = _sized(incoming), _sized(current)
    if len(given) == len(served) and all(map(_has_same_allocated, given, served)):
        return []  # as nearly always, and quickly seen
    by_name = _allocated_by_name(current)
    errors = []
    for index, container in enumerate(given):
        said, now = container.get("resourcesAllocated"), by_name.get(str(container.get("name")))
        if said is None or _equal_quantities(said, now):
            continue
        field = _sized_field(incoming, index)
        fixed = field.startswith("spec.initContainers") and not stays(container)
        its_own = from_own_node and isinstance(said, dict) and not fixed
        if its_own and _only_cpu_and_memory_differ(said, now):
            continue
        where = f"{field}.resourcesAllocated"
        errors.append(_not_yours(where, "only the pod's node may write what it has allocated"))
    return errors


def _has_same_allocated(one: Object, other: Object) -> bool:
    """What a patch leaves alone is the very same object."""
    if one.get("name") != other.get("name"):
        return False
    return one.get("resourcesAllocated") is other.get("resourcesAllocated")


def _check_resize_request(incoming: Object, current: Object) -> list[FieldError]:
    given = lookup(incoming, "spec", "resizeRequest")
    if given is None:
        return []
    now = (current.get("spec") or {}).get("resizeRequest") or {}
    if given is now:
        return []
    empty = {"requestStatus": RequestStatus.NONE.value}
    if given in (now, {}) or (not now and given == empty):
        return []
    detail = "is derived; ask for other resources in spec.containers, answer through pods/resizing"
    return [_not_yours("spec.resizeRequest", detail)]


def _check_statuses(incoming: Object, current: Object) -> list[FieldError]:
    served = {one.get("name"): one.get("allocatedResources") for _, one in _reported(current)}
    errors = []
    for field, one in _reported(incoming):
        given = one.get("allocatedResources")
        if given is None or _equal_quantities(given, served.get(one.get("name"))):
            continue
        where = f"{field}.allocatedResources"
        errors.append(_not_yours(where, "is derived; a node writes it through pods/resizing"))
    return errors


def _check_conditions(incoming: Object, current: Object) -> list[FieldError]:
    served = {one.get("type"): one for one in _objects(current, "status", "conditions")}
    return [
        _not_yours(f"status.conditions[{index}]", "is derived from status.resizeState")
        for index, one in enumerate(_objects(incoming, "status", "conditions"))
        if one.get("type") in RESIZE_CONDITIONS and one != served.get(one["type"])
    ]


def _check_older_word(incoming: Object, current: Object) -> list[FieldError]:
    given = lookup(incoming, "status", "resize", default="")
    if given in ("", lookup(current, "status", "resize")):
        return []
    return [_not_yours("status.resize", "is derived from status.resizeState")]


def _check_state(incoming: Object, current: Object) -> list[FieldError]:
    given, now = (lookup(one, "status", "resizeState") for one in (incoming, current))
    if given is None or given in (now, _stored_state(now)):
        return []
    return [_not_yours("status.resizeState", "is written through pods/resizing only")]


def _not_yours(field: str, detail: str) -> FieldError:
    return FieldError(FieldErrorKind.FORBIDDEN, field, detail)


def _objects(obj: Object, *path: str) -> list[Object]:
    items = lookup(obj, *path, default=[])
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _sized(pod: Object) -> list[Object]:
    """Containers, and init containers after them; of a VM pod its virtual machine, of which a
    container is derived."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return []
    vm = spec.get("virtualMachine")
    if isinstance(vm, dict):
        return [vm_container(vm)]
    return [*_objects(pod, "spec", "containers"), *_objects(pod, "spec", "initContainers")]


def _sized_field(pod: Object, index: int) -> str:
    """Where one of them stands."""
    if isinstance(lookup(pod, "spec", "virtualMachine"), dict):
        return "spec.virtualMachine"
    count = len(_objects(pod, "spec", "containers"))
    if index < count:
        return f"spec.containers[{index}]"
    return f"spec.initContainers[{index - count}]"


def _reported(pod: Object) -> Iterator[tuple[str, Object]]:
    """The statuses of containers, that of the VM as one of them, and where each stands."""
    vm = lookup(pod, "status", "virtualMachineStatus")
    if isinstance(vm, dict):
        yield "status.virtualMachineStatus", vm_container(vm)
        return
    for kind in _STATUS_LISTS:
        for index, one in enumerate(_objects(pod, "status", kind)):
            yield f"status.{kind}[{index}]", one


def _allocated_by_name(pod: Object) -> dict[str, Any]:
    return {
        str(container.get("name")): container.get("resourcesAllocated") for container in _sized(pod)
    }


def _equal_quantities(given: Any, current: Object | None) -> bool:
    return isinstance(given, dict) and same_quantities(given, current)


def _only_cpu_and_memory_differ(given: Object, current: Object | None) -> bool:
    def others(quantities: Object) -> Object:
        return {name: item for name, item in quantities.items() if name not in ("cpu", "memory")}

    return same_quantities(others(given), others(current or {}))
