"""One start of one container, as this agent sees it: running or ended, and how it is told apart.

    files say outcome ──────────────► ended
    files say exit status ──────────► ended, outcome noted now
    shim lives ─────────────────────► running; the shim's end is the container's
    shim gone, workload lives ──────► running; the workload's end is the container's
    nobody lives, or another boot ──► ended, status unknown

The outcome is noted in a file before anything is cleaned up, so an agent killed in between finds
the same outcome again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.interface import ContainerPhase, ContainerView, RuntimeCallError
from livesize.runtime.process.processes import (
    ProcessWatch,
    has_argument,
    open_process,
    signal_process,
    started_at_ticks,
)
from livesize.runtime.process.records import (
    ContainerAttempt,
    ContainerExit,
    ContainerRecord,
    WorkloadPid,
)

log = get_logger("runtime.process")

UNKNOWN_EXIT_CODE = 255  # it ended and nobody saw how


class ProcessContainer:
    def __init__(
        self,
        attempt: ContainerAttempt,
        record: ContainerRecord,
        group: str,
        cgroups: CgroupDriver,
        clock: Clock,
    ) -> None:
        self.attempt = attempt
        self.record = record
        self.group = group
        self.ended = asyncio.Event()
        self.on_end: Callable[[ProcessContainer], None] = lambda _: None
        self._cgroups = cgroups
        self._clock = clock
        self._outcome: ContainerExit | None = None
        self._watch: ProcessWatch | None = None
        self._workload: WorkloadPid | None = None
        self._before_boot = False

    @property
    def is_running(self) -> bool:
        return self._outcome is None

    def attach(self, boot_id: str) -> None:
        """Find out from files and /proc what became of it, and watch it if it lives."""
        noted = self.attempt.outcome()
        self._before_boot = self.record.boot_id != boot_id
        if noted is not None:
            self._outcome = noted
            self.ended.set()
        elif self._before_boot:
            self._note(ContainerExit(UNKNOWN_EXIT_CODE, self._clock.now(), oom_killed=False))
        elif not self._watch_shim() and not self._watch_workload():
            self._finish()

    def watch_child(self, shim_pid: int) -> None:
        """Just spawned: it is our child, so the pid cannot have been given away."""
        self._watch = ProcessWatch(shim_pid, os.pidfd_open(shim_pid), self._shim_ended)

    def view(self) -> ContainerView:
        config, workload, outcome = self.record.config, self._known_workload(), self._outcome
        return ContainerView(
            id=self.record.id,
            pod_uid=config.pod_uid,
            name=config.name,
            phase=ContainerPhase.RUNNING if outcome is None else ContainerPhase.EXITED,
            attempt=config.attempt,
            image=config.image,
            image_id=self.record.image_id,
            hash=config.hash,
            hash_without_resources=config.hash_without_resources,
            pid=workload.pid if workload else 0,
            started_at=workload.started_at if workload else self.record.created_at,
            finished_at=outcome.finished_at if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
            oom_killed=outcome.oom_killed if outcome else False,
            log_path=str(self.attempt.log),
            note=self.record.note,
            before_boot=self._before_boot,
        )

    def terminate(self) -> None:
        """SIGTERM to the workload's first process."""
        self._signal_workload(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all of it; the shim is spared, so that it can note the status."""
        if not self._signal_workload(signal.SIGKILL):
            self._kill_shim()
        self._cgroups.kill(self.group)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _known_workload(self) -> WorkloadPid | None:
        """Written once, a moment after the start; read until it is there."""
        if self._workload is None:
            self._workload = self.attempt.workload()
        return self._workload

    def _signal_workload(self, number: signal.Signals) -> bool:
        """False: there is none (yet)."""
        workload = self._known_workload()
        if workload is None:
            return False
        return signal_process(workload.pid, started_at_ticks(workload.start_ticks), number)

    def _kill_shim(self) -> None:
        """A start that hangs before there is a workload: end the shim's whole session."""
        if self._watch is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._watch.pid, signal.SIGKILL)

    def _watch_shim(self) -> bool:
        pid = self.attempt.shim_pid()
        if pid is None:
            return False
        descriptor = open_process(pid, has_argument(str(self.attempt.folder)))
        if descriptor is None:
            return False
        self._watch = ProcessWatch(pid, descriptor, self._shim_ended)
        return True

    def _watch_workload(self) -> bool:
        """Somebody killed the shim: the workload goes on, but its status will be unknown."""
        workload = self._known_workload()
        if workload is None:
            return False
        descriptor = open_process(workload.pid, started_at_ticks(workload.start_ticks))
        if descriptor is None:
            return False
        self._watch = ProcessWatch(workload.pid, descriptor, self._finish)
        return True

    def _shim_ended(self) -> None:
        if self.attempt.exit_status() is not None or not self._watch_workload():
            self._finish()

    def _finish(self) -> None:
        self._watch = None
        status = self.attempt.exit_status()
        code, finished_at = status or (UNKNOWN_EXIT_CODE, self._clock.now())
        self._note(ContainerExit(code, finished_at, oom_killed=code != 0 and self._oom_kills() > 0))

    def _note(self, outcome: ContainerExit) -> None:
        if self.attempt.folder.is_dir():
            try:
                self.attempt.save_outcome(outcome)
            except OSError as failure:  # a full disk; the next agent finds out by itself
                log.warning("end not noted", container=self.record.id, reason=str(failure))
        self._outcome = outcome
        with contextlib.suppress(RuntimeCallError):  # not drained yet: stop and start ask again
            self._cgroups.kill(self.group)
            self._cgroups.remove(self.group)
        self.attempt.remove_tree()
        self.ended.set()
        self.on_end(self)

    def _oom_kills(self) -> int:
        try:
            return self._cgroups.oom_kills(self.group)
        except RuntimeCallError:
            return 0
