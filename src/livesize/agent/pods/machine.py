"""Does one pod's part on the machine: makes its group, starts, stops and removes; tells events.

Makes no choices: the worker says what, and with which limits.
"""

from __future__ import annotations

import asyncio

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.outside import Outside
from livesize.agent.pods.config import container_config, pod_config, wanted_pod_limits
from livesize.agent.pods.post import PodRecord
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object, evolve, lookup, uid_of
from livesize.api.reasons import EventReason
from livesize.api.resources import containers_of
from livesize.runtime.interface import PodView

_DEFAULT_GRACE_SECONDS = 30.0


class PodMachine:
    def __init__(self, outside: Outside, record: PodRecord) -> None:
        self._outside = outside
        self._record = record

    @property
    def grace_seconds(self) -> float:
        pod = self._record.pod
        for path in (
            ("metadata", "deletionGracePeriodSeconds"),
            ("spec", "terminationGracePeriodSeconds"),
        ):
            seconds = lookup(pod, *path)
            if seconds is not None:
                return float(seconds)
        return _DEFAULT_GRACE_SECONDS

    async def make_group(self, entry: Allocation) -> None:
        limits = wanted_pod_limits(entry, self._outside.runtime.cgroup_version)
        await self._outside.runtime.create_pod(pod_config(self._record.pod, limits))

    async def start(self, name: str, attempt: int, entry: Allocation, limits: KernelLimits) -> None:
        pod = self._with_addresses()
        container = next(one for one in containers_of(pod) if one["name"] == name)
        config = container_config(
            pod,
            container,
            entry,
            limits,
            attempt=attempt,
            node_memory_bytes=self._outside.machine.memory_bytes,
        )
        await self._outside.runtime.start_container(config)
        self._outside.tell(pod, EventReason.CREATED, f"Created container {name}")
        self._outside.tell(pod, EventReason.STARTED, f"Started container {name}")

    async def stop(self, name: str, why: str) -> None:
        message = f"Stopping container {name}: {why}"
        self._outside.tell(self._record.pod, EventReason.KILLING, message)
        uid = uid_of(self._record.pod)
        await self._outside.runtime.stop_container(uid, name, self.grace_seconds)

    async def stop_all(self, view: PodView) -> None:
        async with asyncio.TaskGroup() as tasks:
            for container in view.containers:
                tasks.create_task(self.stop(container.name, "the pod is deleted"))

    async def remove(self, uid: str) -> None:
        await self._outside.runtime.remove_pod(uid)

    def _with_addresses(self) -> Object:
        """Addresses are known before the first status is written."""
        pod, host_ip = self._record.pod, self._outside.settings.host_ip
        status = {**(pod.get("status") or {}), "hostIP": host_ip, "podIP": host_ip}
        return evolve(pod, ("status",), status)
