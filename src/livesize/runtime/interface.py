"""What the node agent asks of a machine; the process runtime, CRI and the fake pass one suite.

Limits cross this border in kernel units (livesize.api.kernel_units), so that what was asked and
what was read back can be compared exactly. Groups are what a cgroup driver calls them: one per
pod, one per container below it. A driver makes no choices: it does what it is told, or raises.
Everything here survives the agent: a new agent finds the same pods with ``list_pods``.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.runtime_features import NO_FEATURES, RuntimeFeatures
from livesize.runtime.vm_config import VmConfig

if TYPE_CHECKING:
    from livesize.runtime.streams import (
        AttachRequest,
        ExecRequest,
        LogLines,
        LogQuery,
        PortStreams,
        Session,
    )


class RuntimeCallError(Exception):
    """The machine did not do what was asked; the sentence says what, on what, and why.

    Worth another try later, unless a subclass says otherwise.
    """


class ImageMissingError(RuntimeCallError):
    """The image is not on this machine."""


class StartRefusedError(RuntimeCallError):
    """What the container asks for cannot be given; another try changes nothing."""


class GoneError(RuntimeCallError):
    """The pod or container does not exist (any more)."""


class CommandTimeoutError(RuntimeCallError):
    """A command in a container took too long, and was ended."""


class MemoryInUseError(RuntimeCallError):
    """A memory limit was not lowered because the workload holds more than that, or so much that no
    room would be left: ``margin_bytes``. ``stays_bytes``: the limit until then; None: no limit."""

    def __init__(
        self,
        group: str,
        limit_bytes: int,
        usage_bytes: int,
        stays_bytes: int | None,
        margin_bytes: int = 0,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.usage_bytes = usage_bytes
        self.to_go_bytes = usage_bytes + margin_bytes - limit_bytes
        less = "" if usage_bytes > limit_bytes else f" less a margin of {margin_bytes} is"
        stays = "there is no limit" if stays_bytes is None else f"the limit stays at {stays_bytes}"
        super().__init__(
            f"{group}: memory limit ({limit_bytes}){less} below current usage ({usage_bytes}),"
            f" {self.to_go_bytes} bytes to go; until then {stays}"
        )


class PodGroup(msgspec.Struct, frozen=True, tag=True):
    pod_uid: str


class ContainerGroup(msgspec.Struct, frozen=True, tag=True):
    pod_uid: str
    container: str


Group: TypeAlias = PodGroup | ContainerGroup


class PodConfig(msgspec.Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    limits: KernelLimits
    vm: bool = False  # its one container is a virtual machine
    host_network: bool = True  # False: a network of its own, where the runtime can make one
    hostname: str = ""  # empty: its name
    privileged: bool = False  # one of its containers may all that root may
    sysctls: tuple[tuple[str, str], ...] = ()  # kernel settings of its own


class Mount(msgspec.Struct, frozen=True):
    """A file or folder of this machine that appears in the container."""

    source: str
    target: str  # absolute, in the container
    read_only: bool = False


class ContainerConfig(msgspec.Struct, frozen=True):
    """One start of one container. ``attempt`` counts its restarts, from 0."""

    pod_uid: str
    name: str
    image: str
    command: tuple[str, ...]  # replaces the image's entrypoint; empty: the image's
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    working_dir: str
    hostname: str
    limits: KernelLimits
    attempt: int = 0
    hash: str = ""
    hash_without_resources: str = ""
    run_as_user: int | None = None
    run_as_group: int | None = None
    read_only_root: bool = False
    stdin: bool = False  # something may be attached to its input, which until then is empty
    stdin_once: bool = False  # and ends with who was attached first, where the runtime can do so
    tty: bool = False  # a terminal, where the runtime can make one
    oom_score_adj: int | None = None
    host_network: bool = True
    cpus: tuple[int, ...] = ()  # those it may run on; empty: all
    vm: VmConfig | None = None  # set: a virtual machine, and image and command mean nothing
    mounts: tuple[Mount, ...] = ()  # one within another comes after it
    groups: tuple[int, ...] = ()  # besides its user's own
    run_as_non_root: bool = False
    add_capabilities: tuple[str, ...] = ()  # by name, without CAP_; or ALL
    drop_capabilities: tuple[str, ...] = ()
    seccomp_unconfined: bool = False  # False: the runtime's own profile
    privileged: bool = False  # all that root may, where the runtime can


class ContainerPhase(enum.StrEnum):
    RUNNING = "running"
    EXITED = "exited"


class ContainerView(msgspec.Struct, frozen=True):
    """What the machine says of the newest start of one container."""

    id: str
    pod_uid: str
    name: str
    phase: ContainerPhase
    attempt: int
    image: str
    image_id: str
    hash: str
    hash_without_resources: str
    pid: int
    started_at: float  # seconds since the epoch
    finished_at: float | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    log_path: str = ""
    note: str = ""  # what could not be had, and was done without
    before_boot: bool = False  # the machine was started anew since


class PodView(msgspec.Struct, frozen=True):
    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerView, ...]  # by name
    address: str = ""  # empty: the machine's own


class Reading(msgspec.Struct, frozen=True):
    """One group, read just now."""

    limits: KernelLimits
    cpu_usage_ns: int
    memory_usage_bytes: int
    memory_unreclaimable_bytes: int
    oom_kills: int
    memory_working_set_bytes: int  # what it holds, without file pages nobody asked for lately


class CommandResult(msgspec.Struct, frozen=True):
    """How a command beside a container's first process went; both outputs, in one text."""

    exit_code: int
    output: str = ""


class MachineFacts(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_bytes: int
    kernel_version: str
    os_image: str
    architecture: str  # as Kubernetes names it: amd64
    boot_id: str
    machine_id: str
    runtime_version: str  # for instance process://0.1.0
    features: RuntimeFeatures = NO_FEATURES


class MachineUsage(msgspec.Struct, frozen=True):
    """The whole machine, also what is not ours. CPU counts up from its start."""

    cpu_usage_ns: int
    memory_working_set_bytes: int


class RuntimeEvent(msgspec.Struct, frozen=True):
    """Something happened to a container by itself: look at its pod again. ``container`` empty: to
    a group of the pod."""

    pod_uid: str
    container: str


class RegistryLogin(msgspec.Struct, frozen=True):
    """How to enter a registry; what is empty is not used."""

    server_address: str = ""
    username: str = ""
    password: str = ""
    auth: str = ""
    identity_token: str = ""
    registry_token: str = ""


class Runtime(Protocol):
    @property
    def cgroup_version(self) -> CgroupVersion: ...

    def machine(self) -> MachineFacts: ...

    def machine_usage(self) -> MachineUsage: ...

    def cpus(self) -> tuple[int, ...]:
        """The CPUs that containers can be bound to, by number. Raises where they cannot be."""
        ...

    async def open(self) -> None:
        """Make ready, and re-attach to what already runs."""
        ...

    async def close(self) -> None:
        """Let go of everything; workloads go on."""
        ...

    def images(self) -> tuple[str, ...]: ...

    async def pull_image(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        """Have the newest image of that name on this machine. A runtime that knows no registries
        has no newer one than what was imported. ImageMissingError says why it cannot be had."""
        ...

    def list_pods(self) -> tuple[PodView, ...]: ...

    def pod(self, uid: str) -> PodView | None: ...

    async def create_pod(self, config: PodConfig) -> None:
        """Make the pod's group and set its limits; harmless where it exists already. The group of
        a pod that is known and has lost it, however that came, is made again."""
        ...

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        """Start it in its own group below the pod's; the limits stand before it runs."""
        ...

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL to all that is left in the group; returns when the
        group is empty. Harmless where it does not run."""
        ...

    async def remove_pod(self, uid: str) -> None:
        """Remove a pod whose containers have stopped, with groups, files and logs."""
        ...

    def read(self, group: Group) -> Reading: ...

    def read_limits(self, group: Group) -> KernelLimits:
        """What ``read`` says of the limits, without the counters, which cost far more."""
        ...

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        """What the machine now holds of just that which ``change`` sets."""
        ...

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        """The CPUs that it was told to run on, in order; None: it has none of its own."""
        ...

    async def write(self, group: Group, change: GroupChange) -> None:
        """Change one group; only the named values are touched. A memory limit that would kill
        the workload is refused with MemoryInUseError and nothing is changed."""
        ...

    def set_oom_score(self, group: ContainerGroup, score: int) -> None:
        """How readily the kernel kills what runs in there when memory runs short (-1000 to 1000).
        What this machine does not allow is left as it is, and logged."""
        ...

    async def run_command(
        self,
        pod_uid: str,
        container: str,
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],
        timeout_seconds: float,
    ) -> CommandResult:
        """Run a short command to its end, with all that is the container's and ``env`` besides.
        CommandTimeoutError: it took longer; other errors: it could not be started."""
        ...

    def events(self) -> AsyncIterator[RuntimeEvent]: ...

    async def exec(self, request: ExecRequest) -> Session:
        """Run a command beside the container's first process, in all that is the container's."""
        ...

    async def attach(self, request: AttachRequest) -> Session:
        """The container's first process, from now on."""
        ...

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        """To a port that a container of the pod listens on."""
        ...

    def read_log(self, query: LogQuery) -> LogLines:
        """Its lines, several at once, oldest first; with ``follow`` until the container ends.
        Raises GoneError, at once or at the first lines, where there is none."""
        ...
