"""API server and node in one process for tests: the real API server over TLS, the real agent.

The machine is the fake one, or, with ``root_group``, the process runtime with real cgroups. There
is no scheduler: pods are created on the node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, cast

from livesize.agent.agent import Agent
from livesize.agent.allocation.sqlite_file import open_checkpoint
from livesize.agent.settings import ACCEPT_DELAY_SECONDS, AgentSettings
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, version_of
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.kubeconfig import write_kubeconfig
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import seeded_context
from livesize.runtime.fake import FakeMachine, FakeRuntime
from livesize.runtime.interface import Runtime
from livesize.runtime.oci import BUILT_IN_IMAGE
from livesize.runtime.process.runtime import ProcessRuntime
from livesize.runtime.volumes.fake_mounts import FakeMounts
from livesize.runtime.volumes.folders import FolderVolumes
from livesize.store.sqlite import SqliteStore

NODE = "node-1"
NAMESPACE = "default"
WAIT_SECONDS = 10.0


class OneProcess:
    """``user`` is an admin over HTTPS, as is ``kubeconfig``; ``machine`` is the fake one, where
    that is used."""

    def __init__(
        self, server: ApiServer, user: HttpClient, kubeconfig: Path, machine: FakeMachine
    ) -> None:
        self.server = server
        self.user = user
        self.kubeconfig = kubeconfig
        self.machine = machine

    def as_role(self, role: Role, node: str = "") -> DirectClient:
        return self.server.client(Identity(f"the {role.value}", role, node))

    def container(self, name: str = "app", cpu: str = "100m", memory: str = "32Mi") -> Object:
        size = {"cpu": cpu, "memory": memory}
        return {
            "name": name,
            "image": BUILT_IN_IMAGE,
            "command": ["/bin/sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
            "resources": {"requests": size, "limits": size},
        }

    async def run_pod(self, name: str, *containers: Object, **spec: Any) -> Object:
        """Create it, and wait until it is Ready."""
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": NODE,
                "terminationGracePeriodSeconds": 0,
                "containers": list(containers),
                **spec,
            },
        }
        made = await self.user.create(PODS, pod, NAMESPACE)
        return await self.until(made, _is_ready)

    async def resize(self, name: str, resources: dict[str, Object]) -> Object:
        """Ask for new resources by container; the answer to the PATCH."""
        containers = [{"name": key, "resources": value} for key, value in resources.items()]
        return await self.user.patch(
            PODS,
            name,
            {"spec": {"containers": containers}},
            namespace=NAMESPACE,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )

    async def pod(self, name: str) -> Object:
        return await self.user.get(PODS, name, NAMESPACE)

    async def until(self, pod: Object, holds: Callable[[Object], bool]) -> Object:
        """Follow the watch from ``pod`` on; the first state for which it holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for state in self.states(pod):
                if holds(state):
                    return state
        raise AssertionError("the watch ended")

    async def states(self, pod: Object) -> AsyncIterator[Object]:
        yield pod
        selection = Selection(NAMESPACE, fields=f"metadata.name={pod['metadata']['name']}")
        stream = self.user.watch(PODS, selection, resource_version=version_of(pod))
        async with aclosing(cast("Any", stream)):
            async for event in stream:
                yield event.object

    async def event_reasons(self, name: str) -> list[str]:
        events = (await self.user.list(EVENTS, Selection(NAMESPACE))).items
        return [one["reason"] for one in events if one["involvedObject"]["name"] == name]

    async def until_told(self, name: str, reason: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while reason not in await self.event_reasons(name):
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def one_process(
    folder: Path,
    *,
    root_group: str = "",
    cpu: str = "4",
    memory_gib: int = 4,
    scheduler_seconds: float = 0.0,
    accept_delay_seconds: float = ACCEPT_DELAY_SECONDS,
) -> AsyncIterator[OneProcess]:
    """Serves and runs pods until left; then its containers are gone."""
    context = seeded_context(1, SystemClock())
    machine = FakeMachine(context, memory_bytes=memory_gib << 30)
    fake = FakeRuntime(context=context, machine=machine)
    runtime: Runtime = fake
    if root_group:
        runtime = ProcessRuntime(folder / "runtime", root_group, context)
    tokens = {
        Role.ADMIN: issue_token("user", Role.ADMIN),
        Role.NODE: issue_token(f"system:node:{NODE}", Role.NODE, node=NODE),
    }
    write_tokens(folder / "tokens", [entry for _, entry in tokens.values()])
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(folder / "store.db", epoch=1)
        stack.push_async_callback(store.close)
        config = ApiServerConfig(tls_dir=folder / "tls", tokens=folder / "tokens", port=0)
        server = ApiServer(config, store, context=context)
        await stack.enter_async_context(server.running())

        async def connect(role: Role) -> HttpClient:
            ca = server.ca_path.read_bytes()
            connection = ConnectionConfig(server=server.url, ca_pem=ca, token=tokens[role][0])
            client = await HttpClient.open(connection, SystemClock())
            stack.push_async_callback(client.close)
            return client

        await runtime.open()
        stack.push_async_callback(runtime.close)
        checkpoint = await open_checkpoint(folder / "checkpoint.db")
        stack.push_async_callback(checkpoint.close)
        settings = AgentSettings(
            node_name=NODE,
            allocatable_cpu_milli=int(cpu) * 1000,
            allocatable_memory_bytes=memory_gib << 30,
            scheduler_seconds=scheduler_seconds,
            accept_delay_seconds=accept_delay_seconds,
            resize_backoff_seconds=0.01,
            resize_backoff_maximum_seconds=0.05,
        )
        agent = Agent(
            await connect(Role.NODE),
            runtime,
            checkpoint,
            context,
            settings,
            volumes=FolderVolumes(folder / "volumes", FakeMounts()),
            vms=None if root_group else fake,
        )
        user = await connect(Role.ADMIN)
        ca, token = server.ca_path.read_bytes(), tokens[Role.ADMIN][0]
        write_kubeconfig(folder / "kubeconfig", server.url, ca, token, "user")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(agent.run())
            yield OneProcess(server, user, folder / "kubeconfig", machine)
            running.cancel()
        await agent.stop_workloads(asyncio.Event())


def _is_ready(pod: Object) -> bool:
    conditions = lookup(pod, "status", "conditions", default=[])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
