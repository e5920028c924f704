"""The life of one VM: how its QEMU is started, found again, stopped, and how it ended.

    files say outcome ───────────────────► ended
    QEMU lives ──────────────────────────► running; the end of QEMU is the VM's
    QEMU gone, or another boot ──────────► ended; libvirt may still know how

Whether it runs is learned from QEMU's process, which needs no libvirtd.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import PinVcpus, TuneCpu, VmTune
from livesize.api.vm_pins import UNPINNED
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import ContainerGroup, GoneError, RuntimeCallError
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.domain import Domain
from livesize.runtime.libvirt.environment import VmEnvironment, VmThread
from livesize.runtime.libvirt.files import VmFiles
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.outstanding import BalloonRequest
from livesize.runtime.libvirt.owners import VmOwner
from livesize.runtime.libvirt.records import PodFolder, StartedVm, VmRecord
from livesize.runtime.process.container import UNKNOWN_EXIT_CODE
from livesize.runtime.process.processes import (
    ProcessWatch,
    open_process,
    read_start_ticks,
    signal_process,
    started_at_ticks,
)
from livesize.runtime.process.records import ContainerExit

log = get_logger("vm")

_KILLED_CODE = 137
_KILL_SECONDS = 30.0
_PROCESSES = 4096  # threads of one QEMU
BURST_US = 20_000
"""The quota is the vCPUs'. While one of them works without pause, QEMU's own threads, which plug a
device in or bring a console's words out, would have the whole guest stand still for the rest of a
period of 100 ms: they may use what it left unused before, at most 2 % over a second of one vCPU."""
_LAST_WORDS_SECONDS = 0.3  # libvirt's event may come after the end of the process


class VmLifecycle:
    """``on_end`` is called when QEMU has ended."""

    def __init__(
        self,
        record: VmRecord,
        folder: PodFolder,
        environment: VmEnvironment,
        owner: VmOwner,
        domain: Domain,
        thread: VmThread,
    ) -> None:
        config = record.config
        assert config.vm is not None
        self.record = record
        self.uid = config.pod_uid
        self.group = ContainerGroup(config.pod_uid, VM_NAME)
        self.ended = asyncio.Event()
        self.started: StartedVm | None = None
        self.outcome: ContainerExit | None = None
        self.on_end: Callable[[], None] = self.ended.set
        self._size = config.vm
        self._folder = folder
        self._environment = environment
        self._owner = owner
        self._domain = domain
        self._thread = thread
        self._files = VmFiles(environment.daemon, self.uid, owner)
        self._watch: ProcessWatch | None = None
        self._powered_off = False
        self._killed = False
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.outcome is None

    @property
    def console(self) -> Path:
        """The file that it is written to."""
        return self._files.log(self.record.config.attempt)

    def require_running(self) -> None:
        if not self.is_running or self._is_closed:
            raise GoneError(f"the VM of pod {self.uid} does not run")

    async def ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Let go of it; it goes on."""
        self._is_closed = True
        self._unwatch()

    # Starting, and finding again.

    async def start(self, identity: DomainIdentity) -> None:
        """Define, start paused, into the group, run. Either all of it or nothing."""
        environment, points = self._environment, self._environment.points
        try:
            boot = await self._thread.run(
                self._files.prepare, self._size, self.record.config.attempt
            )
            console = environment.daemon.namespace_path(self.console)
            model = msgspec.structs.replace(
                compose_domain(identity, self._size, boot, console, environment.accelerator),
                owner=self._owner,
                node_uid=environment.node_uid,
            )
            environment.groups.make(self.group, self.record.config.limits)
            environment.groups.limit_processes(self.group, _PROCESSES)
            environment.groups.allow_burst(self.group, BURST_US)
            environment.groups.bind(self.group, self.record.config.cpus)
            points.reach("vm-start/group")
            await self._thread.run(self._domain.start_paused, model)
            points.reach("vm-start/paused")
            self._take_process(self._qemu_pid(identity))
            points.reach("vm-start/joined")
            await self.release()
            points.reach("vm-start/running")
        except BaseException:
            await self._abandon()
            raise

    def attach(self, boot_id: str) -> None:
        """Find out from files and /proc what became of it, and watch it if it lives."""
        self.started, self.outcome = self._folder.started(), self._folder.outcome()
        if self.outcome is not None:
            self.ended.set()
            return
        assert self.started is not None
        pid = self.started.pid
        is_same = started_at_ticks(self.started.start_ticks)
        descriptor = open_process(pid, is_same) if self.record.boot_id == boot_id else None
        if descriptor is None:
            self._finish()
        else:
            self._watch = ProcessWatch(pid, descriptor, self._qemu_ended)

    async def release(self) -> None:
        """Once: a guest that another program has paused stays so."""
        assert self.started is not None
        await self._thread.run(self._domain.limit_agent_calls)
        if not self.started.is_released:
            if self._size.pins != UNPINNED:
                # Linux before 6.2 forgets what a thread is pinned to when it joins a group.
                await self._thread.run(self._domain.change, PinVcpus(self._size.pins))
            if self._size.tune != VmTune():
                # libvirt starts no domain that has it: it has no controller to do it with.
                await self._thread.run(self._domain.change, TuneCpu(self._size.tune))
            await self._thread.run(self._domain.release)
            self.note_start(is_released=True)

    def note_start(self, **changes: object) -> None:
        """Of this QEMU's life, in the file that outlives the agent."""
        assert self.started is not None
        noted = msgspec.structs.replace(self.started, **changes)
        if noted != self.started:
            self.started = noted
            self._folder.save_started(noted)

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
            if not await self.ends_within(_KILL_SECONDS):
                raise RuntimeCallError(
                    f"the VM of pod {self.uid} did not end within {_KILL_SECONDS:.0f} s of SIGKILL;"
                    " it may hang in the kernel"
                )
        await self._environment.groups.remove(self.group)

    async def forget(self) -> None:
        """Remove the domain and every file."""
        await self._thread.run(self._domain.forget)
        await self._thread.run(self._files.remove)

    def shutting_down(self, *, by_host: bool) -> None:
        """libvirt reports that it shuts down, and on whose request."""
        self._powered_off = not by_host

    async def learn_end(self) -> None:
        """Ask libvirt how a VM ended that no agent watched."""
        powered_off = await self._thread.run(self._domain.was_shut_down)
        if powered_off and self.outcome is not None:
            self.outcome = msgspec.structs.replace(self.outcome, exit_code=0)
            self._folder.save_outcome(self.outcome)

    # Inside.

    def _qemu_pid(self, identity: DomainIdentity) -> int:
        path = self._environment.daemon.root / "run" / "qemu" / f"{identity.name}.pid"
        try:
            return int(path.read_text())
        except (OSError, ValueError) as failure:
            raise self._gone_again() from failure

    def _take_process(self, pid: int) -> None:
        ticks = read_start_ticks(pid)
        if ticks is None:
            raise self._gone_again()
        self._environment.groups.join(self.group, pid)
        self._set_oom_score(pid)
        balloon_bytes = self._size.balloon_bytes
        started = StartedVm(
            pid,
            ticks,
            self._environment.clock.now(),
            self._size.vcpus,
            balloon=None if balloon_bytes is None else BalloonRequest(balloon_bytes),
        )
        descriptor = open_process(pid, started_at_ticks(ticks))
        if descriptor is None:
            raise self._gone_again()
        self._watch = ProcessWatch(pid, descriptor, self._qemu_ended)
        self._folder.save_started(started)
        self.started = started

    def _gone_again(self) -> RuntimeCallError:
        return RuntimeCallError(f"QEMU of pod {self.uid} was started and is gone")

    def _set_oom_score(self, pid: int) -> None:
        score = self.record.config.oom_score_adj
        if score is None:
            return
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))
        except PermissionError as failure:
            # Below zero it takes CAP_SYS_RESOURCE, which root in a container may not have.
            log.warning("oom score not set", pod=self.uid, score=score, reason=failure.strerror)

    async def _abandon(self) -> None:
        """A start that failed, or was cut off, leaves nothing that runs. libvirt may be in the
        middle of starting it: that is waited for, or it would come up after all."""
        self._unwatch()
        self._environment.groups.kill(self.group)
        self.started = None
        self._folder.forget_start()
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            await asyncio.shield(self._thread.begin(self._destroy_quietly))

    def _destroy_quietly(self) -> None:
        with contextlib.suppress(RuntimeCallError):
            self._domain.destroy()

    async def _shut_down(self) -> None:
        reading = await self._thread.run(self._domain.read)
        by_agent = reading.live.agent_connected
        await self._thread.run(lambda: self._domain.shut_down(by_agent=by_agent))

    def _kill(self) -> None:
        """QEMU at once; libvirt, where it can be reached, tidies up behind it."""
        if self.started is not None:
            ticks = started_at_ticks(self.started.start_ticks)
            signal_process(self.started.pid, ticks, signal.SIGKILL)

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _qemu_ended(self) -> None:
        self._watch = None
        if self._powered_off or self._killed:
            self._finish()
        else:
            asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._finish)

    def _finish(self) -> None:
        if self.outcome is not None:
            return
        groups = self._environment.groups
        oom_killed = not self._powered_off and groups.oom_kills(self.group) > 0
        code = 0 if self._powered_off else UNKNOWN_EXIT_CODE
        if not self._powered_off and (oom_killed or self._killed):
            code = _KILLED_CODE
        self.outcome = ContainerExit(code, self._environment.clock.now(), oom_killed)
        self._folder.save_outcome(self.outcome)
        groups.kill(self.group)
        self.ended.set()
        log.info("VM ended", pod=self.uid, code=code)
        self.on_end()
