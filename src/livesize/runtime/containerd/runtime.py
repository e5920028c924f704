"""Runs containers through containerd, over CRI v1.

The pod's group is ours (group_layout.py). containerd has a record of a container's limits, which
stays true: memory goes through containerd, and it is told of CPU (resizer.py). The agent reads the
limits from the kernel's files alone. Labels in containerd say which pods and containers are ours:
there is no second record, and the next agent finds what is there. Of a containerd that others use
too, the agent looks only at sandboxes with this node's own label.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.runtime_features import RuntimeFeatures
from livesize.machinery.context import Context
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.machinery.tasks import OwnedTasks
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver, read_setting, safe_name
from livesize.runtime.cgroups.oom_score import set_oom_scores
from livesize.runtime.commands import with_variables
from livesize.runtime.containerd.connection import ContainerdConnection, connect, find_ctr
from livesize.runtime.containerd.containers import KILL_SECONDS, Containers
from livesize.runtime.containerd.daemon import CniFolders, GroupDriver
from livesize.runtime.containerd.execs import Execs
from livesize.runtime.containerd.group_layout import DirectoryLayout, GroupLayout
from livesize.runtime.containerd.image_garbage import CleaningLimits, ImageCleaner
from livesize.runtime.containerd.images import ContainerdImages
from livesize.runtime.containerd.limits_notifier import LimitsNotifier
from livesize.runtime.containerd.messages import CONTAINER_CREATED, CONTAINER_RUNNING
from livesize.runtime.containerd.requests import with_image_user
from livesize.runtime.containerd.resizer import Resizer
from livesize.runtime.containerd.sandboxes import Sandbox, Sandboxes
from livesize.runtime.containerd.slice_layout import SliceLayout
from livesize.runtime.containerd.streams import Streaming
from livesize.runtime.containerd.task_watch import TaskWatcher
from livesize.runtime.events import EventFeed
from livesize.runtime.folder_lock import FolderLock
from livesize.runtime.images import ImageStore
from livesize.runtime.interface import (
    CommandResult,
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
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
from livesize.runtime.oci import BUILT_IN_IMAGE
from livesize.runtime.process.machine_facts import booted_at, observe_machine, observe_usage
from livesize.runtime.process.records import write_whole
from livesize.runtime.security import require_non_root
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLimits,
    LogLines,
    LogQuery,
    PortStreams,
    Session,
)

_THREADS = 4
_KILLED = 137
_OUT_OF_MEMORY_DELAYS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)

T = TypeVar("T")


_FEATURES = RuntimeFeatures(privileged=True, sysctls=True, own_network=True)


class ContainerdSettings(msgspec.Struct, frozen=True):
    """``endpoint``: the socket of a containerd that is not ours; None: a private one."""

    endpoint: Path | None = None
    node_uid: str = ""  # what our sandboxes are labelled with; empty: a uid of the state folder
    group_driver: GroupDriver | None = None  # None: as containerd says
    pids_max: int = 4096  # processes and threads of one pod
    relist_seconds: float = 10.0
    cni: CniFolders = CniFolders()
    cleaning: CleaningLimits = CleaningLimits()
    points: CrashPoints = NO_CRASH_POINTS
    logs: LogLimits = LogLimits()


DEFAULT_SETTINGS = ContainerdSettings()


class _Pod:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.containers: dict[str, ContainerView] = {}

    def view(self) -> PodView:
        views = tuple(self.containers[name] for name in sorted(self.containers))
        pod = self.sandbox.pod
        return PodView(pod.uid, pod.namespace, pod.name, views, self.sandbox.address)


class ContainerdRuntime:
    """One per node. Files stand below ``state_dir``, groups below ``cgroup_root``; both are its
    own. ``images``: where images that were imported by hand are kept."""

    def __init__(
        self,
        state_dir: Path,
        cgroup_root: str,
        context: Context,
        *,
        images: Path | None = None,
        settings: ContainerdSettings = DEFAULT_SETTINGS,
        feed: EventFeed | None = None,
    ) -> None:
        self._state_dir = state_dir.absolute()
        self._clock = clock = context.clock
        self._settings = settings
        self._cgroups: CgroupDriver = open_cgroups(clock)
        self._cgroup_root = cgroup_root
        self._layout: GroupLayout = DirectoryLayout(
            self._cgroups, cgroup_root, clock, self._group_removed
        )
        self._store = ImageStore(images or self._state_dir / "images")
        self._feed = feed or EventFeed()
        self._lock = FolderLock(self._state_dir)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="livesize-containerd")
        self._pods: dict[str, _Pod] = {}
        self._image_names: tuple[str, ...] = ()
        self._ended_early: dict[str, bool] = {}  # ids being started: has its end been told?
        self._stopped: set[str] = set()  # ids of those that we ended ourselves
        self._execs = Execs(clock)
        self._connection: ContainerdConnection | None = None
        self._notifier: LimitsNotifier | None = None
        self._watching = OwnedTasks()

    @property
    def cgroup_version(self) -> CgroupVersion:
        return self._cgroups.version

    @property
    def image_store(self) -> ImageStore:
        return self._store

    def machine(self) -> MachineFacts:
        assert self._connection is not None, "the runtime is open"
        version = f"containerd://{self._connection.version}"
        return msgspec.structs.replace(
            observe_machine(), runtime_version=version, features=_FEATURES
        )

    def cpus(self) -> tuple[int, ...]:
        return self._cgroups.machine_cpus()

    def machine_usage(self) -> MachineUsage:
        return observe_usage()

    async def open(self) -> None:
        await self._lock.take(self._clock)
        settings, clock = self._settings, self._clock
        try:
            ctr, node_uid = find_ctr(), self._node_uid()
            self._connection = connection = await connect(
                self._state_dir / "containerd",
                settings.endpoint,
                settings.cni,
                settings.group_driver,
                clock,
            )
            if connection.group_driver is GroupDriver.SYSTEMD:
                self._layout.close()
                self._layout = SliceLayout(self._cgroups, self._cgroup_root, clock)
            client, logs = connection.client, self._state_dir / "logs"
            self._images = ContainerdImages(client, self._store, ctr, self._in_thread, clock)
            self._cleaner = ImageCleaner(client, clock, self._state_dir, settings.cleaning)
            self._sandboxes = Sandboxes(client, node_uid, logs, self._layout, self._clock)
            self._containers = Containers(client, node_uid, logs, self.cgroup_version, clock)
            self._streaming = Streaming(client, clock, settings.logs)
            if connection.group_driver is GroupDriver.CGROUPFS:
                self._notifier = LimitsNotifier(self._containers, self._cgroups, clock)
            self._resizer = Resizer(
                self._containers, self._cgroups, self._in_thread, self._notifier
            )
            await self._keep_driver(connection.group_driver)
            await self._layout.open()
            await self._find_pods()
            await self._layout.remove_strange(set(self._pods))
            self._image_names = await self._images.names()
        except BaseException:
            await self.close()
            raise
        watcher = TaskWatcher(client, connection.daemon, self, clock, settings.relist_seconds)
        self._watching.start(watcher.run(), name="containerd watcher")

    async def close(self) -> None:
        await self._watching.close()
        if self._notifier is not None:
            await self._notifier.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            # Where pods go on, so does containerd: it is what writes their logs.
            await connection.close(stop=not self._pods)
            if not self._pods:
                await self._layout.remove_root()
        self._feed.close()
        self._layout.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._lock.release()

    def images(self) -> tuple[str, ...]:
        return self._image_names

    def list_pods(self) -> tuple[PodView, ...]:
        return tuple(self._pods[uid].view() for uid in sorted(self._pods))

    def pod(self, uid: str) -> PodView | None:
        pod = self._pods.get(uid)
        return None if pod is None else pod.view()

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._feed.listen()

    async def pull_image(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        await self._images.pull(ref, logins)
        self._image_names = await self._images.names()

    async def create_pod(self, config: PodConfig) -> None:
        known = config.uid in self._pods
        if known and self._layout.exists(config.uid):
            return
        points = self._settings.points
        await self._layout.make(config.uid, config.limits, self._settings.pids_max)
        points.reach("create-pod/group")
        if known:
            return  # its containers ask for the sandbox when they are started again
        try:
            if self._settings.endpoint is None:
                await self._images.require(BUILT_IN_IMAGE)  # a sandbox runs it
            sandbox = await self._sandboxes.run(config, attempt=0)
        except RuntimeCallError:
            await self._layout.remove(config.uid)
            raise
        points.reach("create-pod/sandbox")
        self._pods[config.uid] = _Pod(sandbox)

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        safe_name(config.name)
        pod = self._require_pod(config.pod_uid)
        before = pod.containers.get(config.name)
        if before is not None and before.phase is ContainerPhase.RUNNING:
            if before.attempt == config.attempt:
                return before
            raise RuntimeCallError(
                f"container {config.name} of pod {config.pod_uid} still runs"
                f" (attempt {before.attempt}); stop it first"
            )
        image_id = await self._images.require(config.image)
        config = await self._with_user(config, pod.sandbox.pod, image_id)
        self._cleaner.used(image_id)
        pod.sandbox = await self._sandboxes.ready(pod.sandbox)
        view = await self._start(pod, config, image_id)
        if before is not None:
            await self._containers.remove(before.id)
            self._stopped.discard(before.id)
        return view

    async def _with_user(
        self, config: ContainerConfig, pod: PodConfig, image_id: str
    ) -> ContainerConfig:
        """With the image's user where it matters: CRI takes a group only beside a user, and root
        may be forbidden."""
        if config.run_as_user is None and (
            config.run_as_non_root or config.run_as_group is not None
        ):
            user = await self._images.user(image_id)
            require_non_root(config, pod, user)
            return with_image_user(config, user)
        require_non_root(config, pod, "")
        return config

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        view = self._running(pod_uid, container)
        if view is None:
            return
        self._stopped.add(view.id)
        with contextlib.suppress(GoneError):
            await self._containers.stop(view.id, grace_seconds)
        await self.task_ended(view.id)
        if self._running(pod_uid, container) is not None:
            raise RuntimeCallError(
                f"container {container} of pod {pod_uid} did not end within"
                f" {KILL_SECONDS:.0f} s of SIGKILL; a process of it may hang in the kernel"
            )

    async def remove_pod(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        for name, container in pod.containers.items():
            if container.phase is ContainerPhase.RUNNING:
                raise RuntimeCallError(f"pod {uid}: container {name} still runs; stop it first")
        points = self._settings.points
        await self._sandboxes.remove(uid)
        points.reach("remove-pod/sandbox")
        await self._layout.remove(uid)
        points.reach("remove-pod/groups")
        self._remove_logs(uid)
        del self._pods[uid]
        self._stopped.difference_update(view.id for view in pod.containers.values())

    def read(self, group: Group) -> Reading:
        return self._cgroups.read(self._path(group))

    def read_limits(self, group: Group) -> KernelLimits:
        return self._cgroups.read_limits(self._path(group))

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        return read_setting(self._cgroups, self._path(group), change)

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        return self._cgroups.read_cpus(self._path(group))

    async def write(self, group: Group, change: GroupChange) -> None:
        match group:
            case PodGroup(pod_uid=uid):
                await self._layout.write(uid, change)
            case ContainerGroup(pod_uid=uid, container=name):
                await self._resizer.write(
                    self._require_running(uid, name).id, self._path(group), change
                )

    def set_oom_score(self, group: ContainerGroup, score: int) -> None:
        path = self._path(group)
        set_oom_scores(lambda: self._cgroups.processes(path), score)

    async def run_command(
        self,
        pod_uid: str,
        container: str,
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],
        timeout_seconds: float,
    ) -> CommandResult:
        view = self._require_running(pod_uid, container)
        words = with_variables(command, env)
        with self._execs.own_command(view.id):
            return await self._containers.run_command(view.id, words, timeout_seconds)

    async def exec(self, request: ExecRequest) -> Session:
        view = self._require_container(request.pod_uid, request.container)
        opened = functools.partial(self._streaming.exec, view, request)
        return await self._execs.begin(view.id, request.command, opened)

    async def attach(self, request: AttachRequest) -> Session:
        view = self._require_container(request.pod_uid, request.container)
        return await self._streaming.attach(view, request)

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        return await self._streaming.connect(self._require_pod(pod_uid).view(), port)

    def read_log(self, query: LogQuery) -> LogLines:
        view = self._require_container(query.pod_uid, query.container)

        def is_live() -> bool:
            now = self._running(query.pod_uid, query.container)
            return now is not None and now.id == view.id

        return self._streaming.read_log(view, query, is_live)

    # What the watcher tells

    async def task_ended(self, container_id: str) -> None:
        if container_id in self._ended_early:
            self._ended_early[container_id] = True
            return
        pod = self._pod_with(container_id)
        if pod is None:
            return  # a sandbox, or not one of ours
        try:
            view = await self._containers.ended_view(container_id)
            if view is not None and self._may_be_out_of_memory(view):
                view = await self._explained(view)
        except GoneError:
            view = None
        self._keep(pod, container_id, view)

    async def task_out_of_memory(self, container_id: str) -> None:
        """Heard after the end it explains; before that, the end is what counts."""
        pod = self._pod_with(container_id)
        before = None if pod is None else _by_id(pod, container_id)
        if pod is not None and before is not None and before.phase is ContainerPhase.EXITED:
            self._keep(pod, container_id, await self._containers.view(container_id))

    async def exec_started(self, container_id: str, pid: int) -> None:
        await self._execs.started(container_id, pid)

    async def look_again(self) -> None:
        states = {one.id: one.state for one in await self._containers.listing()}
        for pod in tuple(self._pods.values()):
            for view in tuple(pod.containers.values()):
                runs = states.get(view.id) == CONTAINER_RUNNING
                if view.phase is ContainerPhase.RUNNING and not runs:
                    await self.task_ended(view.id)
        views = [view for pod in self._pods.values() for view in pod.containers.values()]
        await self._clean_images(views)
        self._image_names = await self._images.names()
        await self._streaming.rotate(
            [view for view in views if view.phase is ContainerPhase.RUNNING]
        )

    # Within

    async def _clean_images(self, views: list[ContainerView]) -> None:
        """Others' images are theirs to remove."""
        if self._settings.endpoint is None:
            in_use = {name for view in views for name in (view.image_id, view.image)}
            kept = {BUILT_IN_IMAGE, *self._store.names()}
            await self._cleaner.clean(self._images.irreplaceable() | in_use | kept)

    async def _keep_driver(self, driver: GroupDriver) -> None:
        """Groups of pods do not move: who runs pods stays with whom they were started."""
        note = self._state_dir / "cgroup-driver"
        before = note.read_text() if note.exists() else GroupDriver.CGROUPFS.value
        if before != driver.value and await self._sandboxes.newest():
            raise RuntimeCallError(
                f"pods of this node were started with --cgroup-driver {before}; go on with that,"
                f" or delete them before changing to {driver.value}"
            )
        write_whole(note, driver.value.encode())

    async def _find_pods(self) -> None:
        """What is there, from whichever agent. What was made and never started goes."""
        for sandbox in await self._sandboxes.newest():
            self._pods[sandbox.pod.uid] = _Pod(sandbox)
            await self._layout.find(sandbox.pod.uid)
        for one in await self._containers.listing():
            pod = self._pods.get(one.pod_uid)
            if pod is None or one.state == CONTAINER_CREATED:
                await self._containers.remove(one.id)
                continue
            view = await self._containers.view(one.id)
            older = pod.containers.get(one.name)
            if view is not None:
                ended = view.phase is ContainerPhase.EXITED
                before_boot = ended and view.started_at < booted_at()
                pod.containers[one.name] = msgspec.structs.replace(view, before_boot=before_boot)
                if older is not None:
                    await self._containers.remove(older.id)
        await self._tell_limits()

    async def _tell_limits(self) -> None:
        """What cannot be told now is no worse than before: the next resize tells it."""
        for uid, pod in self._pods.items():
            for name, view in pod.containers.items():
                if view.phase is ContainerPhase.RUNNING:
                    with contextlib.suppress(RuntimeCallError):
                        path = self._path(ContainerGroup(uid, name))
                        await self._resizer.tell_again(view.id, path)

    async def _start(self, pod: _Pod, config: ContainerConfig, image_id: str) -> ContainerView:
        points = self._settings.points
        points.reach("start/image")
        new = await self._containers.create(config, pod.sandbox, self._sandboxes, image_id)
        points.reach("start/created")
        self._ended_early[new] = False
        try:
            await self._containers.start(new)
            points.reach("start/started")
            view = await self._containers.view(new)
        except BaseException:
            self._ended_early.pop(new, None)
            raise
        ended = self._ended_early.pop(new)
        if view is None:
            raise RuntimeCallError(f"container {config.name} was started, but does not run")
        pod.containers[config.name] = view
        if ended or view.phase is ContainerPhase.EXITED:
            await self.task_ended(new)
        return pod.containers.get(config.name, view)

    def _may_be_out_of_memory(self, view: ContainerView) -> bool:
        return view.exit_code == _KILLED and not view.oom_killed and view.id not in self._stopped

    async def _explained(self, view: ContainerView) -> ContainerView:
        """Killed, and not by us: containerd may learn a moment later that memory was the cause."""
        for delay_seconds in _OUT_OF_MEMORY_DELAYS:
            await self._clock.sleep(delay_seconds)
            again = await self._containers.view(view.id)
            if again is not None and again.oom_killed:
                return again
        return view

    def _keep(self, pod: _Pod, container_id: str, view: ContainerView | None) -> None:
        """``view`` None: it is no more. Told only where something is news."""
        before = _by_id(pod, container_id)
        if before is None or view == before:
            return
        if view is None:
            del pod.containers[before.name]
        else:
            pod.containers[before.name] = view
        self._feed.publish(RuntimeEvent(before.pod_uid, before.name))

    def _group_removed(self, uid: str) -> None:
        if uid in self._pods:
            self._feed.publish(RuntimeEvent(uid, ""))

    def _path(self, group: Group) -> str:
        match group:
            case PodGroup(pod_uid=uid):
                return self._layout.pod(uid)
            case ContainerGroup(pod_uid=uid, container=name):
                return self._layout.container(uid, self._require_running(uid, name).id)

    def _running(self, pod_uid: str, container: str) -> ContainerView | None:
        pod = self._pods.get(pod_uid)
        view = None if pod is None else pod.containers.get(container)
        return view if view is not None and view.phase is ContainerPhase.RUNNING else None

    def _require_running(self, pod_uid: str, container: str) -> ContainerView:
        view = self._running(pod_uid, container)
        if view is None:
            raise GoneError(f"container {container} of pod {pod_uid} does not run")
        return view

    def _pod_with(self, container_id: str) -> _Pod | None:
        for pod in self._pods.values():
            if _by_id(pod, container_id) is not None:
                return pod
        return None

    def _require_pod(self, uid: str) -> _Pod:
        pod = self._pods.get(uid)
        if pod is None:
            raise GoneError(f"pod {uid} does not exist on this machine")
        return pod

    def _require_container(self, pod_uid: str, name: str) -> ContainerView:
        view = self._require_pod(pod_uid).containers.get(name)
        if view is None:
            raise GoneError(f"container {name} of pod {pod_uid} was not started here")
        return view

    def _remove_logs(self, uid: str) -> None:
        shutil.rmtree(self._state_dir / "logs" / safe_name(uid), ignore_errors=True)

    def _node_uid(self) -> str:
        """Ours for as long as the state folder lives, whatever the node is called."""
        if self._settings.node_uid:
            return self._settings.node_uid
        path = self._state_dir / "node-uid"
        if not path.exists():
            write_whole(path, secrets.token_hex(16).encode())
        return path.read_text()

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)


def _by_id(pod: _Pod, container_id: str) -> ContainerView | None:
    for view in pod.containers.values():
        if view.id == container_id:
            return view
    return None
