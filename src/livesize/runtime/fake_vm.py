"""A virtual machine in memory, whose guest does as a test says.

Left alone, the guest boots at once, brings every vCPU online and takes or gives back memory as
soon as it is asked. It can be held (it does nothing until it is released, or takes single steps),
silent (nobody hears it, and its agent does not answer), keep memory it has in use (it gives back
only a part), refuse to let go of DIMMs, leave added memory offline until its agent brings it
online, and reboot (fake_vm_memory.py). What happens to it wakes whoever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from livesize.api.vm_changes import (
    OnlineMemory,
    OnlineVcpus,
    PersistVcpus,
    PinVcpus,
    PlugDevice,
    PlugVcpus,
    SetBalloon,
    SetRequested,
    TuneCpu,
    UnplugDevice,
    UnplugVcpus,
    VcpuChange,
    VmChange,
    VmNote,
    WriteNote,
)
from livesize.machinery.clock import Clock
from livesize.runtime.fake_vm_memory import FakeMemory
from livesize.runtime.interface import GoneError, RuntimeCallError
from livesize.runtime.vm import (
    Accelerator,
    GuestSilentError,
    GuestView,
    VmView,
    check_pins,
    check_tune,
)
from livesize.runtime.vm_config import VmConfig


class FakeVm:
    """The world's side of a VM: it survives the driver, as QEMU survives the agent."""

    def __init__(
        self,
        pod_uid: str,
        size: VmConfig,
        clock: Clock,
        on_change: Callable[[], None],
        *,
        accelerator: Accelerator = Accelerator.TCG,
    ) -> None:
        self.pod_uid = pod_uid
        self.size = size
        self.accelerator = accelerator
        self.running = True
        self.plugged_vcpus = size.vcpus
        self.persistent_vcpus = size.vcpus
        self.created_vcpus = size.vcpus
        self.memory = FakeMemory(size)
        self.online_vcpus = size.vcpus
        self.note = VmNote()
        self.pins = self.persistent_pins = size.pins
        self.tune = self.persistent_tune = size.tune
        self.boots = 1
        self.has_agent = True
        self.agent_may_exec = True
        self.keeps_memory_boot = 0
        self.dropped = ""
        self._clock = clock
        self._on_change = on_change
        self._booted_at = clock.now()
        self._is_silent = False
        self._is_held = False
        self._wanted_online = size.vcpus
        self._failures: list[RuntimeCallError] = []
        self._changed = asyncio.Event()

    # Knobs.

    def fail_next_change(self, error: RuntimeCallError) -> None:
        """The next change raises this instead; several queue up."""
        self._failures.append(error)

    def hold(self) -> None:
        """The guest answers, but takes nothing and gives nothing back until released."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._settle()

    def move_memory(self, step_bytes: int) -> None:
        """A held guest takes or gives back that much of what it was asked for, and no more."""
        self.memory.step(step_bytes)
        self._tell()

    def keep_dimms(self, *, keeps: bool = True) -> None:
        """Its kernel holds memory on them for itself: it refuses to let go of any."""
        self.memory.keeps_dimms = keeps
        self._settle()

    def be_silent(self) -> None:
        """Nobody hears the guest, and nothing asked of its agent is answered."""
        self._is_silent = True
        self._tell()

    def speak(self) -> None:
        self._is_silent = False
        self._settle()

    def lie(self, why: str) -> None:
        """It says what cannot be: nothing of it is believed."""
        self.dropped = why
        self.be_silent()

    def use_memory(self, used_bytes: int) -> None:
        """What the guest's workload holds, and therefore does not give back."""
        self.memory.used_bytes = used_bytes
        self._settle()

    def reboot(self) -> None:
        """The guest starts anew in the same machine: every plugged vCPU is online again."""
        self.boots += 1
        self._booted_at = self._clock.now()
        self._wanted_online = self.plugged_vcpus
        self.memory.reboot()
        self._settle()

    # What the driver asks.

    def view(self) -> VmView:
        return VmView(
            pod_uid=self.pod_uid,
            running=self.running,
            accelerator=self.accelerator,
            max_vcpus=self.size.max_vcpus,
            plugged_vcpus=self.plugged_vcpus,
            persistent_vcpus=self.persistent_vcpus,
            boot_memory_bytes=self.size.boot_memory_bytes,
            max_memory_bytes=self.size.max_memory_bytes,
            devices=self.memory.devices,
            persistent_devices=self.memory.persistent_devices,
            guest=self._guest() if self.running and not self._is_silent else None,
            note=self.note,
            read_at=self._clock.now(),
            pins=self.pins.of(self.plugged_vcpus),
            persistent_pins=self.persistent_pins.of(self.plugged_vcpus),
            keeps_memory=self.keeps_memory_boot == self.boots,
            dropped=self.dropped,
            technology=self.size.technology,
            cells=self.size.cells,
            topology=self.size.topology,
            tune=self.tune,
            persistent_tune=self.persistent_tune,
            balloon=self.memory.balloon,
            persistent_balloon=self.memory.persistent_balloon,
            created_vcpus=self.created_vcpus,
        )

    @property
    def requested_bytes(self) -> int:
        return self.memory.requested_bytes

    @property
    def plugged_bytes(self) -> int:
        return self.memory.plugged_bytes

    @property
    def persistent_bytes(self) -> int:
        return self.memory.persistent_bytes

    @property
    def used_bytes(self) -> int:
        return self.memory.used_bytes

    @used_bytes.setter
    def used_bytes(self, used_bytes: int) -> None:
        self.memory.used_bytes = used_bytes

    @property
    def offline_bytes(self) -> int:
        return self.memory.offline_bytes

    @offline_bytes.setter
    def offline_bytes(self, offline_bytes: int) -> None:
        self.memory.offline_bytes = offline_bytes

    @property
    def onlines_by_itself(self) -> bool:
        return self.memory.onlines_by_itself

    @onlines_by_itself.setter
    def onlines_by_itself(self, onlines: bool) -> None:
        self.memory.onlines_by_itself = onlines

    def change(self, change: VmChange) -> None:
        if self._failures:
            raise self._failures.pop(0)
        match change:
            case OnlineMemory():
                self._online_memory()
            case WriteNote(note=note):
                self.note = note
            case SetRequested() | PlugDevice() | UnplugDevice() | SetBalloon():
                self.memory.change(change)
            case _:
                self._change_vcpus(change)
        self._settle()

    def _change_vcpus(self, change: VcpuChange) -> None:
        match change:
            case PlugVcpus(count=count):
                self._plug(count)
            case UnplugVcpus(count=count):
                self._unplug(count)
            case OnlineVcpus(count=count):
                self._switch(count)
            case PersistVcpus(count=count):
                self._check_vcpus(count)
                self.persistent_vcpus = count
            case PinVcpus(pins=pins):
                check_pins(pins, self.plugged_vcpus)
                self.pins = self.persistent_pins = pins
            case TuneCpu(tune=tune):
                check_tune(tune)
                self.tune = self.persistent_tune = tune

    async def wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        deadline = self._clock.monotonic() + timeout_seconds
        while not holds(view := self.view()) and (left := deadline - self._clock.monotonic()) > 0:
            await _first_of(self._changed.wait(), self._clock.sleep(left))
            if not self.running:
                raise GoneError(f"the VM of pod {self.pod_uid} does not run")
        return view

    def end(self) -> None:
        self.running = False
        self._tell()

    def _guest(self) -> GuestView:
        by_node = self.memory.seen_by_node
        seen_bytes = sum(by_node)
        return GuestView(
            boot_id=f"00000000-0000-0000-0000-{self.boots:012}",
            uptime_seconds=self._clock.now() - self._booted_at,
            vcpus_online=self.online_vcpus,
            memory_seen_bytes=seen_bytes,
            memory_available_bytes=max(seen_bytes - self.memory.used_bytes, 0),
            agent=self.has_agent,
            memory_by_node=by_node,
        )

    def _plug(self, count: int) -> None:
        self._check_vcpus(count)
        if count < self.plugged_vcpus:
            raise RuntimeCallError(f"{self.plugged_vcpus} vCPUs are plugged in, more than {count}")
        created_vcpus = self.created_vcpus + count - self.plugged_vcpus
        if self.accelerator is Accelerator.TCG and created_vcpus > self.size.max_vcpus:
            self.end()
            raise GoneError(f"QEMU of pod {self.pod_uid} has created too many vCPUs, and aborted")
        self.created_vcpus = created_vcpus
        self._wanted_online += count - self.plugged_vcpus
        self.plugged_vcpus = count

    def _unplug(self, count: int) -> None:
        self._check_vcpus(count)
        if self._is_silent or self._is_held:
            raise RuntimeCallError("the guest did not let go of its vCPUs in time")
        self.plugged_vcpus = min(self.plugged_vcpus, count)
        self._wanted_online = min(self._wanted_online, count)

    def _switch(self, count: int) -> None:
        if self._is_silent or not self.has_agent:
            raise GuestSilentError(f"the guest's agent of pod {self.pod_uid} does not answer")
        if not 1 <= count <= self.plugged_vcpus:
            raise RuntimeCallError(f"the guest has {self.plugged_vcpus} vCPUs, not {count}")
        self._wanted_online = count

    def _online_memory(self) -> None:
        if self._is_silent or not self.has_agent:
            raise GuestSilentError(f"the guest's agent of pod {self.pod_uid} does not answer")
        if self.offline_bytes and not self.agent_may_exec:
            self.keeps_memory_boot = self.boots
        self.offline_bytes = 0

    def _check_vcpus(self, count: int) -> None:
        if not 1 <= count <= self.size.max_vcpus:
            raise RuntimeCallError(f"a VM of at most {self.size.max_vcpus} vCPUs, not {count}")

    def _settle(self) -> None:
        """The guest does what it can of what it was asked."""
        if self.running and not self._is_held:
            self.online_vcpus = min(self._wanted_online, self.plugged_vcpus)
            panics = self.memory.panics
            self.memory.settle()
            if self.memory.panics > panics:
                self.reboot()
        self._tell()

    def _tell(self) -> None:
        passed, self._changed = self._changed, asyncio.Event()
        passed.set()
        self._on_change()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one has ended; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
