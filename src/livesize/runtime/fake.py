"""A runtime in memory, for tests and demonstrations: a driver on a FakeMachine (fake_machine.py).

It passes the same suite as the real ones (tests/contract/test_runtime_contract.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.vm_changes import VmChange
from livesize.machinery.context import Context
from livesize.runtime.cgroups.interface import safe_name, whole_pages
from livesize.runtime.events import EventFeed
from livesize.runtime.fake_machine import (
    FAKE_IMAGE,
    SIGKILL_CODE,
    SIGTERM_CODE,
    Behaviour,
    FakeGroup,
    FakeMachine,
    FakePod,
)
from livesize.runtime.fake_streams import FakeSession, fake_lines
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.interface import (
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
    PodConfig,
    PodGroup,
    PodView,
    Reading,
    RegistryLogin,
    RuntimeCallError,
    RuntimeEvent,
)
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLines,
    LogQuery,
    NoLogError,
    NotRunningError,
    PortStreams,
    Session,
)
from livesize.runtime.vm import VmView
from livesize.runtime.vm_checks import check_sizes

__all__ = ["FAKE_IMAGE", "Behaviour", "FakeMachine", "FakeRuntime"]


class FakeRuntime:
    """The driver. Give two of them the same machine to try what a restarted agent finds."""

    def __init__(self, *, context: Context, machine: FakeMachine | None = None) -> None:
        self.world = machine or FakeMachine(context)
        self._clock = context.clock
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
        for vm in self.world.vms.values():
            vm.memory.forget_unplugs()

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
        if config.uid in self.world.pods and PodGroup(config.uid) in self.world.groups:
            return
        if self.world.create_error:
            raise RuntimeCallError(self.world.create_error)
        self.world.pods.setdefault(config.uid, FakePod(config, {}, {}))
        self.world.groups[PodGroup(config.uid)] = FakeGroup(_in_pages(config.limits))

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        pod = self.world.pods.get(config.pod_uid)
        if pod is None:
            raise GoneError(f"pod {config.pod_uid} does not exist on this machine")
        before = pod.containers.get(config.name)
        if before is not None and before.phase is ContainerPhase.RUNNING:
            if before.attempt == config.attempt:
                return before
            raise RuntimeCallError(f"container {config.name} still runs; stop it first")
        if config.vm is not None:
            check_sizes(config.vm)
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
            code = SIGKILL_CODE
        else:
            code = SIGTERM_CODE
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
        self.world.groups.pop(PodGroup(uid), None)
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

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        held = self.world.group(group)
        match change:
            case SetCpu():
                return SetCpu(held.limits.cpu_weight, held.limits.cpu_quota_us)
            case SetMemory():
                return SetMemory(held.limits.memory_limit_bytes)
            case SetCpus():
                return SetCpus(held.cpus or ())

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        return self.world.group(group).cpus

    async def write(self, group: Group, change: GroupChange) -> None:
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

    async def attach(self, request: AttachRequest) -> Session:
        self._require_running(request.pod_uid, request.container)
        behaviour = self.world.pods[request.pod_uid].behaviours[request.container]
        return FakeSession((), "", None, answers=behaviour.answers)

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
        self.world.groups[group] = FakeGroup(KernelLimits(config.limits.cpu_weight, None, None))
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


def _pod_view(pod: FakePod) -> PodView:
    containers = tuple(pod.containers[name] for name in sorted(pod.containers))
    return PodView(pod.config.uid, pod.config.namespace, pod.config.name, containers)


def _in_pages(limits: KernelLimits) -> KernelLimits:
    if limits.memory_limit_bytes is None:
        return limits
    pages = whole_pages(limits.memory_limit_bytes)
    return msgspec.structs.replace(limits, memory_limit_bytes=pages)
