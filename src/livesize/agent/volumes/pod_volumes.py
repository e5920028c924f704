"""Prepares the volumes and variables of one pod's containers, and refreshes its files.

Only the pod's worker calls, and decides when. Where an object is missing, ContainerConfigError says
so in a sentence: the container waits, and the worker tries again.
"""

from __future__ import annotations

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.dependencies import AgentDependencies
from livesize.agent.pods.config import ContainerInputs
from livesize.agent.volumes.claims import unbound_claims, wait_until_bound
from livesize.agent.volumes.conversion import (
    disk_limits,
    is_in_memory,
    memory_size,
    mount_path,
    mounts_of,
    volumes_of,
    wanted_volume,
)
from livesize.agent.volumes.environment import ReferenceContext, environment
from livesize.agent.volumes.sources import ContainerConfigError, Sources, fetch_sources
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object, lookup, uid_of
from livesize.api.quantity import format_cpu, format_memory, memory_bytes
from livesize.api.resources import Amounts
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import Mount
from livesize.runtime.volumes.interface import FileTree, VolumeError

log = get_logger("agent.volumes")


class PodVolumes:
    def __init__(self, dependencies: AgentDependencies, allocatable: Amounts) -> None:
        self._dependencies = dependencies
        self._allocatable: Object = {
            "cpu": format_cpu(allocatable.cpu_milli or 0),
            "memory": format_memory(allocatable.memory_bytes or 0),
        }
        self._refreshed_at = float("-inf")
        self._measured_at = float("-inf")
        self._sources: Sources | None = None
        self._waited_for: set[str] = set()

    async def prepare(
        self, pod: Object, container: Object, entry: Allocation, limits: KernelLimits
    ) -> ContainerInputs:
        """``limits``: of the pod's group. Raises ContainerConfigError or VolumeError."""
        references = await self._with_claims(pod, entry)
        env = environment(container, references)
        mounts = []
        for index, mount in enumerate(mounts_of(container)):
            source, read_only = await self._source(pod, mount, references, limits)
            inside = mount_path(mount, "subPath", dict(env))
            if inside:
                part = f"{container['name']}-{index}"
                store, uid = self._dependencies.volumes, uid_of(pod)
                source = await store.prepare_part(uid, part, source, inside)
            read_only = read_only or bool(mount.get("readOnly"))
            mounts.append(Mount(source, mount["mountPath"], read_only))
        self._refreshed_at = self._dependencies.clock.monotonic()
        return ContainerInputs(env, tuple(mounts))

    async def clear_memory(self, pod: Object, container: Object) -> None:
        """ARK: "If memory-backed emptyDir is in use, Kubelet will clear out any files in emptyDir
        upon Container restart". Kubernetes keeps them when a container ends by itself, so only a
        resize that restarts the container clears them; also those of an init container."""
        store, uid = self._dependencies.volumes, uid_of(pod)
        for name in sorted(_in_memory(pod, container)):
            if store.memory(uid, name) is not None:
                await store.clear(uid, name)

    def mounts_memory(self, pod: Object, container: Object) -> bool:
        return bool(_in_memory(pod, container))

    async def refresh(self, pod: Object, entry: Allocation) -> None:
        """Files that come from objects follow them. What is missing now stays as it was."""
        now = self._dependencies.clock.monotonic()
        if now - self._refreshed_at < self._dependencies.settings.object_refresh_seconds:
            return
        self._refreshed_at = now
        volumes = [one for one in volumes_of(pod).values() if _is_of_objects(one)]
        if not volumes:
            return
        references = await self._references(pod, entry)
        for volume in volumes:
            try:
                tree = wanted_volume(volume, references, 0)
                await self._dependencies.volumes.prepare(uid_of(pod), tree)
            except (ContainerConfigError, VolumeError) as failure:
                log.warning("files not brought up to date", volume=volume["name"], why=str(failure))

    async def overfull(self, pod: Object) -> str:
        """Why the pod has to go: a volume on disk holds more than it may. Measured as seldom as
        files are refreshed."""
        limits, now = disk_limits(pod), self._dependencies.clock.monotonic()
        seconds = self._dependencies.settings.object_refresh_seconds
        if not limits or now - self._measured_at < seconds:
            return ""
        self._measured_at = now
        for name, limit in limits.items():
            used = await self._dependencies.volumes.used_bytes(uid_of(pod), name)
            if used > memory_bytes(limit):
                return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}".'
        return ""

    async def _with_claims(self, pod: Object, entry: Allocation) -> ReferenceContext:
        """A claim whose first pod this is gets its volume about now: each is waited for once, and
        after that asked for now and then like everything that is missing."""
        references = await self._references(pod, entry)
        unbound = unbound_claims(pod, references.sources)
        fresh = [one for one in unbound if uid_of(one) not in self._waited_for]
        if not fresh:
            return references
        self._waited_for |= {uid_of(one) for one in fresh}
        seconds = self._dependencies.settings.object_wait_seconds
        await wait_until_bound(self._dependencies.client, fresh, seconds)
        return await self._references(pod, entry)

    async def _references(self, pod: Object, entry: Allocation) -> ReferenceContext:
        sizes = {size["name"]: size for size in entry.sizes()}
        try:
            sources: Sources = await fetch_sources(self._dependencies.client, pod)
        except ConnectionError:
            if self._sources is None:
                raise
            sources = self._sources  # the API server is away: what was true before will do
        self._sources = sources
        folders = self._dependencies.volumes.claims_root
        return ReferenceContext(pod, sources, sizes, self._allocatable, folders)

    async def _source(
        self, pod: Object, mount: Object, references: ReferenceContext, limits: KernelLimits
    ) -> tuple[str, bool]:
        """The volume's path, and whether it is read-only."""
        volume = volumes_of(pod).get(mount["name"])
        if volume is None:
            raise ContainerConfigError(f"the pod has no volume {mount['name']!r}")
        node_bytes = self._dependencies.machine.memory_bytes
        size = memory_size(volume, limits.memory_limit_bytes, node_bytes)
        wanted = wanted_volume(volume, references, size)
        path = await self._dependencies.volumes.prepare(uid_of(pod), wanted)
        if not isinstance(wanted, FileTree):
            return path, bool(lookup(volume, "persistentVolumeClaim", "readOnly", default=False))
        return (f"{path}/..data" if _is_part(mount) else path), True


def _in_memory(pod: Object, container: Object) -> set[str]:
    """The volumes in memory that the container mounts."""
    volumes = volumes_of(pod)
    names = {mount["name"] for mount in mounts_of(container)}
    return {name for name in names if is_in_memory(volumes.get(name, {}))}


def _is_of_objects(volume: Object) -> bool:
    return not volume.keys().isdisjoint({"configMap", "secret", "downwardAPI", "projected"})


def _is_part(mount: Object) -> bool:
    return bool(mount.get("subPath") or mount.get("subPathExpr"))
