"""Changes the limits of a container.

The agent writes CPU itself and tells containerd afterwards (limits_notifier.py); except where
systemd owns the group, and has to hear of it first. Everything else goes through containerd. The
agent also sets a lower memory limit itself first: it looks at what is in use and, where the kernel
would kill for a limit that is too low, freezes the group meanwhile. Where containerd fails, the
kernel's files say what is true: the agent sets back what was changed in part, so that a refused
change has changed nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from livesize.api.group_changes import GroupChange, SetCpu, SetCpus, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.cgroups.interface import PAGE_BYTES, CgroupDriver, whole_pages
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.cri_client import ContainerdUnreachableError, CriRefusedError
from livesize.runtime.containerd.limits_notifier import LimitsNotifier
from livesize.runtime.interface import MemoryInUseError, RuntimeCallError

CallThread: TypeAlias = Callable[..., Awaitable[Any]]

_IN_USE_WORDS = ("unable to set memory limit", "device or resource busy")


class Resizer:
    """``notifier``: None where containerd is asked for CPU too."""

    def __init__(
        self,
        containers: Containers,
        cgroups: CgroupDriver,
        in_thread: CallThread,
        notifier: LimitsNotifier | None,
    ) -> None:
        self._containers = containers
        self._cgroups = cgroups
        self._in_thread = in_thread
        self._notifier = notifier

    async def write(self, container_id: str, path: str, change: GroupChange) -> None:
        """``path``: the container's group."""
        notifier = self._notifier
        if notifier is not None and isinstance(change, SetCpu):
            async with notifier.turn(container_id):
                notifier.later(container_id, path, self._write_cpu(path, change))
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
        except CriRefusedError as refusal:
            await self._set_back(container_id, path, change, before)
            if isinstance(change, SetMemory):
                self._raise_if_in_use(path, change, before, str(refusal))
            raise
        except ContainerdUnreachableError:
            # It may have noted this limit or the one before, and sets that with its next update.
            if isinstance(change, SetMemory) and self._notifier is not None:
                self._notifier.later(container_id, path, before, memory=True)
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
            if self._notifier is None:
                if is_lowered:
                    await self._containers.set_memory(container_id, memory_bytes)
            elif is_lowered or _cpu(limits) != _cpu(recorded):
                self._notifier.later(container_id, path, limits, memory=is_lowered)

    @contextlib.asynccontextmanager
    async def _turn(self, container_id: str) -> AsyncIterator[None]:
        """To ask containerd for something."""
        if self._notifier is None:
            yield
            return
        async with self._notifier.turn(container_id):
            await self._notifier.now(container_id)
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
