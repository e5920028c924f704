"""Builds status.virtualMachineStatus from what was read of a virtual machine. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.observation import PodSnapshot
from livesize.agent.vm.sizes import vm_target
from livesize.api.conditions import set_condition
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion, KernelLimits
from livesize.api.objects import Object, lookup
from livesize.api.quantity import format_cpu, format_memory, memory_bytes
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import Unplug, VmDevice
from livesize.api.vm_kernel import VmHolding
from livesize.api.vm_size import MEBIBYTE, CellSize
from livesize.api.vm_status import vm_status_of
from livesize.runtime.interface import ContainerPhase
from livesize.runtime.vm import Accelerator, VmView

_AVAILABLE_STEP_BYTES = 16 * MEBIBYTE
_AVAILABLE_SHARE = 20


def vm_held(view: VmView, group: KernelLimits) -> VmHolding:
    """What the VM really holds: the guest's word for CPUs, the domain's where it is silent."""
    online = view.plugged_vcpus if view.guest is None else view.guest.vcpus_online
    return VmHolding(vcpus=online, memory_bytes=view.plugged_memory_bytes, group=group)


def build_vm_status(container_status: Object, snapshot: PodSnapshot) -> Object:
    """The status of the VM as the one container of its pod, and what only a VM has."""
    status = vm_status_of(container_status)
    container = snapshot.containers.get(VM_NAME)
    if container is not None and container.phase is ContainerPhase.RUNNING:
        status["pid"] = container.pid
    view = snapshot.vm
    if view is None:
        return status
    return {
        **status,
        **_being_updated(view),
        "accelerator": view.accelerator.value,
        "maximum": {
            "cpu": format_cpu(1000 * view.max_vcpus),
            "memory": format_memory(view.max_memory_bytes),
        },
        "memory": {
            "technology": view.technology.value,
            "maxBootTime": format_memory(view.boot_memory_bytes),
            "current": format_memory(view.requested_memory_bytes),
            "maxExpandable": format_memory(view.max_memory_bytes),
        },
        **({"cells": [_cell(view, cell) for cell in view.cells]} if view.cells else {}),
        "guest": _guest(view),
        "devices": [_device(device) for device in view.devices],
    }


def is_safe_to_hotplug(
    pod: Object, allocation: Allocation, snapshot: PodSnapshot, version: CgroupVersion
) -> bool:
    """A change is under way, and both groups hold what it needs and what the domain has: its
    devices may be plugged (F66). Read back, and so true whoever asks and after any restart."""
    view, groups = snapshot.vm, snapshot.groups
    if allocation.settled or view is None or groups is None or VM_NAME not in groups.containers:
        return False
    target = vm_target(pod, allocation, version)
    memory = max(target.memory_bytes, view.requested_memory_bytes, view.plugged_memory_bytes)
    needed = (target.vcpus * CPU_PERIOD_US, memory + target.overhead_bytes)
    return all(
        found is None or found >= amount
        for group in (groups.pod, groups.containers[VM_NAME])
        for found, amount in zip(
            (group.cpu_quota_us, group.memory_limit_bytes), needed, strict=True
        )
    )


def with_mark(conditions: list[Object], now: str, *, safe: bool) -> list[Object]:
    """The conditions with the mark where it is safe to hotplug, and without it elsewhere."""
    mark = ConditionType.SAFE_TO_HOTPLUG.value
    if not safe:
        return [condition for condition in conditions if condition.get("type") != mark]
    message = "The pod's groups hold what the change needs; the domain and its guest follow."
    return set_condition(conditions, {"type": mark, "status": "True", "message": message}, now)


def with_migratable(conditions: list[Object], view: VmView | None, now: str) -> list[Object]:
    """A VM that an emulator has taken a vCPU from hangs for ever when it is migrated live
    (decisions 24): until it is started again it says so."""
    kind = ConditionType.LIVE_MIGRATABLE.value
    unplugged = 0
    if view is not None and view.running and view.accelerator is Accelerator.TCG:
        unplugged = view.created_vcpus - view.plugged_vcpus
    if unplugged <= 0:
        return [condition for condition in conditions if condition.get("type") != kind]
    message = (
        f"{unplugged} CPUs were unplugged from the emulated VM, because its guest has no"
        " qemu-guest-agent that could take them offline; it can be migrated after its next restart"
    )
    condition = {
        "type": kind,
        "status": "False",
        "reason": Reason.VCPUS_UNPLUGGED.value,
        "message": message,
    }
    return set_condition(conditions, condition, now)


def steadied(before: Object, built: Object) -> Object:
    """``before``, where ``built`` has nothing to add but the passing of time: a guest's uptime
    and a little more or less free memory are no news of their own."""
    if _without_passing(before) != _without_passing(built):
        return built
    return before if _is_little(_available(before), _available(built)) else built


def only_time_passed(before: PodSnapshot, now: PodSnapshot) -> bool:
    """Two readings of a pod and its guest differ in nothing else."""
    if before.vm is None or now.vm is None or before.vm.guest is None or now.vm.guest is None:
        return before == now
    lasting = replace(
        now.vm,
        read_at=before.vm.read_at,
        guest=replace(
            now.vm.guest,
            uptime_seconds=before.vm.guest.uptime_seconds,
            memory_available_bytes=before.vm.guest.memory_available_bytes,
        ),
    )
    available = before.vm.guest.memory_available_bytes, now.vm.guest.memory_available_bytes
    return replace(now, vm=lasting) == before and _is_little(*available)


def _is_little(was_bytes: int, now_bytes: int) -> bool:
    step_bytes = max(_AVAILABLE_STEP_BYTES, max(was_bytes, now_bytes) // _AVAILABLE_SHARE)
    return abs(was_bytes - now_bytes) < step_bytes


def _being_updated(view: VmView) -> Object:
    """What is noted with the domain while its memory is on the way to another size (F46)."""
    target_bytes = view.note.memory_bytes_being_updated
    if target_bytes is None:
        return {}
    return {"resourceUpdateInProgress": True, "memoryLimitInBytesBeingUpdated": target_bytes}


def _guest(view: VmView) -> Object:
    told: Object = {
        "vcpusPlugged": view.plugged_vcpus,
        "memoryRequested": format_memory(view.requested_memory_bytes),
        "memoryPlugged": format_memory(view.plugged_memory_bytes),
    }
    if view.dropped:
        told["message"] = f"what the guest says cannot be, and is dropped: {view.dropped}"
    if view.guest is None:
        return {**told, "agent": False}
    return {
        **told,
        "vcpusOnline": view.guest.vcpus_online,
        "memorySeen": format_memory(view.guest.memory_seen_bytes),
        "memoryAvailable": format_memory(view.guest.memory_available_bytes),
        "agent": view.guest.agent,
        "bootId": view.guest.boot_id,
        "uptimeSeconds": round(view.guest.uptime_seconds, 2),
    }


def _cell(view: VmView, cell: CellSize) -> Object:
    devices = [device for device in view.devices if device.node == cell.id]
    requested = cell.memory_bytes + sum(device.requested_bytes for device in devices)
    plugged = cell.memory_bytes + sum(device.current_bytes for device in devices)
    told: Object = {
        "id": cell.id,
        "boot": format_memory(cell.memory_bytes),
        "requested": format_memory(requested),
        "plugged": format_memory(plugged),
    }
    by_node = () if view.guest is None else view.guest.memory_by_node
    if cell.id < len(by_node):
        told["seen"] = format_memory(by_node[cell.id])
    return told


def _device(device: VmDevice) -> Object:
    unplug = {} if device.unplug is Unplug.NONE else {"unplug": device.unplug.value}
    return {
        **unplug,
        "alias": device.alias,
        "kind": device.kind.value,
        "node": device.node,
        "size": format_memory(device.size_bytes),
        "requested": format_memory(device.requested_bytes),
        "current": format_memory(device.current_bytes),
    }


def _without_passing(status: Object) -> Object:
    guest = status.get("guest")
    if not isinstance(guest, dict):
        return status
    lasting = {
        name: value
        for name, value in guest.items()
        if name not in ("uptimeSeconds", "memoryAvailable")
    }
    return {**status, "guest": lasting}


def _available(status: Object) -> int:
    return memory_bytes(lookup(status, "guest", "memoryAvailable", default="0"))
