"""Changes the limits of a container through containerd.

Where the kernel would kill for a memory limit that is too low, as on version 2, the limit is first
lowered by our own hands, in a window in which nobody can grow; containerd is then told of what is
true already. Where containerd fails, the kernel's files say what is true now: what was changed in
part is set back, so that a refused change has changed nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.runtime.cgroups.interface import PAGE_BYTES, CgroupDriver, whole_pages
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.link import RefusedError
from livesize.runtime.interface import (
    Change,
    MemoryInUseError,
    RuntimeCallError,
    SetCpu,
    SetCpus,
    SetMemory,
)

InThread: TypeAlias = Callable[..., Awaitable[Any]]

_IN_USE_WORDS = ("unable to set memory limit", "device or resource busy")


class Resizer:
    def __init__(self, containers: Containers, cgroups: CgroupDriver, in_thread: InThread) -> None:
        self._containers = containers
        self._cgroups = cgroups
        self._in_thread = in_thread

    async def write(self, container_id: str, path: str, change: Change) -> None:
        """``path``: the container's group."""
        before = self._cgroups.read_limits(path)
        if isinstance(change, SetMemory) and self._would_kill(path, change.limit_bytes):
            await self._in_thread(self._cgroups.write_memory, path, change.limit_bytes)
        try:
            await self._ask(container_id, change)
        except RefusedError as refusal:
            await self._set_back(container_id, path, change, before)
            if isinstance(change, SetMemory):
                self._raise_if_in_use(path, change, str(refusal))
            raise

    async def tell_again(self, container_id: str, path: str) -> None:
        """Of a container that was found running: an agent that was killed may have lowered its
        limit and not told containerd, which would raise it again with the next change of
        anything."""
        if self._cgroups.version is CgroupVersion.V1:
            return
        limit_bytes = self._cgroups.read_limits(path).memory_limit_bytes
        recorded = await self._containers.recorded_memory(container_id)
        if limit_bytes is not None and limit_bytes != recorded:
            await self._containers.set_memory(container_id, limit_bytes)

    def _would_kill(self, path: str, limit_bytes: int | None) -> bool:
        """Or might: version 1 refuses by itself."""
        if self._cgroups.version is CgroupVersion.V1:
            return False
        return self._cgroups.must_reclaim(path, limit_bytes)

    async def _ask(self, container_id: str, change: Change) -> None:
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                await self._containers.set_cpu(container_id, weight, quota_us)
            case SetMemory(limit_bytes=limit_bytes):
                await self._containers.set_memory(container_id, limit_bytes)
            case SetCpus(cpus=cpus):
                await self._containers.set_cpus(container_id, cpus)

    async def _set_back(
        self, container_id: str, path: str, change: Change, before: KernelLimits
    ) -> None:
        """A GoneError from reading tells more than the refusal, and goes out."""
        if self._cgroups.read_limits(path) == before:
            return
        back: Change
        match change:
            case SetCpu():
                back = SetCpu(before.cpu_weight, before.cpu_quota_us)
            case SetMemory():
                back = SetMemory(before.memory_limit_bytes)
            case SetCpus():
                return  # one file, which the kernel takes or leaves as it is
        with contextlib.suppress(RuntimeCallError):
            await self._ask(container_id, back)

    def _raise_if_in_use(self, path: str, change: SetMemory, words: str) -> None:
        """containerd gives no code for it; the kernel's own count says whether that was why."""
        limit_bytes = change.limit_bytes
        if limit_bytes is None:
            return
        usage_bytes = self._cgroups.read(path).memory_usage_bytes
        if usage_bytes > limit_bytes or any(text in words for text in _IN_USE_WORDS):
            floor_bytes = whole_pages(limit_bytes) + PAGE_BYTES  # it may have shrunk since
            raise MemoryInUseError(path, limit_bytes, max(usage_bytes, floor_bytes))
