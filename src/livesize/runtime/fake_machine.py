"""A machine in memory: the world that a FakeRuntime (fake.py) drives, with knobs for tests.

It survives a FakeRuntime, as a real machine survives the agent. It keeps the kernel's rules where
they matter for the order of writes: on version 1 a child's quota never exceeds its parent's, and a
memory limit below what is in use is refused. A virtual machine is a FakeVm (fake_vm.py), found in
``FakeMachine.vms`` by its pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.resources import VM_NAME
from livesize.api.vm_changes import VmChange
from livesize.machinery.context import Context
from livesize.runtime.cgroups.interface import whole_pages
from livesize.runtime.events import EventFeed
from livesize.runtime.fake_vm import FakeVm
from livesize.runtime.interface import (
    ContainerConfig,
    ContainerGroup,
    ContainerPhase,
    ContainerView,
    GoneError,
    Group,
    ImageMissingError,
    MachineFacts,
    MemoryInUseError,
    PodConfig,
    PodGroup,
    RegistryLogin,
    RuntimeCallError,
    RuntimeEvent,
)
from livesize.runtime.vm import Accelerator

FAKE_IMAGE = "localhost/livesize/busybox:1"
FAKE_VM_IMAGES = ("guest.vmlinuz", "guest.initrd", "disk.qcow2")
_GIB = 1024**3
_FIRST_PID = 1000
SIGTERM_CODE = 143
SIGKILL_CODE = 137


class Behaviour(msgspec.Struct, frozen=True):
    """What a command does when it is run here. By default it runs until SIGTERM."""

    exit_code: int | None = None  # ends at once with this status
    memory_bytes: int = 1024 * 1024  # holds this much; above its limit it is OOM-killed
    output: str = ""
    answers: str = ""  # it writes this before everything it reads
    ignores_sigterm: bool = False
    start_error: str = ""  # cannot be started, for this reason


class FakeGroup(msgspec.Struct):
    limits: KernelLimits
    memory_usage_bytes: int = 0
    cpu_usage_ns: int = 0
    oom_kills: int = 0
    cpus: tuple[int, ...] | None = None


class FakePod(msgspec.Struct):
    config: PodConfig
    containers: dict[str, ContainerView]
    behaviours: dict[str, Behaviour]


class FakeMachine:
    """The world. Everything a test may do to it is a method here."""

    def __init__(
        self,
        context: Context,
        *,
        version: CgroupVersion = CgroupVersion.V1,
        cpu_milli: int = 4000,
        memory_bytes: int = 16 * _GIB,
        images: Sequence[str] = (FAKE_IMAGE,),
        behaviours: Mapping[tuple[str, ...], Behaviour] | None = None,
    ) -> None:
        self.context = context
        self.clock = context.clock
        self.version = version
        self.image_names = tuple(images)
        self.behaviours = dict(behaviours or {})  # by command and args
        self.create_error = ""  # pods cannot be made, for this reason
        self.pullable: dict[str, str] = {}  # images to be pulled: name to password, or empty
        self.vm_image_names = FAKE_VM_IMAGES
        self.accelerator = Accelerator.TCG
        self.writes: list[tuple[Group, GroupChange]] = []  # those that succeeded, in order
        self.actions: list[GroupChange | VmChange] = []  # these and changes of VMs, in order
        self.log_directory: Path | None = None  # where given, output is written below it
        self.facts = MachineFacts(
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            kernel_version="6.1.0",
            os_image="Fake Linux",
            architecture="amd64",
            boot_id="00000000-0000-0000-0000-000000000001",
            machine_id="fake",
            runtime_version="fake://1",
        )
        self.pods: dict[str, FakePod] = {}
        self.commands: list[tuple[str, tuple[str, ...], dict[str, str]]] = []  # run in containers
        self.configs: dict[tuple[str, str], ContainerConfig] = {}  # newest start, by pod and name
        self.oom_scores: dict[ContainerGroup, int] = {}
        self.vms: dict[str, FakeVm] = {}  # by pod uid
        self.groups: dict[Group, FakeGroup] = {}
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
            self.exit(pod_uid, container, SIGKILL_CODE, oom_killed=True)

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
        self.groups.pop(ContainerGroup(pod_uid, container), None)
        if container == VM_NAME and pod_uid in self.vms:
            self.vms[pod_uid].end()
        self.feed.publish(RuntimeEvent(pod_uid, container))

    def lose_groups(self, pod_uid: str, *, kill: bool = True) -> None:
        """Somebody else removes the pod's groups, and kills what is in them or moves it out."""
        for name, view in tuple(self.pods[pod_uid].containers.items()):
            if view.phase is ContainerPhase.RUNNING:
                if kill:
                    self.exit(pod_uid, name, SIGKILL_CODE)
                self.groups.pop(ContainerGroup(pod_uid, name), None)
        self.groups.pop(PodGroup(pod_uid), None)
        self.feed.publish(RuntimeEvent(pod_uid, ""))

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

    def group(self, group: Group) -> FakeGroup:
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

    def apply(self, group: Group, change: GroupChange) -> None:
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
                    stays_bytes = entry.limits.memory_limit_bytes
                    raise MemoryInUseError(_shown(group), limit_bytes, usage_bytes, stays_bytes)
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

    def containers_of(self, uid: str) -> list[FakeGroup]:
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


def _exceeds(inner_us: int | None, outer_us: int | None) -> bool:
    return inner_us is not None and outer_us is not None and inner_us > outer_us


def _shown(group: Group) -> str:
    match group:
        case PodGroup(pod_uid=uid):
            return f"pod {uid}"
        case ContainerGroup(pod_uid=uid, container=name):
            return f"container {name} of pod {uid}"
