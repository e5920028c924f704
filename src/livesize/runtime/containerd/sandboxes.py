"""The sandboxes of pods: one is made with the pod, another when the first has died."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import safe_name
from livesize.runtime.containerd.cri_client import CriClient, CriRefusedError
from livesize.runtime.containerd.group_layout import GroupLayout
from livesize.runtime.containerd.messages import SANDBOX_READY, PodSandboxFilter, ProtobufMessage
from livesize.runtime.containerd.requests import NODE_LABEL, POD_LABEL, sandbox_config
from livesize.runtime.containerd.shim_exit import ask_until_noticed
from livesize.runtime.containerd.views import pod_of
from livesize.runtime.interface import GoneError, PodConfig, RuntimeCallError

RUN_SECONDS = 120.0  # a network plugin may take its time
_RESERVED = "failed to reserve sandbox name"


class Sandbox(msgspec.Struct, frozen=True):
    id: str
    pod: PodConfig
    attempt: int
    address: str = ""  # empty: the machine's own


class Sandboxes:
    def __init__(
        self, client: CriClient, node_uid: str, logs: Path, layout: GroupLayout, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._node_uid = node_uid
        self._logs = logs
        self._layout = layout

    def config(self, pod: PodConfig, attempt: int) -> ProtobufMessage:
        uid = safe_name(pod.uid)
        return sandbox_config(
            pod,
            node_uid=self._node_uid,
            attempt=attempt,
            cgroup_parent=self._layout.parent(uid),
            log_directory=str(self._logs / uid),
        )

    async def newest(self) -> list[Sandbox]:
        """The newest of each pod of this node."""
        found: dict[str, Sandbox] = {}
        for item in sorted(await self._list({}), key=lambda one: one.created_at):
            pod = pod_of(item)
            if pod is not None:
                found[pod.uid] = Sandbox(item.id, pod, item.metadata.attempt)
        return [await self._with_address(one) for one in found.values()]

    async def run(self, pod: PodConfig, attempt: int) -> Sandbox:
        if not pod.host_network:
            await self._require_network(pod)
        config = self.config(pod, attempt)
        try:
            answer = await self._client.call("RunPodSandbox", seconds=RUN_SECONDS, config=config)
        except CriRefusedError as refusal:
            if _RESERVED not in str(refusal):
                raise
            # Left by an agent or a containerd that was killed while it made one.
            await self.remove(pod.uid)
            answer = await self._client.call("RunPodSandbox", seconds=RUN_SECONDS, config=config)
        return await self._with_address(Sandbox(answer.pod_sandbox_id, pod, attempt))

    async def ready(self, sandbox: Sandbox) -> Sandbox:
        """This one, or a new one where its first process has died, as after a reboot."""
        try:
            answer = await self._client.call("PodSandboxStatus", pod_sandbox_id=sandbox.id)
        except GoneError:
            return await self.run(sandbox.pod, sandbox.attempt + 1)
        if answer.status.state == SANDBOX_READY:
            return sandbox
        await self._stop(sandbox.id)
        return await self.run(sandbox.pod, sandbox.attempt + 1)

    async def remove(self, uid: str) -> None:
        """All of the pod's, with the containers in them."""
        for item in await self._list({POD_LABEL: uid}):
            with contextlib.suppress(GoneError):
                await self._stop(item.id)
                await self._client.call("RemovePodSandbox", pod_sandbox_id=item.id)

    async def _stop(self, sandbox_id: str) -> None:
        await ask_until_noticed(
            self._clock, lambda: self._client.call("StopPodSandbox", pod_sandbox_id=sandbox_id)
        )

    async def _list(self, labels: dict[str, str]) -> list[ProtobufMessage]:
        wanted = PodSandboxFilter(label_selector={NODE_LABEL: self._node_uid, **labels})
        answer = await self._client.call("ListPodSandbox", filter=wanted)
        return list(answer.items)

    async def _with_address(self, sandbox: Sandbox) -> Sandbox:
        if sandbox.pod.host_network:
            return sandbox
        answer = await self._client.call("PodSandboxStatus", pod_sandbox_id=sandbox.id)
        return msgspec.structs.replace(sandbox, address=answer.status.network.ip)

    async def _require_network(self, pod: PodConfig) -> None:
        """Said before anything is made: the runtime's own words do not say what to do."""
        answer = await self._client.call("Status")
        for condition in answer.status.conditions:
            if condition.type == "NetworkReady" and not condition.status:
                raise RuntimeCallError(
                    f"NetworkNotReady: pod {pod.namespace}/{pod.name} wants a network of its own,"
                    " and this machine has no CNI configuration"
                    f" ({condition.message or condition.reason});"
                    " set hostNetwork: true, or install CNI plugins"
                )
