"""A machine in memory with injectable faults, for tests and demonstrations.

``FakeMachine`` is the world: it survives a FakeRuntime, as a real machine survives the agent, and
it is what a test turns the knobs of. ``FakeRuntime`` is a driver on it and passes the same suite
as the real one (tests/contract/test_runtime_contract.py). It keeps the kernel's rules where they
matter for the order of writes: on version 1 a child's quota never exceeds its parent's, and a
memory limit below what is in use is refused. A virtual machine is a FakeVm (fake_vm.py), found in
``FakeMachine.vms`` by its pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import safe_name, whole_pages
from livesize.runtime.events import EventFeed
from livesize.runtime.fake_streams import FakeSession, fake_lines
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.interface import (
    Change,
    CommandResult,
    CommandTimeoutError,
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    Group,
    ImageMissingError,
    MachineFacts,
    MachineUsage,
    MemoryInUseError,
    PodConfig,
    PodGroup,
    PodView,
    Reading,
    RegistryLogin,
    RuntimeCallError,
    RuntimeEvent,
    SetCpu,
    SetCpus,
    SetMemory,
)
from livesize.runtime.streams import (
    ExecRequest,
    LogLines,
    LogQuery,
    NoLogError,
    NotRunningError,
    PortStreams,
    Session,
)
from livesize.runtime.vm import VM_NAME, Accelerator, VmChange, VmView

FAKE_IMAGE = "localhost/livesize/busybox:1"
FAKE_VM_IMAGES = ("guest.vmlinuz", "guest.initrd", "disk.qcow2")
_GIB = 1024**3
_FIRST_PID = 1000
_SIGTERM_CODE = 143
_SIGKILL_CODE = 137


class Behaviour(msgspec.Struct, frozen=True):
    """What a command does when it is run here. By default it runs until SIGTERM."""

    exit_code: int | None = None  # ends at once with this status
    memory_bytes: int = 1024 * 1024  # holds this much; above its limit it is OOM-killed
    output: str = ""
    ignores_sigterm: bool = False
    start_error: str = ""  # cannot be started, for this reason


class _Group(msgspec.Struct):
    limits: KernelLimits
    memory_usage_bytes: int = 0
    cpu_usage_ns: int = 0
    oom_kills: int = 0
    cpus: tuple[int, ...] | None = None


class _Pod(msgspec.Struct):
    config: PodConfig
    containers: dict[str, ContainerView]
    behaviours: dict[str, Behaviour]


class FakeMachine:
    """The world. Everything a test may do to it is a method here."""

    def __init__(
        self,
        clock: Clock,
        *,
        version: CgroupVersion = CgroupVersion.V1,
        cpu_milli: int = 4000,
        memory_bytes: int = 16 * _GIB,
        images: Sequence[str] = (FAKE_IMAGE,),
        behaviours: Mapping[tuple[str, ...], Behaviour] | None = None,
    ) -> None:
        self.clock = clock
        self.version = version
        self.image_names = tuple(images)
        self.behaviours = dict(behaviours or {})  # by command and args
        self.create_error = ""  # pods cannot be made, for this reason
        self.pullable: dict[str, str] = {}  # images to be pulled: name to password, or empty
        self.vm_image_names = FAKE_VM_IMAGES
        self.accelerator = Accelerator.TCG
        self.writes: list[tuple[Group, Change]] = []  # those that succeeded, in order
        self.actions: list[Change | VmChange] = []  # these and changes of VMs, in order
        self.log_directory: Path | None = None  # where given, output is written below it
        self.facts = MachineFacts(
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            kernel_version="6.1.0",
            os_image="Fake Linux",
            architecture="x86_64",
            boot_id="00000000-0000-0000-0000-000000000001",
            machine_id="fake",
            runtime_version="fake://1",
        )
        self.pods: dict[str, _Pod] = {}
        self.commands: list[tuple[str, tuple[str, ...], dict[str, str]]] = []  # run in containers
        self.configs: dict[tuple[str, str], ContainerConfig] = {}  # newest start, by pod and name
        self.oom_scores: dict[ContainerGroup, int] = {}
        self.vms: dict[str, FakeVm] = {}  # by pod uid
        self.groups: dict[Group, _Group] = {}
        self.feed = EventFeed()
        self._failures: dict[Group, list[RuntimeCallError]] = {}
        self._held: dict[Group, asyncio.Event] = {}
        self._next_pid = _FIRST_PID

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(range(self.facts.cpu_milli // 1000))

    # Knobs.

    def fail_next_write(self, group: Group, error: RuntimeCallError) -> None:
        """The next write to the group raises this instead; several queue up."""
        self._failures.setdefault(group, []).append(error)

    def hold_writes(self, group: Group) -> None:
        """Writes to the group wait until ``release_writes``."""
        self._held.setdefault(group, asyncio.Event())

    def release_writes(self, group: Group) -> None:
        held = self._held.pop(group, None)
        if held is not None:
            held.set()

    def use_memory(self, pod_uid: str, container: str, used_bytes: int) -> None:
        """The workload holds this much from now on; more than its limit kills it."""
        group = self.group(ContainerGroup(pod_uid, container))
        group.memory_usage_bytes = used_bytes
        limit_bytes = group.limits.memory_limit_bytes
        if limit_bytes is not None and used_bytes > limit_bytes:
            self.exit(pod_uid, container, _SIGKILL_CODE, oom_killed=True)

    def use_cpu(self, pod_uid: str, container: str, used_ns: int) -> None:
        self.group(ContainerGroup(pod_uid, container)).cpu_usage_ns += used_ns

    def set_limits(self, group: Group, limits: KernelLimits) -> None:
        """Somebody else wrote into the group: drift."""
        self.group(group).limits = limits

    def exit(
        self, pod_uid: str, container: str, exit_code: int, *, oom_killed: bool = False
    ) -> None:
        """The container ends by itself."""
        pod = self.pods[pod_uid]
        view = pod.containers[container]
        assert view.phase is ContainerPhase.RUNNING
        pod.containers[container] = msgspec.structs.replace(
            view,
            phase=ContainerPhase.EXITED,
            exit_code=exit_code,
            finished_at=self.clock.now(),
            oom_killed=oom_killed,
        )
        if oom_killed:
            self.group(PodGroup(pod_uid)).oom_kills += 1
        del self.groups[ContainerGroup(pod_uid, container)]
        if container == VM_NAME and pod_uid in self.vms:
            self.vms[pod_uid].end()
        self.feed.publish(RuntimeEvent(pod_uid, container))

    # What the driver below asks.

    def boot_vm(self, config: ContainerConfig) -> None:
        assert config.vm is not None
        uid = config.pod_uid
        self.vms[uid] = FakeVm(
            uid,
            config.vm,
            self.clock,
            lambda: self.feed.publish(RuntimeEvent(uid, VM_NAME)),
            accelerator=self.accelerator,
        )

    def lacks_image(self, config: ContainerConfig) -> str:
        """The name of an image that is not here; empty where all are."""
        if config.vm is None:
            return "" if config.image in self.image_names else config.image
        wanted = filter(None, (config.vm.kernel, config.vm.initrd, config.vm.disk))
        return next((name for name in wanted if name not in self.vm_image_names), "")

    def pull(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        password = self.pullable.get(ref)
        if password is None and ref not in self.image_names:
            raise ImageMissingError(f"image {ref} is in no registry")
        if password and password not in [login.password for login in logins]:
            raise ImageMissingError(f"image {ref}: the registry takes none of the logins")
        self.image_names = tuple(sorted({*self.image_names, ref}))

    def group(self, group: Group) -> _Group:
        try:
            return self.groups[group]
        except KeyError:
            raise GoneError(f"cannot read group {_shown(group)}: it does not exist") from None

    async def before_write(self, group: Group) -> None:
        held = self._held.get(group)
        if held is not None:
            await held.wait()
        failures = self._failures.get(group)
        if failures:
            raise failures.pop(0)

    def apply(self, group: Group, change: Change) -> None:
        """One write, by the kernel's rules."""
        entry = self.group(group)
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                self._check_quota(group, quota_us)
                kept = entry.limits.cpu_weight if weight is None else weight
                entry.limits = msgspec.structs.replace(
                    entry.limits, cpu_weight=kept, cpu_quota_us=quota_us
                )
            case SetMemory(limit_bytes=limit_bytes):
                pages = None if limit_bytes is None else whole_pages(limit_bytes)
                usage_bytes = self.usage_bytes(group)
                if limit_bytes is not None and pages is not None and usage_bytes > pages:
                    raise MemoryInUseError(_shown(group), limit_bytes, usage_bytes)
                entry.limits = msgspec.structs.replace(entry.limits, memory_limit_bytes=pages)
            case SetCpus(cpus=cpus):
                if not cpus or not set(cpus) <= set(self.cpus):
                    raise RuntimeCallError(f"cannot bind {_shown(group)} to the CPUs {cpus}")
                entry.cpus = tuple(sorted(cpus))

    def usage_bytes(self, group: Group) -> int:
        match group:
            case PodGroup(pod_uid=uid):
                return sum(entry.memory_usage_bytes for entry in self.containers_of(uid))
            case ContainerGroup():
                return self.group(group).memory_usage_bytes

    def containers_of(self, uid: str) -> list[_Group]:
        pod = self.pods.get(uid)
        names = () if pod is None else pod.containers
        found = (self.groups.get(ContainerGroup(uid, name)) for name in names)
        return [entry for entry in found if entry is not None]

    def next_pid(self) -> int:
        self._next_pid += 1
        return self._next_pid

    def write_log(self, config: ContainerConfig, output: str) -> str:
        if self.log_directory is None:
            return ""
        name = f"{config.pod_uid}-{config.name}-{config.attempt}.log"
        path = self.log_directory / name
        path.write_text(output)
        return str(path)

    def remove_logs(self, uid: str) -> None:
        if self.log_directory is not None:
            for path in self.log_directory.glob(f"{uid}-*.log"):
                path.unlink()

    def _check_quota(self, group: Group, quota_us: int | None) -> None:
        where = f"cannot write {quota_us} to the quota of {_shown(group)}"
        if quota_us is not None and quota_us < 1000:
            raise RuntimeCallError(f"{where}: the kernel refused the value (EINVAL)")
        if self.version is CgroupVersion.V2:
            return
        if any(_exceeds(inner, outer) for inner, outer in self._neighbours(group, quota_us)):
            raise RuntimeCallError(f"{where}: a child may not have more than its parent (EINVAL)")

    def _neighbours(
        self, group: Group, quota_us: int | None
    ) -> list[tuple[int | None, int | None]]:
        """Pairs of (inner, outer) quota that the change would make."""
        match group:
            case PodGroup(pod_uid=uid):
                return [(entry.limits.cpu_quota_us, quota_us) for entry in self.containers_of(uid)]
            case ContainerGroup(pod_uid=uid):
                return [(quota_us, self.group(PodGroup(uid)).limits.cpu_quota_us)]


class FakeRuntime:
    """The driver. Give two of them the same machine to try what a restarted agent finds."""

    def __init__(self, *, clock: Clock, machine: FakeMachine | None = None) -> None:
        self.world = machine or FakeMachine(clock)
        self._clock = clock
        self._feed = EventFeed()

    @property
    def cgroup_version(self) -> CgroupVersion:
        return self.world.version

    def machine(self) -> MachineFacts:
        return self.world.facts

    def cpus(self) -> tuple[int, ...]:
        return self.world.cpus

    def machine_usage(self) -> MachineUsage:
        """A machine on which nothing runs but its containers."""
        groups = self.world.groups.items()
        held = [entry for group, entry in groups if isinstance(group, ContainerGroup)]
        return MachineUsage(
            sum(entry.cpu_usage_ns for entry in held),
            sum(entry.memory_usage_bytes for entry in held),
        )

    async def open(self) -> None:
        self.world.feed = self._feed

    async def close(self) -> None:
        self._feed.close()

    def images(self) -> tuple[str, ...]:
        return self.world.image_names

    async def pull_image(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        self.world.pull(ref, logins)

    def list_pods(self) -> tuple[PodView, ...]:
        return tuple(_pod_view(self.world.pods[uid]) for uid in sorted(self.world.pods))

    def pod(self, uid: str) -> PodView | None:
        pod = self.world.pods.get(uid)
        return None if pod is None else _pod_view(pod)

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._feed.listen()

    async def create_pod(self, config: PodConfig) -> None:
        safe_name(config.uid)
        if config.uid in self.world.pods:
            return
        if self.world.create_error:
            raise RuntimeCallError(self.world.create_error)
        self.world.pods[config.uid] = _Pod(config, {}, {})
        self.world.groups[PodGroup(config.uid)] = _Group(_in_pages(config.limits))

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        pod = self.world.pods.get(config.pod_uid)
        if pod is None:
            raise GoneError(f"pod {config.pod_uid} does not exist on this machine")
        before = pod.containers.get(config.name)
        if before is not None and before.phase is ContainerPhase.RUNNING:
            if before.attempt == config.attempt:
                return before
            raise RuntimeCallError(f"container {config.name} still runs; stop it first")
        missing = self.world.lacks_image(config)
        if missing:
            raise ImageMissingError(f"image {missing} is not on this machine")
        command = (*config.command, *config.args)
        behaviour = self.world.behaviours.get(command, Behaviour())
        if behaviour.start_error:
            raise RuntimeCallError(f"cannot start container {config.name}: {behaviour.start_error}")
        self._make_group(config)
        pod.behaviours[config.name] = behaviour
        self.world.configs[config.pod_uid, config.name] = config
        pod.containers[config.name] = self._new_view(config, behaviour)
        if config.vm is not None:
            self.world.boot_vm(config)
        self._run(config, behaviour)
        return pod.containers[config.name]

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        pod = self.world.pods.get(pod_uid)
        view = None if pod is None else pod.containers.get(container)
        if pod is None or view is None or view.phase is not ContainerPhase.RUNNING:
            return
        if pod.behaviours[container].ignores_sigterm or grace_seconds <= 0:
            await self._clock.sleep(max(grace_seconds, 0))
            code = _SIGKILL_CODE
        else:
            code = _SIGTERM_CODE
        if pod.containers[container].phase is ContainerPhase.RUNNING:
            self.world.exit(pod_uid, container, code)

    async def remove_pod(self, uid: str) -> None:
        pod = self.world.pods.get(uid)
        if pod is None:
            return
        for name, view in pod.containers.items():
            if view.phase is ContainerPhase.RUNNING:
                raise RuntimeCallError(f"pod {uid}: container {name} still runs; stop it first")
        del self.world.pods[uid]
        self.world.vms.pop(uid, None)
        del self.world.groups[PodGroup(uid)]
        self.world.remove_logs(uid)

    def read(self, group: Group) -> Reading:
        entry = self.world.group(group)
        usage_bytes = self.world.usage_bytes(group)
        return Reading(
            limits=entry.limits,
            cpu_usage_ns=entry.cpu_usage_ns,
            memory_usage_bytes=usage_bytes,
            memory_unreclaimable_bytes=usage_bytes,
            oom_kills=entry.oom_kills,
            memory_working_set_bytes=usage_bytes,
        )

    def read_limits(self, group: Group) -> KernelLimits:
        return self.world.group(group).limits

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        return self.world.group(group).cpus

    async def write(self, group: Group, change: Change) -> None:
        await self.world.before_write(group)
        self.world.apply(group, change)
        self.world.writes.append((group, change))
        self.world.actions.append(change)

    def set_oom_score(self, group: ContainerGroup, score: int) -> None:
        self.world.oom_scores[group] = score

    async def run_command(
        self,
        pod_uid: str,
        container: str,
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],
        timeout_seconds: float,
    ) -> CommandResult:
        pod = self.world.pods.get(pod_uid)
        view = None if pod is None else pod.containers.get(container)
        if view is None or view.phase is not ContainerPhase.RUNNING:
            raise GoneError(f"container {container} of pod {pod_uid} does not run")
        self.world.commands.append((container, command, dict(env)))
        behaviour = self.world.behaviours.get(command, Behaviour(exit_code=0))
        if behaviour.start_error:
            raise RuntimeCallError(f"cannot run {command[0]}: {behaviour.start_error}")
        if behaviour.exit_code is None:
            await self._clock.sleep(timeout_seconds)
            raise CommandTimeoutError(f"{command[0]} did not end within {timeout_seconds:g} s")
        return CommandResult(behaviour.exit_code, behaviour.output)

    async def exec(self, request: ExecRequest) -> Session:
        self._require_running(request.pod_uid, request.container)
        behaviour = self.world.behaviours.get(request.command, Behaviour(exit_code=0))
        if behaviour.start_error:
            raise RuntimeCallError(behaviour.start_error)
        return FakeSession(request.command, behaviour.output, behaviour.exit_code)

    async def attach(self, pod_uid: str, container: str) -> Session:
        self._require_running(pod_uid, container)
        return FakeSession((), "", None)

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        raise RuntimeCallError(f"cannot connect to port {port} of {pod_uid}: it is in memory")

    async def read_log(self, query: LogQuery) -> LogLines:
        pod = self.world.pods.get(query.pod_uid)
        view = None if pod is None else pod.containers.get(query.container)
        if pod is None or view is None or (query.previous and not view.attempt):
            raise NoLogError(f"container {query.container} has no such log")
        events = self._feed.listen()
        yield ()
        yield fake_lines(pod.behaviours[query.container].output, view.started_at, query)
        while query.follow and pod.containers[query.container].phase is ContainerPhase.RUNNING:
            await anext(events)

    def vm(self, pod_uid: str) -> VmView | None:
        vm = self.world.vms.get(pod_uid)
        return None if vm is None else vm.view()

    async def refresh_vm(self, pod_uid: str) -> VmView:
        return self._require_vm(pod_uid).view()

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        self._require_vm(pod_uid).change(change)
        self.world.actions.append(change)

    async def wait_vm(
        self, pod_uid: str, holds: Callable[[VmView], bool], timeout_seconds: float
    ) -> VmView:
        return await self._require_vm(pod_uid).wait(holds, timeout_seconds)

    def _require_running(self, pod_uid: str, container: str) -> None:
        pod = self.world.pods.get(pod_uid)
        view = None if pod is None else pod.containers.get(container)
        if view is None:
            raise GoneError(f"container {container} of pod {pod_uid} was not started here")
        if view.phase is not ContainerPhase.RUNNING:
            raise NotRunningError(f"container {container} does not run")

    def _require_vm(self, pod_uid: str) -> FakeVm:
        vm = self.world.vms.get(pod_uid)
        if vm is None or not vm.running:
            raise GoneError(f"pod {pod_uid} has no running VM on this machine")
        return vm

    def _make_group(self, config: ContainerConfig) -> None:
        """With its limits; not counted among the writes, which are resizes."""
        group = ContainerGroup(config.pod_uid, safe_name(config.name))
        self.world.groups[group] = _Group(KernelLimits(config.limits.cpu_weight, None, None))
        try:
            self.world.apply(group, SetMemory(config.limits.memory_limit_bytes))
            quota_us = config.limits.cpu_quota_us
            self.world.apply(group, SetCpu(config.limits.cpu_weight, quota_us))
            if config.cpus:
                self.world.apply(group, SetCpus(config.cpus))
        except RuntimeCallError:
            del self.world.groups[group]
            raise

    def _new_view(self, config: ContainerConfig, behaviour: Behaviour) -> ContainerView:
        return ContainerView(
            id=f"{config.pod_uid}-{config.name}-{config.attempt}",
            pod_uid=config.pod_uid,
            name=config.name,
            phase=ContainerPhase.RUNNING,
            attempt=config.attempt,
            image=config.image,
            image_id=f"sha256:{config.image}",
            hash=config.hash,
            hash_without_resources=config.hash_without_resources,
            pid=self.world.next_pid(),
            started_at=self._clock.now(),
            log_path=self.world.write_log(config, behaviour.output),
        )

    def _run(self, config: ContainerConfig, behaviour: Behaviour) -> None:
        self.world.use_memory(config.pod_uid, config.name, behaviour.memory_bytes)
        view = self.world.pods[config.pod_uid].containers[config.name]
        if behaviour.exit_code is not None and view.phase is ContainerPhase.RUNNING:
            self.world.exit(config.pod_uid, config.name, behaviour.exit_code)


def _pod_view(pod: _Pod) -> PodView:
    containers = tuple(pod.containers[name] for name in sorted(pod.containers))
    return PodView(pod.config.uid, pod.config.namespace, pod.config.name, containers)


def _in_pages(limits: KernelLimits) -> KernelLimits:
    if limits.memory_limit_bytes is None:
        return limits
    pages = whole_pages(limits.memory_limit_bytes)
    return msgspec.structs.replace(limits, memory_limit_bytes=pages)


def _exceeds(inner_us: int | None, outer_us: int | None) -> bool:
    return inner_us is not None and outer_us is not None and inner_us > outer_us


def _shown(group: Group) -> str:
    match group:
        case PodGroup(pod_uid=uid):
            return f"pod {uid}"
        case ContainerGroup(pod_uid=uid, container=name):
            return f"container {name} of pod {uid}"
