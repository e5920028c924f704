"""Single containers: made, started, looked at, resized, stopped and removed through containerd."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import Clock
from livesize.runtime.containerd.cri_client import (
    ContainerdUnreachableError,
    CriClient,
    CriRefusedError,
)
from livesize.runtime.containerd.messages import (
    CONTAINER_RUNNING,
    ContainerFilter,
    ProtobufMessage,
)
from livesize.runtime.containerd.requests import (
    CONTAINER_LABEL,
    NODE_LABEL,
    POD_LABEL,
    container_config,
    cpu_list_resources,
    cpu_resources,
    memory_resources,
)
from livesize.runtime.containerd.sandboxes import Sandbox, Sandboxes
from livesize.runtime.containerd.shim_exit import ENDING_DELAYS, ask_until_noticed
from livesize.runtime.containerd.views import container_view, recorded_limits
from livesize.runtime.interface import (
    CommandResult,
    CommandTimeoutError,
    ContainerConfig,
    ContainerView,
    GoneError,
    RuntimeCallError,
)

KILL_SECONDS = 30.0
START_SECONDS = 60.0
_RESERVED = "failed to reserve container name"
_MOST_LOGS = 2


class ListedContainer(msgspec.Struct, frozen=True):
    id: str
    pod_uid: str
    name: str
    attempt: int
    state: int


class Containers:
    """``logs``: the folder that has a folder of log files for each pod."""

    def __init__(
        self, client: CriClient, node_uid: str, logs: Path, version: CgroupVersion, clock: Clock
    ) -> None:
        self._client = client
        self._node_uid = node_uid
        self._logs = logs
        self._version = version
        self._clock = clock

    async def listing(
        self, labels: Mapping[str, str] = MappingProxyType({})
    ) -> list[ListedContainer]:
        """Of this node, with these labels; oldest attempt first."""
        wanted = ContainerFilter(label_selector={NODE_LABEL: self._node_uid, **labels})
        answer = await self._client.call("ListContainers", filter=wanted)
        found = [
            ListedContainer(
                one.id,
                one.labels.get(POD_LABEL, ""),
                one.metadata.name,
                one.metadata.attempt,
                one.state,
            )
            for one in answer.containers
        ]
        return sorted(found, key=lambda one: (one.pod_uid, one.name, one.attempt))

    async def create(
        self, config: ContainerConfig, sandbox: Sandbox, sandboxes: Sandboxes, image_id: str
    ) -> str:
        """Make it; it does not run yet. Returns its id."""
        log_path = self._prepare_log(config)
        fields = {
            "pod_sandbox_id": sandbox.id,
            "sandbox_config": sandboxes.config(sandbox.pod, sandbox.attempt),
            "config": container_config(
                config,
                sandbox.pod,
                node_uid=self._node_uid,
                image_id=image_id,
                log_path=log_path,
                version=self._version,
            ),
        }
        try:
            answer = await self._client.call("CreateContainer", **fields)
        except CriRefusedError as refusal:
            if _RESERVED not in str(refusal):
                raise
            # Left by an agent or a containerd that was killed while it made this very start.
            await self._remove_attempt(config)
            answer = await self._client.call("CreateContainer", **fields)
        return str(answer.container_id)

    async def start(self, container_id: str) -> None:
        """Start it; where that fails it is gone again, unless it runs all the same."""
        try:
            await self._client.call(
                "StartContainer", seconds=START_SECONDS, container_id=container_id
            )
        except RuntimeCallError:
            if await self._runs(container_id):  # only the answer was lost
                return
            with contextlib.suppress(RuntimeCallError):
                await self.remove(container_id)
            raise

    async def view(self, container_id: str) -> ContainerView | None:
        """None: it was made and never started."""
        answer = await self._status(container_id)
        return container_view(answer)

    async def recorded_limits(self, container_id: str) -> KernelLimits:
        """As containerd remembers them, which need not be the kernel's."""
        return recorded_limits(await self._status(container_id), self._version)

    async def ended_view(self, container_id: str) -> ContainerView | None:
        """Of one whose first process has ended: containerd notes that a moment later."""
        for delay_seconds in ENDING_DELAYS:
            answer = await self._status(container_id)
            if answer.status.state != CONTAINER_RUNNING:
                return container_view(answer)
            await self._clock.sleep(delay_seconds)
        return await self.view(container_id)

    async def stop(self, container_id: str, grace_seconds: float) -> None:
        """containerd counts whole seconds; we let it count more, and are exact ourselves."""
        if grace_seconds > 0:
            with contextlib.suppress(TimeoutError, CriRefusedError):
                async with asyncio.timeout(grace_seconds):
                    await self._stop(container_id, math.ceil(grace_seconds) + 1)
                    return
        await ask_until_noticed(self._clock, lambda: self._stop(container_id, 0))

    async def remove(self, container_id: str) -> None:
        with contextlib.suppress(GoneError):
            await self._client.call("RemoveContainer", container_id=container_id)

    async def set_cpu(self, container_id: str, weight: int | None, quota_us: int | None) -> None:
        await self._update(container_id, cpu_resources(weight, quota_us, self._version))

    async def tell_limits(
        self, container_id: str, limits: KernelLimits, *, memory: bool, patient: bool
    ) -> None:
        """What the kernel has already, in one call: CPU, and where that is said ``memory``."""
        resources = cpu_resources(limits.cpu_weight, limits.cpu_quota_us, self._version)
        if memory:
            resources.MergeFrom(memory_resources(limits.memory_limit_bytes))
        await self._update(container_id, resources, patient=patient)

    async def set_memory(self, container_id: str, limit_bytes: int | None) -> None:
        await self._update(container_id, memory_resources(limit_bytes))

    async def run_command(
        self, container_id: str, command: tuple[str, ...], timeout_seconds: float
    ) -> CommandResult:
        """containerd counts whole seconds; we are exact, and let it end what is left."""
        seconds = math.ceil(timeout_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._client.call(
                    "ExecSync",
                    seconds=seconds + KILL_SECONDS,
                    container_id=container_id,
                    cmd=command,
                    timeout=seconds,
                )
        except (TimeoutError, ContainerdUnreachableError) as failure:
            raise CommandTimeoutError(
                f"{command[0]} did not end within {timeout_seconds:g} s"
            ) from failure
        output = (answer.stdout + answer.stderr).decode(errors="replace")
        return CommandResult(answer.exit_code, output)

    async def set_cpus(self, container_id: str, cpus: tuple[int, ...]) -> None:
        await self._update(container_id, cpu_list_resources(cpus))

    async def _update(
        self, container_id: str, resources: ProtobufMessage, *, patient: bool = True
    ) -> None:
        await self._client.call(
            "UpdateContainerResources",
            patient=patient,
            container_id=container_id,
            linux=resources,
        )

    async def _stop(self, container_id: str, grace: int) -> None:
        seconds = grace + KILL_SECONDS
        await self._client.call(
            "StopContainer", seconds=seconds, container_id=container_id, timeout=grace
        )

    async def _status(self, container_id: str) -> ProtobufMessage:
        return await self._client.call("ContainerStatus", container_id=container_id, verbose=True)

    async def _runs(self, container_id: str) -> bool:
        try:
            return bool((await self._status(container_id)).status.state == CONTAINER_RUNNING)
        except RuntimeCallError:
            return False

    async def _remove_attempt(self, config: ContainerConfig) -> None:
        labels = {POD_LABEL: config.pod_uid, CONTAINER_LABEL: config.name}
        for one in await self.listing(labels):
            if one.attempt == config.attempt:
                await self.remove(one.id)

    def _prepare_log(self, config: ContainerConfig) -> str:
        """This start's log and the one before are kept. The path is relative to the pod's."""
        folder = self._logs / config.pod_uid / config.name
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.log*"):
            attempt = path.name.partition(".")[0]
            if attempt.isdigit() and int(attempt) <= config.attempt - _MOST_LOGS:
                path.unlink(missing_ok=True)
        return f"{config.name}/{config.attempt}.log"
