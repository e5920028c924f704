"""Starts one container as processes of this machine: its files, its group, the shim, the launcher.

Killed between any two of its actions, it leaves what the next start, or the next ``open`` of the
runtime, clears away: crash points start/record, group, limits, launch-config, spawned, started.
"""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import os
import platform
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig, ContainerGroup, RuntimeCallError
from livesize.runtime.process.container import ProcessContainer
from livesize.runtime.process.interpreter import Interpreter
from livesize.runtime.process.launch_config import LaunchPaths, own_groups, plan_launch
from livesize.runtime.process.machine_facts import boot_id
from livesize.runtime.process.records import (
    ContainerAttempt,
    ContainerRecord,
    ProcessRecords,
    write_whole,
)
from livesize.runtime.process.shim import LaunchReport, ReadyChannel, compile_launcher, spawn_shim
from livesize.runtime.streams import LogLimits

KILL_SECONDS = 30.0


class ProcessSettings(msgspec.Struct, frozen=True):
    pids_max: int = 4096  # processes and threads of one container
    start_timeout_seconds: float = 30.0
    points: CrashPoints = NO_CRASH_POINTS
    logs: LogLimits = LogLimits()
    rootless: bool = False  # we are root of a user namespace only


DEFAULT_SETTINGS = ProcessSettings()


class ContainerStarter:
    def __init__(
        self, records: ProcessRecords, groups: PodGroups, clock: Clock, settings: ProcessSettings
    ) -> None:
        self._records = records
        self._groups = groups
        self._clock = clock
        self._settings = settings
        self._launcher = Path()
        self.interpreter = Interpreter()
        self.boot_id = boot_id()

    def open(self) -> None:
        self._launcher = compile_launcher(self._records.state_dir)
        self.interpreter.open()

    def close(self) -> None:
        self.interpreter.close()

    def container(self, attempt: ContainerAttempt, record: ContainerRecord) -> ProcessContainer:
        group = ContainerGroup(record.config.pod_uid, record.config.name)
        path = self._groups.path(group)
        return ProcessContainer(attempt, record, path, self._groups.cgroups, self._clock)

    async def start(self, config: ContainerConfig, image: Image) -> ProcessContainer:
        """It runs, or has run; where it could not even begin, nothing of it is left."""
        container = await self._prepare(config, image)
        try:
            report = await self._launch(container, config)
        except BaseException:
            container.kill()
            container.close()
            container.attempt.remove()  # its group goes with the next start, or with the pod
            raise
        if not report.started:
            raise await self._start_failed(container, report)
        if report.notes:
            note = "; ".join(report.notes)
            container.record = msgspec.structs.replace(container.record, note=note)
            container.attempt.save_note(container.record)
        return container

    async def _prepare(self, config: ContainerConfig, image: Image) -> ProcessContainer:
        """Files and group of one start; nothing runs yet."""
        points = self._settings.points
        attempt = self._records.attempt(config.pod_uid, config.name, config.attempt)
        record = self._record(config, image)
        container = self.container(attempt, record)
        await self._groups.remove_path(container.group)  # of the start before, with its counters
        attempt.remove()
        try:
            attempt.make(record)
            if config.stdin:
                os.mkfifo(attempt.stdin, 0o600)
            points.reach("start/record")
            self._groups.cgroups.make(container.group)
            points.reach("start/group")
            self._groups.cgroups.write_pids(container.group, self._settings.pids_max)
            self._groups.set_limits(container.group, config.limits)
            if config.cpus:
                self._groups.cgroups.write_cpus(container.group, config.cpus)
            else:
                self._groups.cgroups.show_cpus(container.group)
            points.reach("start/limits")
            self._write_launch(attempt, config, image, container.group)
            points.reach("start/launch-config")
        except (RuntimeCallError, OSError):
            attempt.remove()
            self._groups.cgroups.remove(container.group)
            raise
        return container

    def _record(self, config: ContainerConfig, image: Image) -> ContainerRecord:
        now = self._clock.now()
        name = f"{config.pod_uid}/{config.name}/{config.attempt}/{now}"
        return ContainerRecord(
            id=hashlib.sha256(name.encode()).hexdigest(),
            config=config,
            image_id=image.id,
            boot_id=self.boot_id,
            created_at=now,
        )

    def _write_launch(
        self, attempt: ContainerAttempt, config: ContainerConfig, image: Image, group: str
    ) -> None:
        join = self._groups.cgroups.join_files(group)
        paths = LaunchPaths(
            ready=attempt.path("ready"),
            pid_file=attempt.path("pid"),
            upper=attempt.path("upper"),
            work=attempt.path("work"),
            root=attempt.path("root"),
            join=join,
            own_groups=own_groups(join, group, self._groups.cgroups.version),
            rootless=self._settings.rootless,
        )
        launch = plan_launch(config, image, paths, _resolv_conf(), platform.machine())
        if not launch["argv"]:
            raise RuntimeCallError(f"image {config.image} has no command, and neither has the pod")
        write_whole(attempt.launch, marshal.dumps(launch))

    async def _launch(self, container: ProcessContainer, config: ContainerConfig) -> LaunchReport:
        channel = ReadyChannel(container.attempt.ready)
        try:
            pid = spawn_shim(container.attempt, self._launcher, self.interpreter)
            self._settings.points.reach("start/spawned")
            container.on_end = lambda _: channel.shim_ended()
            container.watch_child(pid)
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                report = await channel.report()
        except TimeoutError as failure:
            raise RuntimeCallError(
                f"container {config.name} of pod {config.pod_uid} did not start within"
                f" {self._settings.start_timeout_seconds:.0f} s"
            ) from failure
        finally:
            channel.close()
        self._settings.points.reach("start/started")
        return report

    async def _start_failed(
        self, container: ProcessContainer, report: LaunchReport
    ) -> RuntimeCallError:
        """Clear everything away; the sentence says why."""
        config = container.record.config
        why = report.error or _last_words(container.attempt.log)
        if not await ends_within(container, 1.0):
            container.kill()
            await ends_within(container, KILL_SECONDS)
        container.close()
        await self._groups.remove_path(container.group)
        container.attempt.remove()
        return RuntimeCallError(
            f"cannot start container {config.name} of pod {config.pod_uid}: {why}"
        )


async def ends_within(container: ProcessContainer, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await container.ended.wait()
    except TimeoutError:
        return False
    return True


def _resolv_conf() -> str:
    try:
        return Path("/etc/resolv.conf").read_text()
    except OSError:
        return ""


def _last_words(log: Path) -> str:
    """What unshare or the shell wrote before they gave up."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it ended before it began, without a word"
