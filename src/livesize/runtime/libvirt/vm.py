"""One virtual machine as this agent sees it: one owner, one thread for what blocks, one view.

It is put together of its lifecycle (does QEMU run), its observer (what domain and guest say) and
the domain that changes are made to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import (
    Definition,
    OnlineMemory,
    PlugVcpus,
    SetBalloon,
    Unplug,
    UnplugDevice,
    VmChange,
)
from livesize.runtime.interface import ContainerPhase, ContainerView, RuntimeCallError
from livesize.runtime.libvirt.changes import Correction
from livesize.runtime.libvirt.code_cache import untouched_regions
from livesize.runtime.libvirt.connection import DomainEvent
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.emulator import check_creations, check_room
from livesize.runtime.libvirt.environment import VmEnvironment, VmThread
from livesize.runtime.libvirt.guest_bounds import GuestLimits
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.lifecycle import VmLifecycle
from livesize.runtime.libvirt.observer import VmObserver
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import PodFolder, VmRecord
from livesize.runtime.vm import Accelerator, VmView
from livesize.runtime.vm_checks import most_memory
from livesize.runtime.vm_config import VmConfig

_SHUTDOWN_EVENT = 6  # of LIFECYCLE; its detail says on whose request
_BY_HOST = 2
_ROOM_ROUNDS = 5  # of a second or two; one or two are enough


class Vm:
    def __init__(
        self, record: VmRecord, folder: PodFolder, environment: VmEnvironment, owner: VmOwner
    ) -> None:
        config = record.config
        assert config.vm is not None
        self.record = record
        self.uid = config.pod_uid
        self.size: VmConfig = config.vm
        self.identity = DomainIdentity(self.size.uid or self.uid, self.uid)
        self._environment = environment
        cells = max(1, len(self.size.cells))
        limits = GuestLimits(self.size.max_vcpus, most_memory(self.size), cells)
        self._domain = Domain(environment.connection, self.identity, limits, environment.clock)
        self._thread = VmThread(self.uid)
        self._lifecycle = VmLifecycle(
            record, folder, environment, owner, self._domain, self._thread
        )
        self._observer = VmObserver(
            self.size, self._lifecycle, self._domain, self._thread, environment, limits
        )
        self._lifecycle.on_end = self._ended

    @property
    def is_running(self) -> bool:
        return self._lifecycle.is_running

    @property
    def console(self) -> Path:
        return self._lifecycle.console

    def container_view(self) -> ContainerView:
        config = self.record.config
        outcome, started = self._lifecycle.outcome, self._lifecycle.started
        return ContainerView(
            id=self.record.id,
            pod_uid=self.uid,
            name=VM_NAME,
            phase=ContainerPhase.RUNNING if outcome is None else ContainerPhase.EXITED,
            attempt=config.attempt,
            image=self.size.kernel or self.size.disk,
            image_id=self.size.kernel or self.size.disk,
            hash=config.hash,
            hash_without_resources=config.hash_without_resources,
            pid=started.pid if started else 0,
            started_at=started.started_at if started else self.record.created_at,
            finished_at=outcome.finished_at if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
            oom_killed=outcome.oom_killed if outcome else False,
            log_path=str(self.console),
        )

    def view(self) -> VmView | None:
        return self._observer.view()

    async def start(self) -> None:
        await self._lifecycle.start(self.identity)
        await self._observer.look(ask_guest=False)

    def attach(self, boot_id: str) -> None:
        self._lifecycle.attach(boot_id)

    async def reconnect(self) -> None:
        """After ``attach``, or when libvirtd has been started again."""
        if not self.is_running:
            return
        await self._lifecycle.release()
        if self._environment.accelerator is Accelerator.TCG:
            # An agent may have died while it filled the code cache.
            await self._thread.run(self._domain.split_code, False)
        await self.refresh()

    async def refresh(self) -> VmView:
        return await self._observer.look(ask_guest=True)

    async def wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        return await self._observer.wait(holds, timeout_seconds)

    async def stop(self, grace_seconds: float) -> None:
        await self._lifecycle.stop(grace_seconds)

    async def forget(self) -> None:
        await self._lifecycle.forget()

    async def learn_end(self) -> None:
        await self._lifecycle.learn_end()

    def heard(self, event: DomainEvent) -> None:
        """libvirt told something of this domain."""
        if event.kind == "LIFECYCLE" and event.number == _SHUTDOWN_EVENT:
            self._lifecycle.shutting_down(by_host=event.detail == _BY_HOST)
        self._observer.heard(event)

    def close(self) -> None:
        """Let go of it; it goes on."""
        self._lifecycle.close()
        self._observer.close()
        self._thread.close()

    # Changes.

    async def change(self, change: VmChange) -> None:
        self._lifecycle.require_running()
        if self._observer.reading is None:
            await self._observer.look(ask_guest=False)
        assert self._observer.reading is not None
        if isinstance(change, PlugVcpus):
            correction = await self._plug(change)
        elif isinstance(change, OnlineMemory):
            await self._online_memory()
            return
        elif isinstance(change, UnplugDevice) and change.definition is Definition.LIVE:
            correction = await self._unplug(change)
        else:
            known = self._observer.reading.live
            correction = await self._thread.run(self._domain.change, change, known)
        if isinstance(change, SetBalloon) and change.definition is Definition.LIVE:
            self._observer.ask_balloon(change.memory_bytes)
        self._observer.correct(correction)

    async def _unplug(self, change: UnplugDevice) -> Correction:
        """The event of what became of it may come before the call returns."""
        unplugs = self._observer.unplugs
        before = unplugs.of(change.alias)
        unplugs.set(change.alias, Unplug.PENDING)
        try:
            return await self._thread.run(self._domain.change, change)
        except RuntimeCallError:
            unplugs.set(change.alias, before)
            raise

    async def _plug(self, change: PlugVcpus) -> Correction:
        """vCPUs are counted before they are made: after a crash rather too many than too few."""
        assert self._observer.reading is not None
        assert self._lifecycle.started is not None
        live, created = self._observer.reading.live, self._lifecycle.started.vcpus_created
        plugged = await self._thread.run(self._domain.plugged_vcpus)
        added = max(min(change.count, live.max_vcpus) - plugged, 0)
        if live.accelerator is Accelerator.TCG and added:
            check_creations(created + added, live.max_vcpus)
            await self._check_room(plugged, added, live.max_vcpus)
        self._lifecycle.note_start(vcpus_created=created + added)
        try:
            return await self._thread.run(self._domain.change, change)
        except RuntimeCallError:
            after = await self._observer.look(ask_guest=False)
            made = max(after.plugged_vcpus - plugged, 0)
            self._lifecycle.note_start(vcpus_created=created + made)
            raise

    async def _check_room(self, plugged: int, added: int, max_vcpus: int) -> None:
        """QEMU is asked only where it cannot be seen in its memory map that there is room."""
        assert self._lifecycle.started is not None
        untouched = untouched_regions(self._lifecycle.started.pid)
        if untouched is not None and untouched >= plugged + added:
            return
        for left in range(_ROOM_ROUNDS, -1, -1):
            jit = await self._thread.run(self._domain.info_jit)
            try:
                check_room(jit, max_vcpus=max_vcpus, plugged=plugged, added=added)
            except RuntimeCallError:
                if not left or not await self._fill_code_cache():
                    raise
            else:
                return

    async def _fill_code_cache(self) -> bool:
        """QEMU empties its cache when it is full, and a guest that has nothing to do fills it no
        further, after a reboot for instance: then it is made to translate every instruction by
        itself for as long as it takes to answer. False: this QEMU cannot do that."""
        if not await self._thread.run(self._domain.split_code, True):
            return False
        try:
            await self._observer.guest.keep_busy()
        finally:
            await self._thread.run(self._domain.split_code, False)
        return True

    async def _online_memory(self) -> None:
        is_movable = await self._thread.run(self._domain.online_memory)
        guest = self._observer.guest.view
        if not is_movable and guest is not None and self._lifecycle.started is not None:
            self._lifecycle.note_start(unmovable_memory_boot=guest.boot_id)
        self._observer.wake()

    def _ended(self) -> None:
        self._observer.guest.close()
        self._observer.tell()
