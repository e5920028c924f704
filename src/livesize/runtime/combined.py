"""One runtime made of two: containers go to the one, virtual machines to the other.

A pod belongs to the driver that made it, for as long as it exists. Both drivers publish into one
feed, which the composition root gives to all three.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from livesize.api.group_changes import GroupChange
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.vm_changes import VmChange
from livesize.runtime.events import EventFeed
from livesize.runtime.interface import (
    CommandResult,
    ContainerConfig,
    ContainerGroup,
    ContainerView,
    Group,
    MachineFacts,
    MachineUsage,
    PodConfig,
    PodView,
    Reading,
    RegistryLogin,
    Runtime,
    RuntimeEvent,
)
from livesize.runtime.streams import (
    AttachRequest,
    ExecRequest,
    LogLines,
    LogQuery,
    PortStreams,
    Session,
)
from livesize.runtime.vm import VmRuntime, VmView


class CombinedRuntime:
    def __init__(self, containers: Runtime, machines: VmRuntime, feed: EventFeed) -> None:
        self._containers = containers
        self._machines = machines
        self._feed = feed

    @property
    def cgroup_version(self) -> CgroupVersion:
        return self._containers.cgroup_version

    def machine(self) -> MachineFacts:
        return self._containers.machine()

    def cpus(self) -> tuple[int, ...]:
        return self._containers.cpus()

    def machine_usage(self) -> MachineUsage:
        return self._containers.machine_usage()

    async def open(self) -> None:
        """Containers first: what is wrong with VMs must not keep them from being found."""
        await self._containers.open()
        try:
            await self._machines.open()
        except BaseException:
            await self._containers.close()
            raise

    async def close(self) -> None:
        try:
            await self._machines.close()
        finally:
            await self._containers.close()

    def images(self) -> tuple[str, ...]:
        return (*self._containers.images(), *self._machines.images())

    async def pull_image(self, ref: str, logins: tuple[RegistryLogin, ...]) -> None:
        await self._containers.pull_image(ref, logins)

    def list_pods(self) -> tuple[PodView, ...]:
        both = (*self._containers.list_pods(), *self._machines.list_pods())
        return tuple(sorted(both, key=lambda pod: pod.uid))

    def pod(self, uid: str) -> PodView | None:
        return self._of(uid).pod(uid)

    async def create_pod(self, config: PodConfig) -> None:
        chosen = self._machines if config.vm else self._containers
        await chosen.create_pod(config)

    async def start_container(self, config: ContainerConfig) -> ContainerView:
        return await self._of(config.pod_uid).start_container(config)

    async def stop_container(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        await self._of(pod_uid).stop_container(pod_uid, container, grace_seconds)

    async def remove_pod(self, uid: str) -> None:
        await self._of(uid).remove_pod(uid)

    def read(self, group: Group) -> Reading:
        return self._of(group.pod_uid).read(group)

    def read_limits(self, group: Group) -> KernelLimits:
        return self._of(group.pod_uid).read_limits(group)

    def read_back(self, group: Group, change: GroupChange) -> GroupChange:
        return self._of(group.pod_uid).read_back(group, change)

    def read_cpus(self, group: ContainerGroup) -> tuple[int, ...] | None:
        return self._of(group.pod_uid).read_cpus(group)

    async def write(self, group: Group, change: GroupChange) -> None:
        await self._of(group.pod_uid).write(group, change)

    def set_oom_score(self, group: ContainerGroup, score: int) -> None:
        self._of(group.pod_uid).set_oom_score(group, score)

    async def run_command(
        self,
        pod_uid: str,
        container: str,
        command: tuple[str, ...],
        *,
        env: tuple[tuple[str, str], ...],
        timeout_seconds: float,
    ) -> CommandResult:
        return await self._of(pod_uid).run_command(
            pod_uid, container, command, env=env, timeout_seconds=timeout_seconds
        )

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._feed.listen()

    async def exec(self, request: ExecRequest) -> Session:
        return await self._of(request.pod_uid).exec(request)

    async def attach(self, request: AttachRequest) -> Session:
        return await self._of(request.pod_uid).attach(request)

    async def connect(self, pod_uid: str, port: int) -> PortStreams:
        return await self._of(pod_uid).connect(pod_uid, port)

    def read_log(self, query: LogQuery) -> LogLines:
        return self._of(query.pod_uid).read_log(query)

    def vm(self, pod_uid: str) -> VmView | None:
        return self._machines.vm(pod_uid)

    async def refresh_vm(self, pod_uid: str) -> VmView:
        return await self._machines.refresh_vm(pod_uid)

    async def change_vm(self, pod_uid: str, change: VmChange) -> None:
        await self._machines.change_vm(pod_uid, change)

    async def wait_vm(
        self, pod_uid: str, holds: Callable[[VmView], bool], timeout_seconds: float
    ) -> VmView:
        return await self._machines.wait_vm(pod_uid, holds, timeout_seconds)

    def _of(self, uid: str) -> Runtime:
        return self._containers if self._machines.pod(uid) is None else self._machines
