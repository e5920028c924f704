"""Registers this machine as a Node and renews its heartbeat.

The Node object carries what the machine has and what of it pods may use; the heartbeat is a Lease
in kube-node-lease. The agent watches its Node. It registers a deleted one again, and sets one that
a controller has marked unreachable back to Ready, at most once in the time of a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

from livesize.agent.dependencies import AgentDependencies
from livesize.agent.settings import AgentSettings
from livesize.agent.usage import MeasuredLease, UsageMeter
from livesize.api.conditions import is_true, set_condition
from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, lookup, name_of, uid_of
from livesize.api.reasons import ConditionType, Reason
from livesize.api.resources import Amounts, format_amounts
from livesize.api.storage import FOLDERS_AT
from livesize.api.times import format_time
from livesize.client.adapters import ClientLease
from livesize.client.informer import Delta, Informer
from livesize.machinery.lease import LeaseTerms, keep_lease
from livesize.machinery.steps import Backoff
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import MachineFacts

log = get_logger("agent.node")

MAXIMUM_PODS = 500
_PRESSURES = (
    (ConditionType.MEMORY_PRESSURE, "KubeletHasSufficientMemory"),
    (ConditionType.DISK_PRESSURE, "KubeletHasNoDiskPressure"),
    (ConditionType.PID_PRESSURE, "KubeletHasSufficientPID"),
)


ARCHITECTURE = "kubernetes.io/arch"


def allocatable_of(machine: MachineFacts, settings: AgentSettings) -> Amounts:
    """What pods may use: what was set, or all the machine has. Setting more is overcommitment,
    and the operator's choice."""
    cpu, memory = settings.allocatable_cpu_milli, settings.allocatable_memory_bytes
    return Amounts(
        machine.cpu_milli if cpu is None else cpu,
        machine.memory_bytes if memory is None else memory,
    )


def build_node(settings: AgentSettings, machine: MachineFacts, folders: str) -> Object:
    """``folders``: where the node keeps the volumes of claims."""
    labels = {
        "kubernetes.io/hostname": settings.node_name,
        "kubernetes.io/os": "linux",
        ARCHITECTURE: machine.architecture,
    }
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": settings.node_name,
            "labels": labels,
            "annotations": {FOLDERS_AT: folders},
        },
        "spec": {},
    }


def build_node_status(
    settings: AgentSettings,
    machine: MachineFacts,
    images: tuple[str, ...],
    before: Object,
    now: float,
) -> Object:
    """The node's status; ``before`` is the Node object as it is."""
    capacity = format_amounts(Amounts(machine.cpu_milli, machine.memory_bytes))
    allocatable = format_amounts(allocatable_of(machine, settings))
    return {
        "capacity": {**capacity, "pods": str(MAXIMUM_PODS)},
        "allocatable": {**allocatable, "pods": str(MAXIMUM_PODS)},
        "conditions": _conditions(before, now),
        "addresses": [
            {"type": "InternalIP", "address": settings.host_ip},
            {"type": "Hostname", "address": settings.node_name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.endpoint_port}},
        "images": [{"names": [image]} for image in sorted(images)],
        "nodeInfo": {
            "machineID": machine.machine_id,
            "systemUUID": machine.machine_id,
            "bootID": machine.boot_id,
            "kernelVersion": machine.kernel_version,
            "osImage": machine.os_image,
            "containerRuntimeVersion": machine.runtime_version,
            "kubeletVersion": f"v{settings.version}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": machine.architecture,
        },
    }


def _conditions(before: Object, now: float) -> list[Object]:
    conditions: list[Object] = list(lookup(before, "status", "conditions", default=[]))
    ready: Object = {
        "type": ConditionType.READY.value,
        "status": "True",
        "reason": Reason.NODE_READY.value,
        "message": "the node agent is ready",
    }
    pressures: list[Object] = [
        {"type": pressure.value, "status": "False", "reason": reason, "message": ""}
        for pressure, reason in _PRESSURES
    ]
    for condition in (*pressures, ready):
        stamped = {**condition, "lastHeartbeatTime": format_time(now)}
        conditions = set_condition(conditions, stamped, format_time(now))
    return conditions


class NodeRegistration:
    """``await run()`` until cancelled. ``registered`` is set once the API has the node."""

    def __init__(self, dependencies: AgentDependencies) -> None:
        self._dependencies = dependencies
        self._node: Object = {}
        self._posted_at = -math.inf
        self._backoff = Backoff(
            dependencies.settings.post_backoff_seconds,
            dependencies.settings.post_backoff_maximum_seconds,
            dependencies.context.random,
        )
        self.registered = asyncio.Event()
        self._news = asyncio.Event()  # the Node is gone, or another says that it is not Ready
        self._informer = Informer(
            dependencies.client,
            NODES,
            Selection(fields=f"metadata.name={dependencies.settings.node_name}"),
            context=dependencies.context,
            on_change=self._changed,
        )

    async def run(self) -> None:
        settings = self._dependencies.settings
        terms = LeaseTerms(
            name=settings.node_name,
            holder=settings.node_name,
            renew_seconds=settings.lease_seconds,
            duration_seconds=int(settings.lease_seconds * 4),
        )
        lease = ClientLease(self._dependencies.client, terms.namespace, terms.name)
        record = MeasuredLease(
            lease, UsageMeter(self._dependencies.runtime, self._dependencies.clock)
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            tasks.create_task(self._keep_status())
            await self.registered.wait()
            await keep_lease(
                record,
                terms,
                context=self._dependencies.context,
                owner=self._owner,
            )

    async def _keep_status(self) -> None:
        failures = 0
        while True:
            self._news.clear()
            try:
                await self._refresh_status()
            except (ConnectionError, StatusError) as failure:
                failures += 1
                log.warning("node status not posted", reason=str(failure))
                await self._dependencies.clock.sleep(self._backoff.seconds(failures))
            else:
                failures = 0
                self.registered.set()
                await self._await_news()

    def _changed(self, delta: Delta) -> None:
        if name_of(delta.object) != self._dependencies.settings.node_name:
            return
        if delta.new is None or not is_true(delta.new, ConditionType.READY):
            self._news.set()

    async def _await_news(self) -> None:
        """Or until the status is due."""
        settings, clock = self._dependencies.settings, self._dependencies.clock
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._posted_at + settings.node_status_seconds):
                await self._news.wait()
        await clock.sleep(max(0.0, self._posted_at + settings.lease_seconds - clock.monotonic()))

    async def _refresh_status(self) -> None:
        """Post it when it is due; sooner where the Node is not Ready."""
        self._node = await self._register()
        now = self._dependencies.clock.monotonic()
        due = now >= self._posted_at + self._dependencies.settings.node_status_seconds
        if due or not is_true(self._node, ConditionType.READY):
            await self._post_status()
            self._posted_at = now

    async def _post_status(self) -> None:
        settings, runtime = self._dependencies.settings, self._dependencies.runtime
        status = build_node_status(
            settings,
            runtime.machine(),
            runtime.images(),
            self._node,
            self._dependencies.clock.now(),
        )
        self._node = await self._dependencies.client.patch(
            NODES, settings.node_name, {"status": status}, subresource="status"
        )

    async def _register(self) -> Object:
        client, settings = self._dependencies.client, self._dependencies.settings
        folders = self._dependencies.volumes.claims_root
        try:
            node = await client.get(NODES, settings.node_name)
        except StatusError as refusal:
            if refusal.code != 404:
                raise
        else:
            architecture = self._dependencies.machine.architecture
            is_known = lookup(node, "metadata", "labels", ARCHITECTURE) == architecture
            if is_known and lookup(node, "metadata", "annotations", FOLDERS_AT) == folders:
                return node
            metadata = {
                "labels": {ARCHITECTURE: architecture},
                "annotations": {FOLDERS_AT: folders},
            }
            return await client.patch(NODES, settings.node_name, {"metadata": metadata})
        node = build_node(settings, self._dependencies.machine, folders)
        log.info("node registered", node=settings.node_name)
        return await client.create(NODES, node)

    def _owner(self) -> Object | None:
        """The lease goes when its node goes."""
        uid = uid_of(self._node)
        if not uid:
            return None
        return {"apiVersion": "v1", "kind": "Node", "name": name_of(self._node), "uid": uid}
