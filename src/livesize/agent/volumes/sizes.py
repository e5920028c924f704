"""Volumes in memory whose size is the pod's: grown before its groups, shrunk after them.

In this order a container never finds less room in the volume than its own limit gives it. One that
holds more than its new size stays as it is, and the resize says so and tries again.
"""

from __future__ import annotations

from livesize.agent.volumes.conversion import follows_the_pod, memory_size, volumes_of
from livesize.api.kernel_units import PAGE_BYTES
from livesize.api.objects import Object, uid_of
from livesize.machinery.steps import Step, StepFailedError
from livesize.runtime.volumes.interface import VolumeStore


def volume_steps(
    store: VolumeStore, pod: Object, pod_limit_bytes: int | None, node_bytes: int
) -> tuple[list[Step], list[Step]]:
    """What grows, and what shrinks; nothing for volumes that have their size."""
    grow: list[Step] = []
    shrink: list[Step] = []
    for name, volume in volumes_of(pod).items():
        if not follows_the_pod(volume):
            continue
        now = store.memory(uid_of(pod), name)
        wanted = _whole_pages(memory_size(volume, pod_limit_bytes, node_bytes))
        if now is None or now.size_bytes == wanted:
            continue
        step = _step(store, uid_of(pod), name, wanted)
        (grow if wanted > now.size_bytes else shrink).append(step)
    return grow, shrink


def _step(store: VolumeStore, uid: str, name: str, size_bytes: int) -> Step:
    async def resize() -> None:
        await store.resize(uid, name, size_bytes)

    async def read_back() -> None:
        found = store.memory(uid, name)
        if found is None or found.size_bytes != size_bytes:
            raise StepFailedError(f"volume {name} was set to {size_bytes}, and has {found}")

    return Step(f"volume:{name}:size", resize, read_back)


def _whole_pages(size_bytes: int) -> int:
    """The kernel rounds up."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
