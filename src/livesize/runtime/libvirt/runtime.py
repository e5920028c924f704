"""Runs virtual machines under a private libvirtd: the driver for VM pods.

A VM pod has one container, ``vm``: its QEMU. It needs root, libvirtd, QEMU and libvirt-python,
all of them only when the first VM comes. It may be killed between any two of its actions: each
of them is either found again or cleaned away by the next ``open``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

import msgspec

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import VmChange
from livesize.machinery.context import Context
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.machinery.telemetry import get_logger
from livesize.runtime.accelerator import find_accelerator
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import POD_PREFIX, CgroupDriver, small_margin
from livesize.runtime.cgroups.pod_groups import PodGroups
from livesize.runtime.events import EventFeed
from livesize.runtime.folder_lock import FolderLock
from livesize.runtime.interface import (
    CommandResult,
    ContainerConfig,
    ContainerGroup,
    ContainerView,
    GoneError,
    Group,
    ImageMissingError,
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
from livesize.runtime.libvirt.connection import DomainEvent, LibvirtConnection, load_libvirt
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.libvirt.environment import VmEnvironment
from livesize.runtime.libvirt.identity import node_of
from livesize.runtime.libvirt.lifecycle import BURST_US
from livesize.runtime.libvirt.owners import (
    VmOwner,
    choose_uid,
    first_uid_of,
    kvm_group,
    live_uids,
)
from livesize.runtime.libvirt.records import PodFolder, VmFolders, VmRecord
from livesize.runtime.libvirt.vm import Vm
from livesize.runtime.logs.raw import read_raw
from livesize.runtime.logs.rotation import LogRotation
from livesize.runtime.process.machine_facts import boot_id, observe_machine, observe_usage
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLimits,
    LogLines,
    LogQuery,
    PortStreams,
    Session,
)
from livesize.runtime.vm import Accelerator, VmView
from livesize.runtime.vm_checks import check_sizes

log = get_logger("libvirt")

_THREADS = 4

T = TypeVar("T")


class LibvirtSettings(msgspec.Struct, frozen=True):
    accelerator: Accelerator | None = None  # None: find out
    points: CrashPoints = NO_CRASH_POINTS
    logs: LogLimits = LogLimits()  # of consoles
    cgroups: CgroupDriver | None = None  # None: the whole machine's
    node_uid: str = ""  # what our domains carry
    why_not: str = ""  # why no virtual machine can run here


DEFAULT_SETTINGS = LibvirtSettings()


class _Pod:
    def __init__(self, config: PodConfig, folder: PodFolder) -> None:
        self.config = config
        self.folder = folder
        self.vm: Vm | None = None

    def view(self) -> PodView:
        containers = () if self.vm is None else (self.vm.container_view(),)
        return PodView(self.config.uid, self.config.namespace, self.config.name, containers)


class LibvirtRuntime:
    """One per node. Everything it makes stands below ``state_dir`` and below the control group
    ``cgroup_root``; both are its own. ``images_dir`` holds what VMs boot from."""

    def __init__(
        self,
        state_dir: Path,
        images_dir: Path,
        cgroup_root: str,
        context: Context,
        *,
        feed: EventFeed | None = None,
        settings: LibvirtSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._state_dir = state_dir.absolute()
        self._images_dir = images_dir.absolute()
        self._clock = clock = context.clock
        self._settings = settings
        self._feed = feed or EventFeed()
        self._folders = VmFolders(self._state_dir)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="livesize-vms")
        cgroups = settings.cgroups or open_cgroups(clock)
        self._groups = PodGroups(
            cgroups, cgroup_root, clock, self._group_removed, margin=small_margin
        )
        self._rotation = LogRotation(clock, settings.logs)
        self._pods: dict[str, _Pod] = {}
        self._environment: VmEnvironment | None = None
        self._choosing = asyncio.Lock()
        self._lock = FolderLock(self._state_dir)

    @property
    def cgroup_version(self) -> CgroupVersion:
        return self._groups.cgroups.version

    def machine(self) -> MachineFacts:
        return observe_machine()

    def cpus(self) -> tuple[int, ...]:
        return self._groups.cgroups.machine_cpus()

    def machine_usage(self) -> MachineUsage:
        return observe_usage()

    # Opening and closing.

    async def open(self) -> None:
        await self._lock.take(self._clock)
        self._groups.open()
        self._rotation.open()
        for uid in self._folders.uids():
            folder = self._folders.of(uid)
            config = folder.pod()
            if config is None:
                folder.remove()
                continue
            # After a reboot the group is made without limits: those noted may be older than the
            # last resize, and the agent sets a pod's limits from what it allocated.
            self._groups.make(PodGroup(uid), None)
            self._groups.allow_burst(PodGroup(uid), BURST_US)
            self._pods[uid] = _Pod(config, folder)
        if self._pods:
            await self._attach()
        await self._remove_strange_groups()

    async def close(self) -> None:
        for vm in self._vms():
            vm.close()
        self._rotation.close()
        if self._environment is not None:
            connection, daemon = self._environment.connection, self._environment.daemon
            await self._in_thread(connection.close)
            if not self._pods:
                await self._in_thread(daemon.stop)
        if not self._pods and self._lock.is_held:
            self._groups.cgroups.remove(self._groups.root)
        self._feed.close()
        self._groups.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._lock.release()

    # What there is.

    async def pull_image(self, ref: str, _logins: tuple[RegistryLogin, ...]) -> None:
        raise ImageMissingError(
            f"image {ref} of a virtual machine is not pulled: put it into {self._images_dir}"
        )

    def images(self) -> tuple[str, ...]:
        if not self._images_dir.is_dir():
            return ()
        names = (path.name for path in self._images_dir.iterdir() if path.is_file())
        return tuple(sorted(name for name in names if not name.startswith(".")))

    def list_pods(self) -> tuple[PodView, ...]:
        return tuple(self._pods[uid].view() for uid in sorted(self._pods))

    def pod(self, uid: str) -> PodView | None:
        pod = self._pods.get(uid)
        return None if pod is None else pod.view()

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._feed.listen()

    def vm(self, pod_uid: str) -> VmView | None:
        pod = self._pods.get(pod_uid)
        return None if pod is None or pod.vm is None else pod.vm.view()

    # Pods and their VMs.

    async def create_pod(self, config: PodConfig) -> None:
        known = self._pods.get(config.uid)
        if known is not None and self._groups.exists(PodGroup(config.uid)):
            return
        folder = self._folders.of(config.uid)
        await self._owner(folder)
        self._settings.points.reach("vm-pod/owner")
        self._groups.make(PodGroup(config.uid), config.limits)
        self._groups.allow_burst(PodGroup(config.uid), BURST_US)
        self._settings.points.reach("vm-pod/group")
        if known is not None:
            return
        folder.save_pod(config)
        self._settings.points.reach("vm-pod/record")
        self._pods[config.uid] = _Pod(config, folder)

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        pod = self._require_pod(config.pod_uid)
        self._check(config)
        before = pod.vm
        if before is not None and before.is_running:
            if before.record.config.attempt == config.attempt:
                return before.container_view()
            raise RuntimeCallError(
                f"the VM of pod {config.pod_uid} still runs"
                f" (attempt {before.record.config.attempt}); stop it first"
            )
        environment = await self._ready()
        group = ContainerGroup(config.pod_uid, VM_NAME)
        await self._groups.remove(group)  # of the start before, with its counters
        if before is not None:
            before.close()
            pod.vm = None
        record = self._record(config)
        pod.folder.begin(record)
        self._settings.points.reach("vm-start/record")
        vm = Vm(record, pod.folder, environment, await self._owner(pod.folder))
        try:
            await vm.start()
        except BaseException:
            vm.close()
            raise
        pod.vm = vm
        self._rotation.begin(vm.console)
        return vm.container_view()

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        pod = self._pods.get(pod_uid)
        if pod is not None and pod.vm is not None and container == VM_NAME:
            await pod.vm.stop(grace_seconds)

    async def run_command(
        self,
        pod_uid: str,
        container: str,  # noqa: ARG002
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],  # noqa: ARG002
        timeout_seconds: float,  # noqa: ARG002
    ) -> CommandResult:
        raise RuntimeCallError(
            f"{command[0]} cannot be run in pod {pod_uid}: it is a virtual machine"
        )

    async def exec(self, request: ExecRequest) -> Session:
        raise RuntimeCallError(f"pod {request.pod_uid} is a virtual machine: it runs no commands")

    async def attach(self, request: AttachRequest) -> Session:
        raise RuntimeCallError(f"pod {request.pod_uid} is a virtual machine: it has no streams")

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        raise RuntimeCallError(
            f"pod {pod_uid} is a virtual machine: its port {port} is not reached from here"
        )

    def read_log(self, query: LogQuery) -> LogLines:
        """Its console."""
        pod = self._pods.get(query.pod_uid)
        vm = None if pod is None else pod.vm
        if vm is None or query.container != VM_NAME:
            raise GoneError(f"pod {query.pod_uid} has no VM {query.container} here")
        if query.previous:
            attempt = vm.record.config.attempt - 1
            return read_raw(vm.console.with_name(f"{attempt}.log"), query)
        growth = self._rotation.following(vm.console, lambda: vm.is_running)
        return read_raw(vm.console, query, growth if query.follow else None)

    async def remove_pod(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            return
        if pod.vm is not None:
            if pod.vm.is_running:
                raise RuntimeCallError(f"pod {uid}: its VM still runs; stop it first")
            await pod.vm.forget()
            pod.vm.close()
            pod.vm = None
        await self._groups.remove(PodGroup(uid))
        self._settings.points.reach("vm-remove/groups")
        pod.folder.remove()
        self._settings.points.reach("vm-remove/record")
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

    # What only VMs have.

    async def refresh_vm(self, pod_uid: str) -> VmView:
        return await self._require_vm(pod_uid).refresh()

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        await self._require_vm(pod_uid).change(change)

    async def wait_vm(
        self, pod_uid: str, holds: Callable[[VmView], bool], timeout_seconds: float
    ) -> VmView:
        return await self._require_vm(pod_uid).wait(holds, timeout_seconds)

    # Inside.

    async def _ready(self) -> VmEnvironment:
        """Libraries, accelerator and libvirtd, made ready for the first VM."""
        if self._settings.why_not:
            raise RuntimeCallError(self._settings.why_not)
        if self._environment is None:
            load_libvirt()
            self._environment = await self._make_environment()
        await self._in_thread(self._environment.connection.connection)
        return self._environment

    async def _make_environment(self) -> VmEnvironment:
        accelerator = self._settings.accelerator
        if accelerator is None:
            found = await self._in_thread(find_accelerator, self._state_dir)
            accelerator = found.accelerator
            log.info("accelerator", accelerator=accelerator, why=found.why)
        use_kvm = accelerator is Accelerator.KVM
        daemon = LibvirtDaemon(self._state_dir / "libvirt", self._images_dir, use_kvm=use_kvm)
        return VmEnvironment(
            connection=LibvirtConnection(daemon, self._heard, self._connected),
            daemon=daemon,
            groups=self._groups,
            clock=self._clock,
            points=self._settings.points,
            accelerator=accelerator,
            on_change=self._tell,
            node_uid=self._settings.node_uid,
        )

    async def _attach(self) -> None:
        """QEMU's processes first, which needs nobody; then, if it can be reached, libvirtd."""
        self._environment = await self._make_environment()
        unwatched: list[Vm] = []
        for pod in self._pods.values():
            record = pod.folder.record()
            if record is None or pod.folder.started() is None:
                pod.folder.forget_start()  # killed in the middle of a start
                continue
            owner = await self._owner(pod.folder)
            pod.vm = Vm(record, pod.folder, self._environment, owner)
            known = pod.folder.outcome() is not None
            pod.vm.attach(boot_id())
            self._rotation.begin(pod.vm.console)
            if not pod.vm.is_running:
                self._rotation.end(pod.vm.console)
            if not known and not pod.vm.is_running:
                unwatched.append(pod.vm)
        try:
            await self._in_thread(self._forget_strange_domains)
            for vm in unwatched:
                await vm.learn_end()
            async with asyncio.TaskGroup() as tasks:
                for vm in self._vms():
                    tasks.create_task(self._reconnect(vm))
        except RuntimeCallError as failure:
            log.warning("VMs were found, but libvirtd cannot be reached", why=str(failure))

    async def _reconnect(self, vm: Vm) -> None:
        try:
            await vm.reconnect()
        except RuntimeCallError as failure:
            log.warning("cannot read a VM again", pod=vm.uid, why=str(failure))

    def _forget_strange_domains(self) -> None:
        """Domains of starts that were cut off, and of pods that are gone."""
        assert self._environment is not None
        libvirt = load_libvirt()
        known = {vm.identity.uuid for vm in self._vms()}
        for domain in self._environment.connection.connection().listAllDomains():
            with contextlib.suppress(libvirt.libvirtError):  # it may go while we look at it
                if domain.UUIDString() in known or not self._is_ours(domain.XMLDesc()):
                    continue
                if domain.isActive():
                    domain.destroy()
                domain.undefine()

    def _is_ours(self, xml: str) -> bool:
        uid = node_of(ET.fromstring(xml))  # noqa: S314 — our own libvirtd's words
        return not uid or uid == self._settings.node_uid

    async def _remove_strange_groups(self) -> None:
        """Groups that no pod or running VM stands for: leftovers of a killed agent."""
        for name in self._groups.pods():
            pod = self._pods.get(name.removeprefix(POD_PREFIX))
            if pod is None:
                await self._groups.remove_tree(f"{self._groups.root}/{name}")
            elif pod.vm is None or not pod.vm.is_running:
                await self._groups.remove(ContainerGroup(pod.config.uid, VM_NAME))

    async def _owner(self, folder: PodFolder) -> VmOwner:
        """The user of this pod's VM: the one it has, or one that nobody has, noted before anything
        is its. Between looking and noting nothing else may choose."""
        async with self._choosing:
            owner = folder.owner()
            if owner is None:
                taken = await self._in_thread(live_uids)
                taken |= {one.uid for one in self._folders.owners()}
                uid = choose_uid(first_uid_of(self._state_dir), taken)
                owner = VmOwner(uid, uid)
                folder.save_owner(owner)
        environment = self._environment
        group = kvm_group() if environment and environment.accelerator is Accelerator.KVM else None
        return owner if group is None else VmOwner(owner.uid, group)

    def _check(self, config: ContainerConfig) -> None:
        if config.vm is None or config.name != VM_NAME:
            raise RuntimeCallError(f"container {config.name} of a VM pod is not a virtual machine")
        check_sizes(config.vm)

    def _record(self, config: ContainerConfig) -> VmRecord:
        now = self._clock.now()
        name = f"{config.pod_uid}/{config.name}/{config.attempt}/{now}"
        return VmRecord(hashlib.sha256(name.encode()).hexdigest(), config, boot_id(), now)

    def _heard(self, event: DomainEvent) -> None:
        for vm in self._vms():
            if vm.identity.uuid == event.domain_uuid:
                vm.heard(event)

    def _connected(self) -> None:
        """libvirtd was started again: what happened meanwhile was not told."""
        for vm in self._vms():
            vm.heard(DomainEvent(vm.identity.uuid, "CONNECTED"))

    def _tell(self, uid: str) -> None:
        vm = self._pods[uid].vm if uid in self._pods else None
        if vm is not None and not vm.is_running:
            self._rotation.end(vm.console)
        self._feed.publish(RuntimeEvent(uid, VM_NAME))

    def _group_removed(self, uid: str) -> None:
        if uid in self._pods:
            self._feed.publish(RuntimeEvent(uid, VM_NAME))

    def _vms(self) -> list[Vm]:
        return [pod.vm for pod in self._pods.values() if pod.vm is not None]

    def _require_pod(self, uid: str) -> _Pod:
        pod = self._pods.get(uid)
        if pod is None:
            raise GoneError(f"pod {uid} does not exist on this machine")
        return pod

    def _require_vm(self, uid: str) -> Vm:
        pod = self._pods.get(uid)
        if pod is None or pod.vm is None:
            raise GoneError(f"pod {uid} has no VM on this machine")
        return pod.vm

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)
