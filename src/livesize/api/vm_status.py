"""The status of a virtual machine, and the same said as the status of a container.

``status.virtualMachineStatus`` has one word for its state; what is generic (tables, accounting,
the node's report) reads ``statuses_of`` and sees one container named "vm":

    Waiting    waiting       it is not running, and why
    Starting   running       QEMU runs; the guest has not been heard yet
    Running    running       ready
    Stopped    terminated    it has ended

``vm_status_of(vm_container_status(status))`` is ``status`` again.
"""

from __future__ import annotations

import enum

from livesize.api.objects import Object
from livesize.api.resources import VM_NAME, sidecars_of

_SAME_FIELDS = ("restartCount", "lastState", "resources", "allocatedResources")
_ENDED_FIELDS = ("reason", "message", "exitCode", "startedAt", "finishedAt")


class VmState(enum.StrEnum):
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPED = "Stopped"


def statuses_of(pod: Object) -> list[Object]:
    """Statuses of the app containers; of a VM pod the one of its virtual machine."""
    status: Object = pod.get("status") or {}
    vm = status.get("virtualMachineStatus")
    if isinstance(vm, dict):
        return [vm_container_status(vm)]
    return status.get("containerStatuses") or []


def resizable_statuses_of(pod: Object) -> list[Object]:
    """Those of everything that can be resized: the app containers, then the sidecars."""
    statuses, sidecars = statuses_of(pod), sidecars_of(pod)
    if not sidecars:
        return statuses
    starting = (pod.get("status") or {}).get("initContainerStatuses") or []
    return [*statuses, *(one for one in starting if one.get("name") in sidecars)]


def vm_container_status(vm: Object) -> Object:
    """A virtualMachineStatus as a containerStatus."""
    word = vm.get("state")
    status: Object = {"name": VM_NAME, "ready": word == VmState.RUNNING, "state": _state(vm)}
    status["started"] = "running" in status["state"]
    status |= {field: vm[field] for field in _SAME_FIELDS if field in vm}
    if "virtualMachineID" in vm:
        status["containerID"] = vm["virtualMachineID"]
    return status


def vm_as_status(vm: Object, image: str) -> Object:
    """For clients that know only containers: with every field that a status of theirs has."""
    status = vm_container_status(vm)
    return {
        "image": image,
        "imageID": image,
        "lastState": {},
        "restartCount": 0,
        **status,
    }


def vm_status_of(status: Object) -> Object:
    """A containerStatus as a virtualMachineStatus, to which the node adds what only a VM has."""
    vm: Object = {"state": _word(status).value}
    state = status.get("state") or {}
    for kind in ("waiting", "running", "terminated"):
        said = state.get(kind) or {}
        vm |= {field: said[field] for field in _ENDED_FIELDS if field in said}
    vm |= {field: status[field] for field in _SAME_FIELDS if field in status}
    if "containerID" in status:
        vm["virtualMachineID"] = status["containerID"]
    return vm


def _state(vm: Object) -> Object:
    said = {field: vm[field] for field in _ENDED_FIELDS if field in vm}
    match vm.get("state"):
        case VmState.STARTING | VmState.RUNNING:
            return {"running": said}
        case VmState.STOPPED:
            return {"terminated": said}
        case _:
            return {"waiting": said}


def _word(status: Object) -> VmState:
    state = status.get("state") or {}
    if state.get("terminated") is not None:
        return VmState.STOPPED
    if state.get("running") is not None:
        return VmState.RUNNING if status.get("ready") else VmState.STARTING
    return VmState.WAITING
