"""One virtual machine as this agent sees it: one owner, one thread for what blocks, one view.

    files say outcome ───────────────────► ended
    QEMU lives ──────────────────────────► running; the end of QEMU is the VM's
    QEMU gone, or another boot ──────────► ended; libvirt may still know how

Whether it runs is learned from QEMU's process, which needs no libvirtd; everything else from the
domain and the guest. What the guest says unasked, and what libvirt tells, wakes whoever waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import OnlineMemory, PinVcpus, PlugVcpus, VmChange
from livesize.api.vm_pins import UNPINNED
from livesize.machinery.clock import Clock
from livesize.machinery.steps import CrashPoints
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.guest_channels import CHANNEL
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    RuntimeCallError,
)
from livesize.runtime.libvirt.changes import Correction, DomainReading
from livesize.runtime.libvirt.code_cache import untouched_regions
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.daemon import Daemon
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.emulator import check_creations, check_room
from livesize.runtime.libvirt.files import VmFiles
from livesize.runtime.libvirt.guest_bounds import (
    GuestLimits,
    GuestReport,
    UnfitWordsError,
    guest_cpus,
)
from livesize.runtime.libvirt.guest_channel import GuestChannel
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.link import DomainEvent, Link
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import PodFolder, Started, VmRecord
from livesize.runtime.libvirt.watching import Asking, Pulse, Throttle, may_hold
from livesize.runtime.process.container import UNKNOWN_EXIT_CODE
from livesize.runtime.process.processes import (
    ProcessWatch,
    open_process,
    read_start_ticks,
    signal_process,
    started_at_ticks,
)
from livesize.runtime.process.records import Outcome
from livesize.runtime.vm import Accelerator, GuestView, VmView
from livesize.runtime.vm_config import VmConfig

log = get_logger("vm")

_KILLED_CODE = 137
_KILL_SECONDS = 30.0
_PROCESSES = 4096  # threads of one QEMU
BURST_US = 20_000
"""The quota is the vCPUs'. While one of them works without pause, QEMU's own threads, which plug a
device in or bring a console's words out, would have the whole guest stand still for the rest of a
period of 100 ms: they may use what it left unused before, at most 2 % over a second of one vCPU."""
_SHUTDOWN_EVENT = 6  # of LIFECYCLE; its detail says who asked
_BY_HOST = 2
_MEMORY_MOVED = "MEMORY_DEVICE_SIZE_CHANGE"
_ROOM_ROUNDS = 5  # of a second or two; one or two are enough
_LAST_WORDS_SECONDS = 0.3  # libvirt's event may come after the end of the process
_ANSWER_SECONDS = 2.0
_FIRST_ANSWER_SECONDS = 0.5
_SILENT_ANSWER_SECONDS = 0.05
_ENDING_SECONDS = 1.0
_FIRST_LOOK_SECONDS = 0.02
_LAST_LOOK_SECONDS = 0.25
_GATHER_SECONDS = 0.02
_DROPPED_SECONDS = 10.0
_TELL_SECONDS = 0.2  # a guest may change its mind as often as it likes; who waits hears at once
_GATHERED = 8  # it says more than one thing at a time: a word for each part of its memory

T = TypeVar("T")


class Surroundings(msgspec.Struct, frozen=True):
    """What all VMs of one runtime share."""

    link: Link
    daemon: Daemon
    groups: PodGroups
    clock: Clock
    points: CrashPoints
    accelerator: Accelerator
    on_change: Callable[[str], None]  # told the pod's uid
    node_uid: str = ""


class Vm:
    def __init__(
        self, record: VmRecord, folder: PodFolder, around: Surroundings, owner: VmOwner
    ) -> None:
        config = record.config
        assert config.vm is not None
        self.record = record
        self.size: VmConfig = config.vm
        self.uid = config.pod_uid
        self.group = ContainerGroup(config.pod_uid, VM_NAME)
        self.ended = asyncio.Event()
        self._folder = folder
        self._around = around
        self._owner = owner
        self._files = VmFiles(around.daemon, self.uid, owner)
        limits = GuestLimits(config.vm.max_vcpus, config.vm.max_memory_bytes)
        self._limits = limits
        self.identity = DomainIdentity(self.size.uid or self.uid, self.uid)
        self._domain = Domain(around.link, self.identity, limits)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"livesize-vm-{self.uid[:8]}")
        self._channel = GuestChannel(limits, self._reported, self._hung_up, self._drop)
        self._pulse = Pulse()
        self._telling = Throttle(_TELL_SECONDS, lambda: around.on_change(self.uid))
        self._started: Started | None = None
        self._outcome: Outcome | None = None
        self._watch: ProcessWatch | None = None
        self._reading: DomainReading | None = None
        self._guest: GuestView | None = None
        self._dropped = ""
        self._dropped_at = -_DROPPED_SECONDS
        self._said = 0  # how often the guest has spoken, or kept silent when it was asked
        self._read_at = 0.0
        self._powered_off = False
        self._killed = False
        self._is_reading = False
        self._reads_again = False
        self._waiting = 0  # how many wait for something of it, and look by themselves
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        return self._started is not None and self._outcome is None

    # What there is.

    @property
    def console(self) -> Path:
        """The file that it is written to."""
        return self._files.log(self.record.config.attempt)

    def container_view(self) -> ContainerView:
        config, outcome, started = self.record.config, self._outcome, self._started
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
        """As read last; None before the first reading."""
        reading = self._reading
        if reading is None:
            return None
        live, is_running = reading.live, reading.is_running and self.is_running
        return VmView(
            pod_uid=self.uid,
            running=is_running,
            accelerator=live.accelerator,
            max_vcpus=live.max_vcpus,
            plugged_vcpus=live.vcpus,
            persistent_vcpus=reading.persistent.vcpus,
            boot_memory_bytes=live.boot_memory_bytes,
            max_memory_bytes=min(self.size.max_memory_bytes, live.max_memory_bytes),
            devices=live.devices,
            persistent_devices=reading.persistent.devices,
            guest=self._guest if is_running else None,
            note=live.note,
            read_at=self._read_at,
            pins=live.pins.of(live.vcpus),
            persistent_pins=reading.persistent.pins.of(live.vcpus),
            keeps_memory=self._keeps_memory(),
            dropped=self._dropped,
        )

    # Starting, and finding again.

    async def start(self) -> None:
        """Define, start paused, into the group, run. Either all of it or nothing."""
        points = self._around.points
        try:
            boot = await self._run(self._files.prepare, self.size, self.record.config.attempt)
            console = self._around.daemon.inside(self.console)
            model = msgspec.structs.replace(
                compose_domain(self.identity, self.size, boot, console, self._around.accelerator),
                owner=self._owner,
                node_uid=self._around.node_uid,
            )
            self._around.groups.make(self.group, self.record.config.limits)
            self._around.groups.limit_processes(self.group, _PROCESSES)
            self._around.groups.allow_burst(self.group, BURST_US)
            self._around.groups.bind(self.group, self.record.config.cpus)
            points.reach("vm-start/group")
            await self._run(self._domain.start_paused, model)
            points.reach("vm-start/paused")
            self._take_process(self._qemu_pid())
            points.reach("vm-start/joined")
            await self._release()
            points.reach("vm-start/running")
        except BaseException:
            await self._abandon()
            raise
        await self.look(ask_guest=False)

    def attach(self, boot_id: str) -> None:
        """Find out from files and /proc what became of it, and watch it if it lives."""
        self._started, self._outcome = self._folder.started(), self._folder.outcome()
        if self._outcome is not None:
            self.ended.set()
            return
        assert self._started is not None
        pid = self._started.pid
        is_same = started_at_ticks(self._started.start_ticks)
        descriptor = open_process(pid, is_same) if self.record.boot_id == boot_id else None
        if descriptor is None:
            self._finish()
        else:
            self._watch = ProcessWatch(pid, descriptor, self._qemu_ended)

    async def reconnect(self) -> None:
        """After ``attach``, or when libvirtd has been started again."""
        if not self.is_running:
            return
        await self._release()
        if self._around.accelerator is Accelerator.TCG:
            await self._run(self._domain.split_code, False)  # an agent may have died over it
        await self.refresh()

    def learn_end(self, *, powered_off: bool) -> None:
        """libvirt still knew how a VM ended that nobody watched."""
        if powered_off and self._outcome is not None:
            self._outcome = msgspec.structs.replace(self._outcome, exit_code=0)
            self._folder.save_outcome(self._outcome)

    # Reading and changing.

    async def refresh(self) -> VmView:
        return await self.look(ask_guest=True)

    @property
    def _speaks_up(self) -> bool:
        """It has a line of its own, and says on it what changes."""
        return self._channel.last is not None and not self._channel.is_silent

    async def look(self, *, ask_guest: bool) -> VmView:
        """Read the domain, and ask the guest too or keep what it said last."""
        self._require_running()
        try:
            reading = await self._run(self._domain.read)
        except RuntimeCallError:
            # A QEMU on its way out answers in many ways; that it ends is the one that counts.
            await self._ends_within(_ENDING_SECONDS)
            self._require_running()
            raise
        self._require_running()  # it may have ended, or been let go, meanwhile
        if not self._channel.is_open:
            self._open_channel(reading)
        if ask_guest:
            self._guest = await self._ask_guest(reading)
            self._said += 1
        return self._take(reading)

    async def change(self, change: VmChange) -> None:
        self._require_running()
        if self._reading is None:
            await self.look(ask_guest=False)
        assert self._reading is not None
        if isinstance(change, PlugVcpus):
            correct = await self._plug(change)
        elif isinstance(change, OnlineMemory):
            await self._online_memory()
            return
        else:
            correct = await self._run(self._domain.change, change, self._reading.live)
        self._reading = correct(self._reading)
        self._pulse.beat()

    async def wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        """Looks again, less and less often, because a domain's memory moves without a word for
        up to a second. What the guest said before this began is not relied on. To look takes the
        domain's time: one whose guest speaks up is looked at when it has said what is waited for,
        or now and then."""
        self._waiting += 1
        try:
            return await self._wait(holds, timeout_seconds)
        finally:
            self._waiting -= 1

    async def _wait(self, holds: Callable[[VmView], bool], timeout_seconds: float) -> VmView:
        clock = self._around.clock
        looked_at = now = clock.monotonic()
        deadline, pause_seconds, said = now + timeout_seconds, _FIRST_LOOK_SECONDS, self._said
        asking = Asking(speaks_up=self._speaks_up, now=now)
        if self._speaks_up and self._reading is not None:
            view, pause_seconds = self._last_view(), _LAST_LOOK_SECONDS
        else:
            view = await self.look(ask_guest=not self._speaks_up)
        while (left := deadline - clock.monotonic()) > 0:
            if holds(view):
                if self._said != said:
                    return view
                asks = True
            else:
                asks = False
                if await self._pulse.wait(min(pause_seconds, left)):
                    await self._pulse.rest(_GATHER_SECONDS, _GATHERED)
                    asking.spoke(clock.monotonic())
                    is_recent = clock.monotonic() - looked_at < _LAST_LOOK_SECONDS
                    if is_recent and self._speaks_up and not may_hold(holds, self._last_view()):
                        view = self._last_view()
                        continue
                else:
                    pause_seconds = min(pause_seconds * 1.5, _LAST_LOOK_SECONDS)
                    asks = asking.is_due(settled=_is_settled(view), now=clock.monotonic())
            view, looked_at = await self.look(ask_guest=asks), clock.monotonic()
        return view

    # Ending.

    async def stop(self, grace_seconds: float) -> None:
        if self.is_running and grace_seconds > 0:
            with contextlib.suppress(TimeoutError):  # then it is ended the hard way
                async with asyncio.timeout(grace_seconds):
                    with contextlib.suppress(RuntimeCallError):
                        await self._shut_down()
                    await self.ended.wait()
        if self.is_running:
            self._killed = True
            self._kill()
            if not await self._ends_within(_KILL_SECONDS):
                raise RuntimeCallError(
                    f"the VM of pod {self.uid} did not end within {_KILL_SECONDS:.0f} s of SIGKILL;"
                    " it may hang in the kernel"
                )
        await self._around.groups.remove(self.group)

    async def forget(self) -> None:
        """Remove the domain and every file."""
        await self._run(self._domain.forget)
        await self._run(self._files.remove)

    async def was_shut_down(self) -> bool:
        return await self._run(self._domain.was_shut_down)

    def heard(self, event: DomainEvent) -> None:
        """libvirt told something of this domain."""
        if event.kind == "LIFECYCLE" and event.number == _SHUTDOWN_EVENT:
            self._powered_off = event.detail != _BY_HOST
        if event.kind == _MEMORY_MOVED and self._waiting and self._speaks_up:
            return  # the guest says it too, and is left in peace until then
        if self._is_reading:
            self._reads_again = True  # what is being read may be from before the event
        elif self.is_running and not self._is_closed:
            self._is_reading = True
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._thread, self._domain.read)
            future.add_done_callback(functools.partial(self._read_in_passing, event))

    def close(self) -> None:
        """Let go of it; it goes on."""
        self._is_closed = True
        self._channel.close()
        self._telling.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    # Inside.

    def _require_running(self) -> None:
        if not self.is_running or self._is_closed:
            raise GoneError(f"the VM of pod {self.uid} does not run")

    async def _plug(self, change: PlugVcpus) -> Correction:
        """vCPUs are counted before they are made: after a crash rather too many than too few."""
        assert self._reading is not None
        assert self._started is not None
        live, created = self._reading.live, self._started.vcpus_created
        plugged = await self._run(self._domain.plugged_vcpus)
        added = max(min(change.count, live.max_vcpus) - plugged, 0)
        if live.accelerator is Accelerator.TCG and added:
            check_creations(created + added, live.max_vcpus)
            await self._check_room(plugged, added, live.max_vcpus)
        self._note_creations(created + added)
        try:
            return await self._run(self._domain.change, change)
        except RuntimeCallError:
            after = await self.look(ask_guest=False)
            self._note_creations(created + max(after.plugged_vcpus - plugged, 0))
            raise

    async def _check_room(self, plugged: int, added: int, max_vcpus: int) -> None:
        """QEMU is asked only where it cannot be seen from outside that there is room."""
        assert self._started is not None
        untouched = untouched_regions(self._started.pid)
        if untouched is not None and untouched >= plugged + added:
            return
        for left in range(_ROOM_ROUNDS, -1, -1):
            jit = await self._run(self._domain.info_jit)
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
        if not await self._run(self._domain.split_code, True):
            return False
        try:
            await self._channel.ask(_ANSWER_SECONDS)
            with contextlib.suppress(RuntimeCallError):
                await self._run(self._domain.ask_agent)
        finally:
            await self._run(self._domain.split_code, False)
        return True

    async def _online_memory(self) -> None:
        is_movable = await self._run(self._domain.online_memory)
        guest, started = self._guest, self._started
        if not is_movable and guest is not None and started is not None:
            self._started = msgspec.structs.replace(started, kept_memory_boot=guest.boot_id)
            self._folder.save_started(self._started)
        self._pulse.beat()

    def _keeps_memory(self) -> bool:
        guest, started = self._guest, self._started
        return bool(guest and started and started.kept_memory_boot == guest.boot_id)

    def _note_creations(self, created: int) -> None:
        if self._started is not None and created != self._started.vcpus_created:
            self._started = msgspec.structs.replace(self._started, vcpus_created=created)
            self._folder.save_started(self._started)

    def _take(self, reading: DomainReading) -> VmView:
        self._reading, self._read_at = reading, self._around.clock.now()
        return self._last_view()

    def _last_view(self) -> VmView:
        view = self.view()
        assert view is not None
        return view

    def _read_in_passing(self, event: DomainEvent, future: asyncio.Future[DomainReading]) -> None:
        self._is_reading = False
        again, self._reads_again = self._reads_again, False
        if future.cancelled() or future.exception() is not None or self._is_closed:
            return
        self._take(future.result())
        self._tell()
        if again:
            self.heard(event)

    def _qemu_pid(self) -> int:
        path = self._around.daemon.root / "run" / "qemu" / f"{self.identity.name}.pid"
        try:
            return int(path.read_text())
        except (OSError, ValueError) as failure:
            raise RuntimeCallError(f"QEMU of pod {self.uid} was started and is gone") from failure

    async def _release(self) -> None:
        """Once: a guest that somebody else has paused stays so."""
        assert self._started is not None
        await self._run(self._domain.bound_agent)
        if not self._started.is_released:
            if self.size.pins != UNPINNED:
                # Linux before 6.2 forgets what a thread is pinned to when it joins a group.
                await self._run(self._domain.change, PinVcpus(self.size.pins))
            await self._run(self._domain.release)
            self._started = msgspec.structs.replace(self._started, is_released=True)
            self._folder.save_started(self._started)

    def _set_oom_score(self, pid: int) -> None:
        score = self.record.config.oom_score_adj
        if score is None:
            return
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))
        except PermissionError as failure:
            # Below zero it takes CAP_SYS_RESOURCE, which root in a container may not have.
            log.warning("oom score not set", pod=self.uid, score=score, reason=failure.strerror)

    def _take_process(self, pid: int) -> None:
        ticks = read_start_ticks(pid)
        if ticks is None:
            raise RuntimeCallError(f"QEMU of pod {self.uid} was started and is gone")
        self._around.groups.join(self.group, pid)
        self._set_oom_score(pid)
        started = Started(pid, ticks, self._around.clock.now(), self.size.vcpus)
        descriptor = open_process(pid, started_at_ticks(ticks))
        if descriptor is None:
            raise RuntimeCallError(f"QEMU of pod {self.uid} was started and is gone")
        self._watch = ProcessWatch(pid, descriptor, self._qemu_ended)
        self._folder.save_started(started)
        self._started = started

    async def _abandon(self) -> None:
        """A start that failed, or was cut off, leaves nothing that runs. libvirt may be in the
        middle of starting it: that is waited for, or it would come up after all."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._around.groups.kill(self.group)
        self._started = None
        self._folder.forget_start()
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            loop = asyncio.get_running_loop()
            await asyncio.shield(loop.run_in_executor(self._thread, self._destroy_quietly))

    def _destroy_quietly(self) -> None:
        with contextlib.suppress(RuntimeCallError):
            self._domain.destroy()

    def _open_channel(self, reading: DomainReading) -> None:
        path = reading.live.channels.get(CHANNEL, "")
        if path:
            with contextlib.suppress(OSError):  # QEMU has just ended, or somebody else listens
                self._channel.open(self._around.daemon.outside(path))

    async def _ask_guest(self, reading: DomainReading) -> GuestView | None:
        """Through our own line where the guest has one, else through its agent."""
        has_agent = reading.live.agent_connected
        report = await self._channel.ask(self._patience())
        if report is not None:
            return _guest_view(report, self._limits, agent=has_agent)
        if self._channel.last is None and has_agent:
            try:
                told = await self._run(self._domain.ask_agent)
            except UnfitWordsError as unfit:
                self._drop(str(unfit))
            else:
                self._dropped = "" if told is not None else self._dropped
                return told
        return None

    def _drop(self, why: str) -> None:
        """The guest said what cannot be: nothing of it is believed. It decides how often it does
        that, and not how often we say so."""
        self._guest = None
        now = self._around.clock.monotonic()
        if now - self._dropped_at >= _DROPPED_SECONDS:
            self._dropped_at, self._dropped = now, why
            log.warning("a guest's word is dropped", pod=self.uid, why=why)
            self._tell()
        elif not self._dropped:
            self._dropped = why

    def _patience(self) -> float:
        if self._channel.is_silent:
            return _SILENT_ANSWER_SECONDS
        return _FIRST_ANSWER_SECONDS if self._channel.last is None else _ANSWER_SECONDS

    def _reported(self, report: GuestReport) -> None:
        agent = self._reading is not None and self._reading.live.agent_connected
        before, self._guest = self._guest, _guest_view(report, self._limits, agent=agent)
        self._dropped = ""
        self._said += 1
        if before is None or _shape(before) != _shape(self._guest):
            self._telling.soon()
        self._pulse.beat()

    def _hung_up(self) -> None:
        self._guest = None

    def _tell(self) -> None:
        self._pulse.beat()
        self._around.on_change(self.uid)

    async def _shut_down(self) -> None:
        reading = await self._run(self._domain.read)
        by_agent = reading.live.agent_connected
        await self._run(lambda: self._domain.shut_down(by_agent=by_agent))

    def _kill(self) -> None:
        """QEMU at once; libvirt, where it can be reached, tidies up behind it."""
        if self._started is not None:
            ticks = started_at_ticks(self._started.start_ticks)
            signal_process(self._started.pid, ticks, signal.SIGKILL)

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def _qemu_ended(self) -> None:
        self._watch = None
        if self._powered_off or self._killed:
            self._finish()
        else:
            asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._finish)

    def _finish(self) -> None:
        if self._outcome is not None:
            return
        oom_killed = not self._powered_off and self._around.groups.oom_kills(self.group) > 0
        code = 0 if self._powered_off else UNKNOWN_EXIT_CODE
        if not self._powered_off and (oom_killed or self._killed):
            code = _KILLED_CODE
        self._outcome = Outcome(code, self._around.clock.now(), oom_killed)
        self._folder.save_outcome(self._outcome)
        self._channel.close()
        self._around.groups.kill(self.group)
        self.ended.set()
        log.info("VM ended", pod=self.uid, code=code)
        self._tell()

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)


def _guest_view(report: GuestReport, limits: GuestLimits, *, agent: bool) -> GuestView:
    """Of a report that fits."""
    return GuestView(
        boot_id=report.boot_id,
        uptime_seconds=report.uptime,
        vcpus_online=len(guest_cpus(report.online, limits)),
        memory_seen_bytes=report.mem_total * 1024,
        memory_available_bytes=report.available * 1024,
        agent=agent,
    )


def _shape(guest: GuestView) -> tuple[str, int, int, bool]:
    """What is worth telling when it changes."""
    return guest.boot_id, guest.vcpus_online, guest.memory_seen_bytes, guest.agent


def _is_settled(view: VmView) -> bool:
    return view.plugged_memory_bytes == view.requested_memory_bytes
