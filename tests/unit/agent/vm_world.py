"""The world of the agent's tests with virtual machines in it.

Whether the groups cover what each domain may use is checked at every change of either.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from livesize.agent.vm.sizes import overhead_of
from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion
from livesize.api.objects import Object, lookup, uid_of
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import SetRequested, VmChange
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    Group,
    PodGroup,
    RuntimeCallError,
    RuntimeEvent,
)
from livesize.runtime.vm import Accelerator
from unit.agent.world import World
from vms.sizes import persist, request

MIB = 1024 * 1024
GIB = 1024 * MIB


class VmWorld(World):
    """``history``: every change of a domain and of a group, in order. ``refuses``: kinds of
    changes that a domain refuses, with what it says. ``broken``: groups that cannot be written."""

    has_vms = True

    def __init__(
        self,
        directory: Path,
        version: CgroupVersion = CgroupVersion.V1,
        accelerator: Accelerator = Accelerator.TCG,
    ) -> None:
        super().__init__(directory, version)
        self.machine = FakeMachine(
            self.context, version=version, cpu_milli=8000, memory_bytes=8 * GIB
        )
        self.machine.accelerator = accelerator
        self.settings = msgspec.structs.replace(
            self.settings, guest_seconds=0.1, progress_seconds=0.02
        )
        self.history: list[object] = []
        self.violations: list[str] = []
        self.refuses: dict[type, str] = {}
        self.broken: set[Group] = set()

    def _make_runtime(self) -> FakeRuntime:
        return WatchedRuntime(self)

    async def set(self, **settings: object) -> None:
        """Before anything runs: another agent, with other settings."""
        await self.stop()
        self.settings = msgspec.structs.replace(self.settings, **settings)
        await self.start()

    async def run_silent_vm(self, name: str, cpu: str = "1", memory: str = "512Mi") -> str:
        """A VM whose guest boots until it is told to speak; return its uid."""
        boot = self.machine.boot_vm

        def boot_silently(config: ContainerConfig) -> None:
            boot(config)
            self.machine.vms[config.pod_uid].be_silent()

        self.machine.boot_vm = boot_silently  # type: ignore[method-assign]
        await self.api.run_pod(name, virtualMachine=virtual_machine(cpu, memory))
        uid = await self.running(name)
        await self.until(lambda: self.vm_state(name) == "Starting", "it is starting")
        self.machine.boot_vm = boot  # type: ignore[method-assign]
        return uid

    async def run_vm(
        self, name: str, cpu: str = "1", memory: str = "512Mi", cpu_max: str = "6", **more: Any
    ) -> str:
        """Create a VM on the node and wait until its guest is heard; return its uid."""
        vm = virtual_machine(cpu, memory, cpu_max)
        policy = {"resizePolicy": more.pop("resizePolicy")} if "resizePolicy" in more else {}
        await self.api.run_pod(name, virtualMachine={**vm, **policy}, **more)
        await self.running(name)
        await self.until(lambda: self.vm_state(name) == "Running", "the guest is heard")
        return uid_of(self.api.pod(name))

    def vm_state(self, name: str) -> str:
        return str(lookup(self.api.pod(name), "status", "virtualMachineStatus", "state"))

    def vm(self, uid: str) -> FakeVm:
        return self.machine.vms[uid]

    def happened(self, uid: str) -> None:
        self.machine.feed.publish(RuntimeEvent(uid, VM_NAME))

    def overhead_bytes(self, uid: str) -> int:
        return next(
            overhead_of(pod)
            for key, pod in self.api.objects.items()
            if key[0] == "pods" and uid_of(pod) == uid
        )

    def group_bytes(self, uid: str) -> tuple[int, int]:
        """Memory limits of the pod's group and of the VM's, without the overhead."""
        overhead = self.overhead_bytes(uid)
        limits = [
            self.machine.group(group).limits.memory_limit_bytes
            for group in (PodGroup(uid), ContainerGroup(uid, VM_NAME))
        ]
        pod, vm = (-1 if limit is None else limit - overhead for limit in limits)
        return pod, vm

    def quotas(self, uid: str) -> tuple[int | None, int | None]:
        return self.pod_quota_us(uid), self.quota_us(uid, VM_NAME)

    def check(self, uid: str) -> None:
        vm = self.machine.vms.get(uid)
        if vm is None or not vm.running:
            return
        view = vm.view()
        held = max(view.requested_memory_bytes, view.plugged_memory_bytes)
        needed = held + self.overhead_bytes(uid)
        for group in (PodGroup(uid), ContainerGroup(uid, VM_NAME)):
            limits = self.machine.group(group).limits
            memory, quota = limits.memory_limit_bytes, limits.cpu_quota_us
            if memory is not None and memory < needed:
                self.violations.append(f"{group}: {memory} of {needed} bytes")
            if quota is not None and quota < vm.online_vcpus * CPU_PERIOD_US:
                self.violations.append(f"{group}: {quota} for {vm.online_vcpus} vCPUs")


def virtual_machine(cpu: str, memory: str, cpu_max: str = "6") -> Object:
    size = {"cpu": cpu, "memory": memory}
    return {
        "kernel": {"image": "guest.vmlinuz", "initrd": "guest.initrd"},
        "cpu": {"max": cpu_max},
        "memory": {"max": "4Gi", "boot": "256Mi"},
        "resources": {"requests": size, "limits": size},
    }


def have(total_bytes: int) -> SetRequested:
    """Of ``virtual_machine``."""
    return request(total_bytes, 256 * MIB)


def start_with(total_bytes: int) -> SetRequested:
    """Of ``virtual_machine``, the next time."""
    return persist(total_bytes, 256 * MIB)


class WatchedRuntime(FakeRuntime):
    def __init__(self, watcher: VmWorld) -> None:
        super().__init__(context=watcher.context, machine=watcher.machine)
        self._watcher = watcher

    async def write(self, group: Group, change: GroupChange) -> None:
        if group in self._watcher.broken:
            raise RuntimeCallError(f"{group} cannot be written")
        await super().write(group, change)
        self._watcher.history.append((group, change))
        self._watcher.check(group.pod_uid)

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        await asyncio.sleep(0)
        if type(change) in self._watcher.refuses:
            raise RuntimeCallError(self._watcher.refuses[type(change)])
        await super().change_vm(pod_uid, change)
        self._watcher.history.append(change)
        self._watcher.check(pod_uid)
