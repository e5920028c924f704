"""Tells containerd what a container's limits are already: CPU, which is written without it, and
memory where containerd was asked for a change and could not be reached.

The kernel has them at once; containerd, which starts a program for every update, hears of it in the
background. With each update it sets everything it knows again, and an update that fails sets back
what it knew before. So every change of a container has its turn: nothing is written while an update
is under way, and what containerd does not know yet it hears before any other request. What it
refuses is written once more, and sent again for as long as the container has a group. Of memory it
hears what the kernel has by then, since any other limit might kill. If the agent ends before, the
next one compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref

import msgspec

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import Clock
from livesize.machinery.tasks import OwnedTasks
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.interface import GoneError, RuntimeCallError

log = get_logger("runtime.notifier")

AGAIN_SECONDS = (0.05, 0.2, 1.0)
CLOSE_SECONDS = 5.0
TOLD_AT_ONCE = 16
"""Each starts a program; after an absence of containerd's, all of them would."""


class LimitsNotifier:
    """``close`` before the connection is."""

    def __init__(self, containers: Containers, cgroups: CgroupDriver, clock: Clock) -> None:
        self._containers = containers
        self._cgroups = cgroups
        self._clock = clock
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._pending: dict[str, _PendingUpdate] = {}
        self._tasks = OwnedTasks()
        self._under_way: set[str] = set()
        self._layout = asyncio.Semaphore(TOLD_AT_ONCE)

    def turn(self, container_id: str) -> asyncio.Lock:
        turn = self._turns.get(container_id)
        if turn is None:
            turn = self._turns[container_id] = asyncio.Lock()
        return turn

    def later(
        self, container_id: str, path: str, limits: KernelLimits, *, memory: bool = False
    ) -> None:
        """By whoever has the turn: its group has the CPU of these limits, and containerd does not
        know of it; nor, where that is said, or was said before, what its ``memory`` is."""
        before = self._pending.get(container_id)
        memory = memory or (before is not None and before.memory)
        self._pending[container_id] = _PendingUpdate(
            path, limits.cpu_weight, limits.cpu_quota_us, memory
        )
        if container_id not in self._under_way:
            self._under_way.add(container_id)
            self._tasks.start(self._tell(container_id), name=f"limits of {container_id}")

    async def now(self, container_id: str, *, patient: bool = True) -> None:
        """What is left to tell of it; by whoever has the turn. ``patient``: wait for a containerd
        that is away. Raises RuntimeCallError."""
        pending = self._pending.get(container_id)
        if pending is None:
            return
        memory_bytes = self._cgroups.memory_limit(pending.path)
        limits = KernelLimits(pending.weight, pending.quota_us, memory_bytes)
        try:
            await self._containers.tell_limits(
                container_id, limits, memory=pending.memory, patient=patient
            )
        except BaseException:
            with contextlib.suppress(RuntimeCallError):
                self._cgroups.write_cpu(pending.path, pending.weight, pending.quota_us)
            raise
        del self._pending[container_id]

    async def close(self) -> None:
        """What is under way is finished, if that takes no longer than a moment."""
        await self._tasks.wait(CLOSE_SECONDS)
        await self._tasks.close()

    async def _tell(self, container_id: str) -> None:
        failures = 0
        try:
            while container_id in self._pending:
                if failures:
                    delay = AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS)) - 1]
                    await self._clock.sleep(delay)
                failures += 1
                async with self._layout, self.turn(container_id):
                    await self._tell_once(container_id, is_first=failures == 1)
        finally:
            self._under_way.discard(container_id)

    async def _tell_once(self, container_id: str, *, is_first: bool) -> None:
        """Not patient: who writes CPU waits for the turn meanwhile."""
        try:
            await self.now(container_id, patient=False)
        except GoneError:
            del self._pending[container_id]
        except RuntimeCallError as failure:
            if is_first:
                log.warning("containerd not told", container=container_id, reason=str(failure))
        except Exception:
            if is_first:
                log.exception("notifier containerd failed", container=container_id)


class _PendingUpdate(msgspec.Struct, frozen=True):
    path: str
    weight: int
    quota_us: int | None
    memory: bool
