"""Runs containers as processes of this machine: the embedded runtime, for quick starts.

It needs root, of the machine or of a user namespace (rootless/), busybox for the built-in image,
and ``unshare``; no daemon and no network. What it isolates stands in launch.py. It may be killed
between any two of its actions: each of them is either found again or cleaned away by the next
``open``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.context import Context
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import (
    CONTAINER_PREFIX,
    POD_PREFIX,
    CgroupDriver,
)
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.commands import run_to_end, with_variables
from livesize.runtime.events import EventFeed
from livesize.runtime.folder_lock import FolderLock
from livesize.runtime.images import ImageStore
from livesize.runtime.interface import (
    CommandResult,
    ContainerConfig,
    ContainerGroup,
    ContainerView,
    GoneError,
    Group,
    MachineFacts,
    MachineUsage,
    PodConfig,
    PodGroup,
    PodView,
    Reading,
    RegistryLogin,
    RuntimeCallError,
    RuntimeEvent,
)
from livesize.runtime.logs.raw import read_raw
from livesize.runtime.logs.rotation import LogRotation
from livesize.runtime.ports import connect_port
from livesize.runtime.process.container import ProcessContainer
from livesize.runtime.process.machine_facts import observe_machine, observe_usage
from livesize.runtime.process.records import ContainerAttempt, ProcessRecords
from livesize.runtime.process.sessions import AttachSession, start_exec
from livesize.runtime.process.shim import ENTRANCE
from livesize.runtime.process.startup import (
    DEFAULT_SETTINGS,
    KILL_SECONDS,
    ContainerStarter,
    ProcessSettings,
    ends_within,
)
from livesize.runtime.security import require_non_root
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLines,
    LogQuery,
    NotRunningError,
    PortStreams,
    Session,
)

_THREADS = 4

__all__ = ["ProcessRuntime", "ProcessSettings"]

T = TypeVar("T")


class _Pod:
    def __init__(self, config: PodConfig) -> None:
        self.config = config
        self.containers: dict[str, ProcessContainer] = {}

    def view(self) -> PodView:
        views = tuple(self.containers[name].view() for name in sorted(self.containers))
        return PodView(self.config.uid, self.config.namespace, self.config.name, views)


class ProcessRuntime:
    """One per node. Everything it makes stands below ``state_dir`` and below the control group
    ``cgroup_root``, for instance livesize/<node uid>; both are its own."""

    def __init__(
        self,
        state_dir: Path,
        cgroup_root: str,
        context: Context,
        *,
        cgroups: CgroupDriver | None = None,
        settings: ProcessSettings = DEFAULT_SETTINGS,
        feed: EventFeed | None = None,
    ) -> None:
        self._clock = clock = context.clock
        driver = cgroups or open_cgroups(clock)
        self._groups = PodGroups(driver, cgroup_root, clock, self._group_removed)
        self._settings = settings
        self._records = ProcessRecords(state_dir.absolute())
        self._images = ImageStore(state_dir.absolute() / "images")
        self._feed = feed or EventFeed()
        self._starter = ContainerStarter(self._records, self._groups, clock, settings)
        self._pods: dict[str, _Pod] = {}
        self._lock = FolderLock(state_dir.absolute())
        self._rotation = LogRotation(clock, settings.logs)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="livesize-runtime")

    @property
    def cgroup_version(self) -> CgroupVersion:
        return self._groups.cgroups.version

    @property
    def image_store(self) -> ImageStore:
        return self._images

    def machine(self) -> MachineFacts:
        return observe_machine()

    def cpus(self) -> tuple[int, ...]:
        return self._groups.cgroups.machine_cpus()

    def machine_usage(self) -> MachineUsage:
        return observe_usage()

    async def open(self) -> None:
        await self._lock.take(self._clock)
        self._records.open()
        self._starter.open()
        self._groups.open()
        self._rotation.open()
        for uid in self._records.pod_uids():
            config = self._records.load_pod(uid)
            if config is None:
                self._records.remove_pod(uid)
                continue
            # After a reboot the group is made without limits: those noted may be older than the
            # last resize, and the agent sets a pod's limits from what it allocated.
            self._groups.make(PodGroup(uid), None)
            self._pods[uid] = self._attach_pod(config)
        await self._remove_strange_groups()

    async def close(self) -> None:
        for pod in self._pods.values():
            for container in pod.containers.values():
                container.close()
        self._starter.close()
        self._rotation.close()
        if not self._pods:
            await self._groups.remove_root()
        self._feed.close()
        self._groups.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._records.close()
        self._lock.release()

    def images(self) -> tuple[str, ...]:
        return self._images.names()

    async def pull_image(self, ref: str, _logins: tuple[RegistryLogin, ...]) -> None:
        await self._in_thread(self._images.resolve, ref)

    def list_pods(self) -> tuple[PodView, ...]:
        return tuple(self._pods[uid].view() for uid in sorted(self._pods))

    def pod(self, uid: str) -> PodView | None:
        pod = self._pods.get(uid)
        return None if pod is None else pod.view()

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._feed.listen()

    async def create_pod(self, config: PodConfig) -> None:
        known = self._pods.get(config.uid)
        if known is not None and self._groups.exists(PodGroup(config.uid)):
            return
        self._groups.make(PodGroup(config.uid), None)
        self._settings.points.reach("create-pod/group")
        self._groups.set_limits(self._groups.path(PodGroup(config.uid)), config.limits)
        if known is not None:
            return
        self._records.save_pod(config)
        self._settings.points.reach("create-pod/record")
        self._pods[config.uid] = _Pod(config)

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        pod = self._require_pod(config.pod_uid)
        before = pod.containers.get(config.name)
        if before is not None and before.is_running:
            if before.record.config.attempt == config.attempt:
                return before.view()
            raise RuntimeCallError(
                f"container {config.name} of pod {config.pod_uid} still runs"
                f" (attempt {before.record.config.attempt}); stop it first"
            )
        image = await self._in_thread(self._images.resolve, config.image)
        require_non_root(config, pod.config, image.user)
        container = await self._starter.start(config, image)
        container.on_end = self._tell
        pod.containers[config.name] = container
        self._rotation.begin(container.attempt.log)
        if before is not None and before.attempt.folder != container.attempt.folder:
            before.attempt.remove()
        if not container.is_running:
            self._tell(container)
        return container.view()

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        pod = self._pods.get(pod_uid)
        known = None if pod is None else pod.containers.get(container)
        if known is None:
            return
        if known.is_running and grace_seconds > 0:
            known.terminate()
            await ends_within(known, grace_seconds)
        if known.is_running:
            known.kill()
            if not await ends_within(known, KILL_SECONDS):
                raise RuntimeCallError(
                    f"container {container} of pod {pod_uid} did not end within"
                    f" {KILL_SECONDS:.0f} s of SIGKILL; a process of it may hang in the kernel"
                )
        await self._groups.remove_path(known.group)

    async def remove_pod(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        for name, container in pod.containers.items():
            if container.is_running:
                raise RuntimeCallError(f"pod {uid}: container {name} still runs; stop it first")
        path = self._groups.path(PodGroup(uid))
        await self._groups.remove_tree(path)
        self._settings.points.reach("remove-pod/groups")
        self._records.remove_pod(uid)
        self._settings.points.reach("remove-pod/record")
        del self._pods[uid]

    def read(self, group: Group) -> Reading:
        return self._groups.read(group)

    def read_limits(self, group: Group) -> KernelLimits:
        return self._groups.read_limits(group)

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        return self._groups.read_back(group, change)

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        return self._groups.read_cpus(group)

    async def write(self, group: Group, change: GroupChange) -> None:
        await self._groups.write(group, change)

    def set_oom_score(self, group: ContainerGroup, score: int) -> None:
        self._groups.set_oom_score(self._groups.path(group), score)

    async def run_command(
        self,
        pod_uid: str,
        container: str,
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],
        timeout_seconds: float,
    ) -> CommandResult:
        request = ExecRequest(pod_uid, container, with_variables(command, env))
        return await run_to_end(await self.exec(request), command, timeout_seconds)

    async def exec(self, request: ExecRequest) -> Session:
        container = self._require_container(request.pod_uid, request.container)
        entrance = self._records.state_dir / ENTRANCE
        return await start_exec(container, request, entrance, self._starter.interpreter)

    async def attach(self, request: AttachRequest) -> Session:
        container = self._require_container(request.pod_uid, request.container)
        if not container.is_running:
            raise NotRunningError(f"container {request.container} does not run")
        return AttachSession(container, self._rotation, stdin=request.stdin)

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        """Each container without the host's network has one of its own: the first that answers."""
        problem: RuntimeCallError = NotRunningError(f"no container of pod {pod_uid} runs")
        for container in self._require_pod(pod_uid).containers.values():
            workload = container.attempt.workload()
            if workload is None or not container.is_running:
                continue
            network_of = None if container.record.config.host_network else workload.pid
            try:
                return await connect_port(port, network_of)
            except RuntimeCallError as failure:
                problem = failure
        raise problem

    def read_log(self, query: LogQuery) -> LogLines:
        container = self._require_container(query.pod_uid, query.container)
        attempt = container.record.config.attempt
        if query.previous:
            before = self._records.attempt(query.pod_uid, query.container, attempt - 1)
            return read_raw(before.log, query)
        log = container.attempt.log
        growth = self._rotation.following(log, lambda: container.is_running)
        return read_raw(log, query, growth if query.follow else None)

    def _attach_pod(self, config: PodConfig) -> _Pod:
        pod = _Pod(config)
        for name in self._records.container_names(config.uid):
            for attempt in self._records.attempts(config.uid, name):
                record = attempt.record()
                if name in pod.containers or record is None or not _was_started(attempt):
                    attempt.remove()
                    continue
                container = self._starter.container(attempt, record)
                container.attach(self._starter.boot_id)
                container.on_end = self._tell
                pod.containers[name] = container
                self._rotation.begin(attempt.log)
                if not container.is_running:
                    self._rotation.end(attempt.log)
        return pod

    async def _remove_strange_groups(self) -> None:
        """Groups that no pod or running container stands for: leftovers of a killed agent."""
        for pod_group in self._groups.cgroups.children(self._groups.root):
            pod = self._pods.get(pod_group.removeprefix(POD_PREFIX))
            path = f"{self._groups.root}/{pod_group}"
            if pod is None:
                await self._groups.remove_tree(path)
                continue
            for name in self._groups.cgroups.children(path):
                container = pod.containers.get(name.removeprefix(CONTAINER_PREFIX))
                if container is None or not container.is_running:
                    await self._groups.remove_path(f"{path}/{name}")

    def _tell(self, container: ProcessContainer) -> None:
        config = container.record.config
        self._rotation.end(container.attempt.log)
        self._feed.publish(RuntimeEvent(config.pod_uid, config.name))

    def _group_removed(self, uid: str) -> None:
        if uid in self._pods:
            self._feed.publish(RuntimeEvent(uid, ""))

    def _require_pod(self, uid: str) -> _Pod:
        pod = self._pods.get(uid)
        if pod is None:
            raise GoneError(f"pod {uid} does not exist on this machine")
        return pod

    def _require_container(self, pod_uid: str, name: str) -> ProcessContainer:
        container = self._require_pod(pod_uid).containers.get(name)
        if container is None:
            raise GoneError(f"container {name} of pod {pod_uid} was not started here")
        return container

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)


def _was_started(attempt: ContainerAttempt) -> bool:
    """Had the shim come to life, or was the agent killed before?"""
    return attempt.shim_pid() is not None or attempt.outcome() is not None
