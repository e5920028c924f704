"""Builds a pod's status from what the machine says. Pure: reads nothing, posts nothing.

Status says only what was read back: ``resources`` of a running container is what the kernel
holds, in allocated's own quantities where the kernel cannot tell the difference (design 2). Of a
container that does not run it is what is allocated, as Kubernetes has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observation import PodSnapshot
from livesize.agent.probes.plan import WELL, ContainerHealth
from livesize.agent.vm.report import (
    build_vm_status,
    is_safe_to_hotplug,
    steadied,
    vm_held,
    with_mark,
    with_migratable,
)
from livesize.agent.vm.sizes import overhead_of
from livesize.api.conditions import find_condition, set_conditions
from livesize.api.kernel_units import CgroupVersion, KernelLimits, report_actual, to_kernel
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.qos import qos_class
from livesize.api.reasons import RESIZE_CONDITIONS, ConditionType, Reason
from livesize.api.resize_state import ResizePhase, phase_of
from livesize.api.resources import (
    containers_of,
    init_containers_of,
    is_vm,
    parse_resources,
    sidecars_of,
    size_of,
    stays,
)
from livesize.api.times import format_time
from livesize.api.vm_kernel import report_vm_actual
from livesize.api.vm_status import statuses_of
from livesize.runtime.interface import ContainerPhase, ContainerView

_KILLED = 137
_SCHEDULED = ConditionType.POD_SCHEDULED.value
_READY_TO_START = ConditionType.READY_TO_START.value
_INITIALIZED = ConditionType.INITIALIZED.value
_CONTAINERS_READY = ConditionType.CONTAINERS_READY.value
_READY = ConditionType.READY.value
_OWN_CONDITIONS = (_SCHEDULED, _READY_TO_START, _INITIALIZED, _CONTAINERS_READY, _READY)


class WaitingReason(msgspec.Struct, frozen=True):
    """Why a container does not run now, though it should."""

    reason: str
    message: str = ""


class Ending(msgspec.Struct, frozen=True):
    """The pod has ended, or was never let in."""

    phase: str  # Succeeded or Failed
    reason: str = ""
    message: str = ""


class StatusFacts(msgspec.Struct, frozen=True):
    pod: Object
    snapshot: PodSnapshot
    allocation: Allocation | None
    waiting: Mapping[str, WaitingReason]
    ending: Ending | None
    cgroup_version: CgroupVersion
    runtime_name: str
    host_ip: str
    now: float
    ended: Mapping[str, ContainerView] = {}  # the newest end of each container that was seen
    initialized: bool = True  # init containers have done their work
    health: Mapping[str, ContainerHealth] = {}  # what probes say, by container
    messages: Mapping[str, str] = {}  # what those that have ended say of it, by their id


def build_status(facts: StatusFacts) -> Object:
    """Everything of the pod's status that the node owns; None means: leave the field out."""
    containers = [_container_status(facts, one) for one in containers_of(facts.pod)]
    starting = [_init_status(facts, one) for one in init_containers_of(facts.pod)]
    phase = _phase(facts)
    virtual = is_vm(facts.pod)
    view = facts.snapshot.view
    pod_ip = (view.address if view is not None else "") or facts.host_ip
    status: Object = {
        "phase": phase,
        "conditions": _conditions(facts, containers, starting, phase),
        "containerStatuses": None if virtual else containers,  # derived for a VM
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "qosClass": lookup(facts.pod, "status", "qosClass") or qos_class(facts.pod),
        "startTime": lookup(facts.pod, "status", "startTime") or format_time(facts.now),
        "observedGeneration": observed_generation(facts.pod),
        "reason": None,
        "message": None,
    }
    if starting:
        status["initContainerStatuses"] = starting
    if virtual:
        (vm,) = containers
        before = lookup(facts.pod, "status", "virtualMachineStatus", default={})
        status["virtualMachineStatus"] = steadied(before, build_vm_status(vm, facts.snapshot))
    if facts.ending is not None and facts.ending.reason:
        status |= {"reason": facts.ending.reason, "message": facts.ending.message}
    return status


def observed_generation(pod: Object) -> int:
    """The generation this status speaks of. While a resize waits to be judged it stays behind:
    a client that sees it catch up, and no pending condition, takes the resize for done."""
    if phase_of(pod) in (ResizePhase.REQUESTED, ResizePhase.ACCEPTED):
        return int(lookup(pod, "status", "observedGeneration", default=0))
    return generation_of(pod)


def caught_up(pod: Object, status: Object) -> Object:
    """``status`` that has caught up with the pod's newest generation, with its conditions."""
    generation = generation_of(pod)
    conditions = [
        {**one, "observedGeneration": generation} if one.get("type") in _OWN_CONDITIONS else one
        for one in status.get("conditions") or ()
    ]
    reported = {**status, "observedGeneration": generation}
    return {**reported, "conditions": conditions} if conditions else reported


def judged_status(pod: Object) -> Object:
    """What an answer to the newest request says of the status: no more than that it was seen."""
    conditions = lookup(pod, "status", "conditions", default=[])
    return caught_up(pod, {"conditions": conditions} if conditions else {})


def reported_starts(pod: Object, container: str) -> int:
    """How often the container was started, as the status last said."""
    reported = reported_status(pod, container)
    return int(reported.get("restartCount", 0)) + 1 if reported.get("containerID") else 0


def changed_status(pod: Object, built: Object) -> Object:
    """The fields of ``built`` that differ from the (stored) pod's status, as a merge patch; empty:
    nothing to say."""
    status: Object = pod.get("status") or {}
    return {
        key: _patched(status.get(key), value)
        for key, value in built.items()
        if status.get(key) != value
    }


def _patched(before: Any, after: Any) -> Any:
    """What a merge patch has to say to make ``before`` be ``after``: null is what is gone."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    gone = {key: None for key in before if key not in after}
    return gone | {key: _patched(before.get(key), value) for key, value in after.items()}


def actual_resources(
    size: Object, actuated: Object, observed: KernelLimits, version: CgroupVersion
) -> Object:
    """What the kernel holds, in the quantities of ``size`` (allocated) or, where a resize is not
    finished and the kernel still has the old value, of ``actuated``."""
    new = report_actual(_resources(size), observed, version)
    if size == actuated:
        return new
    old = report_actual(_resources(actuated), observed, version)
    before = to_kernel(parse_resources(actuated), version)
    fields = [("requests", "memory")]  # stands in no cgroup file: reported as actuated
    if observed.cpu_weight == before.cpu_weight:
        fields.append(("requests", "cpu"))
    if observed.cpu_quota_us == before.cpu_quota_us:
        fields.append(("limits", "cpu"))
    if observed.memory_limit_bytes == before.memory_limit_bytes:
        fields.append(("limits", "memory"))
    for side, resource in fields:
        new = _with_field(new, old, side, resource)
    return new


def _with_field(new: Object, old: Object, side: str, resource: str) -> Object:
    amounts = {name: text for name, text in new.get(side, {}).items() if name != resource}
    if resource in old.get(side, {}):
        amounts[resource] = old[side][resource]
    rest = {name: value for name, value in new.items() if name != side}
    return {**rest, side: amounts} if amounts else rest


def _resources(size: Object) -> Object:
    return {side: size[side] for side in ("requests", "limits") if size.get(side)}


def _phase(facts: StatusFacts) -> str:
    if facts.ending is not None:
        return facts.ending.phase
    views, names = facts.snapshot.containers, [one["name"] for one in containers_of(facts.pod)]
    # One that ran before, and that the machine has lost, is being restarted, not started.
    started = all(name in views or reported_starts(facts.pod, name) for name in names)
    return "Running" if started else "Pending"


def ending_of(pod: Object, snapshot: PodSnapshot) -> Ending:
    """Of a pod that was deleted and whose containers do not run any more, as in Kubernetes:
    succeeded where all of them have."""
    codes = []
    for container in containers_of(pod):
        name = container["name"]
        view = snapshot.containers.get(name)
        reported = lookup(reported_status(pod, name), "state", "terminated", "exitCode")
        codes.append(reported if view is None else view.exit_code)
    return Ending("Succeeded" if all(code == 0 for code in codes) else "Failed")


def _container_status(facts: StatusFacts, container: Object) -> Object:
    name = container["name"]
    view = facts.snapshot.containers.get(name)
    reported = reported_status(facts.pod, name)
    state, last = _states(facts, name, view, reported)
    running = "running" in state
    health = facts.health.get(name, WELL)
    # A virtual machine is ready when its guest is heard.
    silent = is_vm(facts.pod) and (facts.snapshot.vm is None or facts.snapshot.vm.guest is None)
    status: Object = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": "" if view is None else view.image_id,
        "restartCount": reported.get("restartCount", 0) if view is None else view.attempt,
        "ready": running and not silent and health.ready,
        "started": running and health.started,
        "state": state,
        "lastState": last,
    }
    if running:
        status["resources"] = _actual(facts, container)
    elif not is_vm(facts.pod):  # Kubernetes' words; a virtual machine that is off has no size
        status["resources"] = _allocated(facts, container)
    if view is not None:
        status["containerID"] = _container_id(facts, view)
    elif reported.get("containerID"):
        status["containerID"] = reported["containerID"]
    return status


def _init_status(facts: StatusFacts, container: Object) -> Object:
    """Ready is a sidecar that is, or another that has succeeded."""
    status = _container_status(facts, container)
    if not stays(container):
        status["ready"] = lookup(status, "state", "terminated", "exitCode") == 0
        status["started"] = False
    return status


def reported_status(pod: Object, container: str) -> Object:
    """What the status last said of the container."""
    starting: list[Object] = lookup(pod, "status", "initContainerStatuses", default=[])
    statuses: list[Object] = [*statuses_of(pod), *starting]
    return next((one for one in statuses if one.get("name") == container), {})


def _states(
    facts: StatusFacts, name: str, view: ContainerView | None, reported: Object
) -> tuple[Object, Object]:
    """The state now, and how the start before this one ended."""
    last = _last_state(facts, name, view, reported)
    waiting = facts.waiting.get(name)
    if view is None:
        begun = Reason.CONTAINER_CREATING if facts.initialized else Reason.POD_INITIALIZING
        shown = waiting or WaitingReason(begun)
        if facts.ending is not None and reported.get("containerID"):
            return _lost_state(reported)
        if facts.ending is not None and waiting is None:
            return {"waiting": {"reason": facts.ending.reason or "NeverStarted"}}, last
        return {"waiting": _waiting(shown)}, last
    if view.phase is ContainerPhase.RUNNING:
        return {"running": {"startedAt": format_time(view.started_at)}}, last
    ended = {"terminated": _terminated(facts, view)}
    return (ended, last) if waiting is None else ({"waiting": _waiting(waiting)}, ended)


def _lost_state(reported: Object) -> tuple[Object, Object]:
    """The machine has nothing of it any more: what was told of its end stands, if anything was."""
    last = dict(reported.get("lastState") or {})
    if lookup(reported, "state", "terminated"):
        return dict(reported["state"]), last
    ended: Object = {
        "exitCode": _KILLED,
        "reason": Reason.CONTAINER_STATUS_UNKNOWN.value,
        "message": "The container could not be located when the pod was terminated",
        "containerID": reported["containerID"],
    }
    return {"terminated": ended}, last


def _waiting(waiting: WaitingReason) -> Object:
    shown: Object = {"reason": str(waiting.reason)}
    return {**shown, "message": waiting.message} if waiting.message else shown


def _terminated(facts: StatusFacts, view: ContainerView) -> Object:
    code = 0 if view.exit_code is None else view.exit_code
    if view.oom_killed:
        reason = Reason.OOM_KILLED
    else:
        reason = Reason.COMPLETED if code == 0 else Reason.ERROR
    finished_at = view.started_at if view.finished_at is None else view.finished_at
    message = facts.messages.get(view.id)
    return {
        "exitCode": code,
        "reason": reason.value,
        **({"message": message} if message else {}),
        "startedAt": format_time(view.started_at),
        "finishedAt": format_time(finished_at),
        "containerID": _container_id(facts, view),
    }


def _last_state(
    facts: StatusFacts, name: str, view: ContainerView | None, reported: Object
) -> Object:
    """The machine knows only the newest start; how the one before ended we have seen, or it was
    in our last report."""
    seen = facts.ended.get(name)
    if view is not None and seen is not None and seen.attempt < view.attempt:
        return {"terminated": _terminated(facts, seen)}
    ended = lookup(reported, "state", "terminated")
    is_another = view is None or reported.get("containerID") != _container_id(facts, view)
    return {"terminated": ended} if ended and is_another else dict(reported.get("lastState") or {})


def _allocated(facts: StatusFacts, container: Object) -> Object:
    if facts.allocation is None:
        return _resources(size_of(container))
    return _resources(facts.allocation.size(container["name"]))


def _actual(facts: StatusFacts, container: Object) -> Object:
    """Of a container that runs."""
    name = container["name"]
    groups = facts.snapshot.groups
    if facts.allocation is None or groups is None or name not in groups.containers:
        return _allocated(facts, container)
    size = facts.allocation.size(name)
    before = facts.allocation.size_before(name)
    if is_vm(facts.pod):
        return _vm_actual(facts, size, before, groups.containers[name])
    return actual_resources(size, before, groups.containers[name], facts.cgroup_version)


def _vm_actual(facts: StatusFacts, size: Object, before: Object, group: KernelLimits) -> Object:
    view = facts.snapshot.vm
    if view is None:
        return dict(lookup(facts.pod, "status", "virtualMachineStatus", "resources", default={}))
    return report_vm_actual(
        _resources(size),
        _resources(before),
        vm_held(view, group),
        overhead_of(facts.pod),
        facts.cgroup_version,
    )


def _container_id(facts: StatusFacts, view: ContainerView) -> str:
    return f"{facts.runtime_name}://{view.id}"


def _conditions(
    facts: StatusFacts, containers: list[Object], starting: list[Object], phase: str
) -> list[Object]:
    now = format_time(facts.now)
    conditions = [
        condition
        for condition in lookup(facts.pod, "status", "conditions", default=[])
        if condition.get("type") not in RESIZE_CONDITIONS
    ]
    sidecars = sidecars_of(facts.pod)
    running_sidecars = [status for status in starting if status["name"] in sidecars]
    unready = [status["name"] for status in (*running_sidecars, *containers) if not status["ready"]]
    readiness: Object = {"status": "False" if unready else "True"}
    if phase == "Succeeded":
        readiness |= {"reason": Reason.POD_COMPLETED.value}
    elif unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        readiness |= {"reason": Reason.CONTAINERS_NOT_READY.value, "message": message}
    begun = "False" if facts.snapshot.groups is None else "True"
    seen = {"observedGeneration": observed_generation(facts.pod)}
    news = [
        {"type": _SCHEDULED, "status": "True", **seen},
        {"type": _READY_TO_START, "status": begun, **seen},
        {"type": _INITIALIZED, **_initialized(facts, starting), **seen},
        {"type": _CONTAINERS_READY, **readiness, **seen},
        {"type": _READY, **_behind_gates(facts.pod, readiness), **seen},
    ]
    conditions = set_conditions(conditions, news, now)
    conditions = with_migratable(conditions, facts.snapshot.vm, now)
    return with_mark(conditions, now, safe=_is_safe_to_hotplug(facts))


def _behind_gates(pod: Object, containers: Object) -> Object:
    """A pod is ready when its containers are, and the conditions that it names besides."""
    unmet = unmet_gates(pod) if containers["status"] == "True" else []
    if not unmet:
        return containers
    reason = Reason.READINESS_GATES_NOT_READY.value
    return {"status": "False", "reason": reason, "message": ", ".join(unmet)}


def _initialized(facts: StatusFacts, starting: list[Object]) -> Object:
    if facts.initialized:
        return {"status": "True"}
    left = [status["name"] for status in starting if not (status["ready"] or status["started"])]
    return {
        "status": "False",
        "reason": Reason.CONTAINERS_NOT_INITIALIZED.value,
        "message": f"containers with incomplete status: [{' '.join(left)}]",
    }


def _is_safe_to_hotplug(facts: StatusFacts) -> bool:
    if not is_vm(facts.pod) or facts.allocation is None:
        return False
    version = facts.cgroup_version
    return is_safe_to_hotplug(facts.pod, facts.allocation, facts.snapshot, version)


def unmet_gates(pod: Object) -> list[str]:
    """A sentence for each gate whose condition is not True, in Kubernetes' words."""
    found = []
    for gate in lookup(pod, "spec", "readinessGates", default=[]):
        name = gate.get("conditionType", "")
        condition = find_condition(pod, name)
        if condition is None:
            found.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif condition.get("status") != "True":
            status = condition.get("status")
            found.append(f'the status of pod readiness gate "{name}" is not "True", but {status}')
    return found
