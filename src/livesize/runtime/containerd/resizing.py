"""Changes the limits of a container.

CPU is written by our own hands, and containerd told afterwards (telling.py); except where systemd
keeps the group, and has to hear of it first. Everything else goes through containerd. A lower
memory limit is first set by our own hands as well: with a look at what is in use and, where the
kernel would kill for a limit that is too low, in a window in which nobody can grow. Where
containerd fails, the kernel's files say what is true now: what was changed in part is set back, so
that a refused change has changed nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.cgroups.interface import PAGE_BYTES, CgroupDriver, whole_pages
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.link import RefusedError, UnreachableError
from livesize.runtime.containerd.telling import Telling
from livesize.runtime.interface import MemoryInUseError, RuntimeCallError

InThread: TypeAlias = Callable[..., Awaitable[Any]]

_IN_USE_WORDS = ("unable to set memory limit", "device or resource busy")


class Resizer:
    """``telling``: None where containerd is asked for CPU too."""

    def __init__(
        self,
        containers: Containers,
        cgroups: CgroupDriver,
        in_thread: InThread,
        telling: Telling | None,
    ) -> None:
        self._containers = containers
        self._cgroups = cgroups
        self._in_thread = in_thread
        self._telling = telling

    async def write(self, container_id: str, path: str, change: GroupChange) -> None:
        """``path``: the container's group."""
        telling = self._telling
        if telling is not None and isinstance(change, SetCpu):
            async with telling.turn(container_id):
                telling.later(container_id, path, self._write_cpu(path, change))
        else:
            async with self._turn(container_id):
                await self._write_through(container_id, path, change)

    def _write_cpu(self, path: str, change: SetCpu) -> KernelLimits:
        """What the group has now."""
        before = self._cgroups.read_limits(path)
        try:
            self._cgroups.write_cpu(path, change.weight, change.quota_us)
        except RuntimeCallError:
            with contextlib.suppress(RuntimeCallError):
                self._cgroups.write_cpu(path, before.cpu_weight, before.cpu_quota_us)
            raise
        weight = before.cpu_weight if change.weight is None else change.weight
        return KernelLimits(weight, change.quota_us, before.memory_limit_bytes)

    async def _write_through(self, container_id: str, path: str, change: GroupChange) -> None:
        before = self._cgroups.read_limits(path)
        if isinstance(change, SetMemory) and _is_lower(change.limit_bytes, before):
            await self._in_thread(self._cgroups.write_memory, path, change.limit_bytes)
        try:
            await self._ask(container_id, change)
        except RefusedError as refusal:
            await self._set_back(container_id, path, change, before)
            if isinstance(change, SetMemory):
                self._raise_if_in_use(path, change, before, str(refusal))
            raise
        except UnreachableError:
            # It may have noted this limit or the one before, and sets that with its next update.
            if isinstance(change, SetMemory) and self._telling is not None:
                self._telling.later(container_id, path, before, memory=True)
            raise

    async def tell_again(self, container_id: str, path: str) -> None:
        """Of a container that was found running: an agent that was killed may have changed its
        limits and not told containerd, which would set them back with the next change of
        anything."""
        async with self._turn(container_id):
            limits = self._cgroups.read_limits(path)
            recorded = await self._containers.recorded_limits(container_id)
            memory_bytes = limits.memory_limit_bytes
            is_lowered = memory_bytes is not None and memory_bytes != recorded.memory_limit_bytes
            if self._telling is None:
                if is_lowered:
                    await self._containers.set_memory(container_id, memory_bytes)
            elif is_lowered or _cpu(limits) != _cpu(recorded):
                self._telling.later(container_id, path, limits, memory=is_lowered)

    @contextlib.asynccontextmanager
    async def _turn(self, container_id: str) -> AsyncIterator[None]:
        """To ask containerd for something."""
        if self._telling is None:
            yield
            return
        async with self._telling.turn(container_id):
            await self._telling.now(container_id)
            yield

    async def _ask(self, container_id: str, change: GroupChange) -> None:
        match change:
            case SetCpu(weight=weight, quota_us=quota_us):
                await self._containers.set_cpu(container_id, weight, quota_us)
            case SetMemory(limit_bytes=limit_bytes):
                await self._containers.set_memory(container_id, limit_bytes)
            case SetCpus(cpus=cpus):
                await self._containers.set_cpus(container_id, cpus)

    async def _set_back(
        self, container_id: str, path: str, change: GroupChange, before: KernelLimits
    ) -> None:
        """A GoneError from reading tells more than the refusal, and goes out."""
        if self._cgroups.read_limits(path) == before:
            return
        back: GroupChange
        match change:
            case SetCpu():
                back = SetCpu(before.cpu_weight, before.cpu_quota_us)
            case SetMemory():
                back = SetMemory(before.memory_limit_bytes)
            case SetCpus():
                return  # one file, which the kernel takes or leaves as it is
        with contextlib.suppress(RuntimeCallError):
            await self._ask(container_id, back)

    def _raise_if_in_use(
        self, path: str, change: SetMemory, before: KernelLimits, words: str
    ) -> None:
        """containerd gives no code for it; the kernel's own count says whether that was why."""
        limit_bytes = change.limit_bytes
        if limit_bytes is None:
            return
        usage_bytes = self._cgroups.read(path).memory_usage_bytes
        if usage_bytes > limit_bytes or any(text in words for text in _IN_USE_WORDS):
            floor_bytes = whole_pages(limit_bytes) + PAGE_BYTES  # it may have shrunk since
            needed_bytes = max(usage_bytes, floor_bytes)
            raise MemoryInUseError(path, limit_bytes, needed_bytes, before.memory_limit_bytes)


def _is_lower(limit_bytes: int | None, before: KernelLimits) -> bool:
    """Every lower limit may kill: what fits now may no longer when containerd, which was away,
    gets to it."""
    if limit_bytes is None:
        return False
    return before.memory_limit_bytes is None or limit_bytes < before.memory_limit_bytes


def _cpu(limits: KernelLimits) -> tuple[int, int | None]:
    return limits.cpu_weight, limits.cpu_quota_us
