"""Does one pod's part on the machine: makes its group, starts, stops and removes; tells events.

Makes no choices: the worker says what, and the pod's shape how large.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import PurePosixPath

import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.pods.config import (
    HOSTS_PATH,
    container_config,
    hosts_file,
    oom_score_adj,
    pod_config,
    scored_size,
)
from livesize.agent.pods.image_pull import start_with_image
from livesize.agent.pods.plan import stop_order
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.pods.termination_messages import TerminationMessages
from livesize.agent.probes.lifecycle import LifecycleHooks
from livesize.agent.resize.hooks import ResizeHooks
from livesize.agent.resize.shape import ContainersShape
from livesize.agent.shape import Shape
from livesize.agent.vm.shape import VmShape
from livesize.agent.volumes.pod_volumes import PodVolumes
from livesize.api.objects import Object, evolve, lookup, uid_of
from livesize.api.peer_names import subdomain_of
from livesize.api.reasons import EventReason
from livesize.api.resources import containers_of, init_containers_of, is_vm, sidecars_of
from livesize.runtime.interface import ContainerConfig, Mount, PodView

_DEFAULT_GRACE_SECONDS = 30.0


@contextlib.asynccontextmanager
async def _first_failure() -> AsyncIterator[None]:
    """Callers know single failures of the machine, not groups of them."""
    try:
        yield
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


class PodMachine:
    def __init__(
        self,
        dependencies: AgentDependencies,
        record: PodRecord,
        shape: Shape,
        volumes: PodVolumes,
        termination_messages: TerminationMessages,
    ) -> None:
        self._dependencies = dependencies
        self._termination_messages = termination_messages
        self._volumes = volumes
        self._record = record
        self._shape = shape
        self._lifecycle = LifecycleHooks(dependencies)
        self._hosts = ""  # what its hosts file says

    @property
    def grace_seconds(self) -> float:
        """Of a pod that is deleted, what its deletion says."""
        left_seconds = self._deletion_seconds()
        if left_seconds is not None:
            return left_seconds
        given = lookup(self._record.pod, "spec", "terminationGracePeriodSeconds")
        return _DEFAULT_GRACE_SECONDS if given is None else float(given)

    def _deletion_seconds(self) -> float | None:
        """The grace of its deletion; none where its object went first, deleted by force; None: it
        is not deleted."""
        if self._record.gone:
            return 0.0
        given = lookup(self._record.pod, "metadata", "deletionGracePeriodSeconds")
        return None if given is None else float(given)

    async def make_group(self, entry: Allocation) -> None:
        limits = self._shape.pod_limits(entry)
        await self._dependencies.runtime.create_pod(pod_config(self._record.pod, limits))

    async def start(self, name: str, attempt: int, entry: Allocation, *, in_full: bool) -> None:
        """``in_full``: with all that is allocated, whatever else is being applied."""
        pod = self._with_addresses()
        container = _container(pod, name)
        size = self._shape.start_size(entry, name, in_full=in_full)
        limits = self._shape.pod_limits(entry)
        inputs = await self._volumes.prepare(pod, container, entry, limits)
        config = container_config(
            pod,
            container,
            entry,
            size.limits,
            inputs,
            attempt=attempt,
        )
        scored = scored_size(pod, name, entry.size)
        score = oom_score_adj(pod, scored, self._dependencies.machine.memory_bytes)
        config = msgspec.structs.replace(config, vm=size.vm, oom_score_adj=score)
        if size.vm is None:
            config = await self._with_files(pod, container, config)
        await start_with_image(self._dependencies, pod, container, config)
        self._dependencies.record_event(pod, EventReason.CREATED, f"Created container {name}")
        self._dependencies.record_event(pod, EventReason.STARTED, f"Started container {name}")
        problem = await self._lifecycle.after_start(pod, container, self.grace_seconds)
        if problem:
            await self.stop(name, f"its postStart hook failed: {problem}")

    async def _with_files(
        self, pod: Object, container: Object, config: ContainerConfig
    ) -> ContainerConfig:
        """With the files that are the pod's own, beside its volumes."""
        more = await self._termination_messages.mount(pod, container, config.attempt)
        file = await self._write_hosts(pod)
        if file and all(one.target != HOSTS_PATH for one in config.mounts):
            more = (*more, Mount(file, HOSTS_PATH))
        every = (*config.mounts, *more)  # one within another comes after it
        mounts = sorted(every, key=lambda one: len(PurePosixPath(one.target).parts))
        return msgspec.structs.replace(config, mounts=tuple(mounts))

    async def refresh_hosts(self) -> None:
        """The peers of a pod come and go while it runs: its containers see the file change."""
        if not subdomain_of(self._record.pod) or is_vm(self._record.pod):
            return
        pod = self._with_addresses()
        if hosts_file(pod) != self._hosts:
            await self._write_hosts(pod)

    async def _write_hosts(self, pod: Object) -> str:
        """The path of the pod's own hosts file; empty: it needs none."""
        hosts = hosts_file(pod)
        if not hosts:
            return ""
        store = self._dependencies.volumes
        path = await store.prepare_file(uid_of(pod), "etc-hosts", hosts.encode(), 0o644)
        self._hosts = hosts
        return path

    def mounts_memory(self, name: str) -> bool:
        return self._volumes.mounts_memory(self._record.pod, _container(self._record.pod, name))

    async def clear(self, name: str) -> None:
        """Of a container that does not run, what it has left in volumes in memory."""
        await self._volumes.clear_memory(self._record.pod, _container(self._record.pod, name))

    async def stop(self, name: str, why: str, grace: float | None = None) -> None:
        """``grace`` in seconds; None: the pod's."""
        message = f"Stopping container {name}: {why}"
        self._dependencies.record_event(self._record.pod, EventReason.KILLING, message)
        pod = self._record.pod
        uid, grace_seconds = uid_of(pod), self.grace_seconds if grace is None else grace

        async def patiently() -> None:
            left_seconds = await self._lifecycle.before_stop(pod, name, grace_seconds)
            await self._dependencies.runtime.stop_container(uid, name, left_seconds)

        async with _first_failure(), asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(patiently())
            sooner = tasks.create_task(self._stop_sooner(uid, name, grace_seconds))
            stopping.add_done_callback(lambda _: sooner.cancel())
            sooner.add_done_callback(lambda _: stopping.cancel())

    async def _stop_sooner(self, uid: str, name: str, grace_seconds: float) -> None:
        """Somebody may lose patience and delete the pod with less grace."""
        while (left_seconds := self._deletion_seconds()) is None or left_seconds >= grace_seconds:
            self._record.changed.clear()
            await self._record.changed.wait()
        await self._dependencies.runtime.stop_container(uid, name, left_seconds)

    async def stop_all(self, view: PodView, why: str) -> None:
        names = tuple(container.name for container in view.containers)
        for together in stop_order(names, sidecars_of(self._record.pod)):
            async with _first_failure(), asyncio.TaskGroup() as tasks:
                for name in together:
                    tasks.create_task(self.stop(name, why))

    async def remove(self, uid: str) -> None:
        await self._dependencies.runtime.remove_pod(uid)

    async def remove_volumes(self, uid: str) -> None:
        await self._dependencies.volumes.remove(uid)

    def _with_addresses(self) -> Object:
        """Addresses are known before the first status is written."""
        pod, host_ip = self._record.pod, self._dependencies.settings.host_ip
        view = self._dependencies.runtime.pod(uid_of(pod))
        pod_ip = (view.address if view is not None else "") or host_ip
        status = {**(pod.get("status") or {}), "hostIP": host_ip, "podIP": pod_ip}
        return evolve(pod, ("status",), status)


def shape_of(dependencies: AgentDependencies, record: PodRecord) -> Shape:
    """A VM on a node without virtual machines was not let in, and only rests or is removed."""
    if is_vm(record.pod) and dependencies.vms is not None:
        return VmShape(dependencies.vms, record, dependencies)
    return ContainersShape(
        dependencies.runtime,
        record,
        dependencies.machine.memory_bytes,
        dependencies.volumes,
        ResizeHooks(dependencies, record),
        dependencies.cpus,
    )


def _container(pod: Object, name: str) -> Object:
    everyone = [*containers_of(pod), *init_containers_of(pod)]
    return next(one for one in everyone if one["name"] == name)
