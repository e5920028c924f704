"""Tells containerd what a container's CPU limits are already.

The kernel has them at once; containerd, which starts a program for every update, hears of it while
nobody waits. With each update it sets everything it knows again, and an update that fails sets back
what was known before. So whoever changes a container has its turn: nothing is written while an
update is under way, and what is not told yet is told before anything else is asked. What cannot be
told is written once more, and told again for as long as the container has a group. An agent that
ends before is followed by one that compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref

import msgspec

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.interface import GoneError, RuntimeCallError

log = get_logger("runtime.telling")

AGAIN_SECONDS = (0.1, 1.0, 10.0)
CLOSE_SECONDS = 5.0


class Telling:
    """``close`` before the connection is."""

    def __init__(self, containers: Containers, cgroups: CgroupDriver, clock: Clock) -> None:
        self._containers = containers
        self._cgroups = cgroups
        self._clock = clock
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._untold: dict[str, _Untold] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def turn(self, container_id: str) -> asyncio.Lock:
        turn = self._turns.get(container_id)
        if turn is None:
            turn = self._turns[container_id] = asyncio.Lock()
        return turn

    def later(self, container_id: str, path: str, limits: KernelLimits) -> None:
        """Its group has the CPU of these limits."""
        self._untold[container_id] = _Untold(path, limits.cpu_weight, limits.cpu_quota_us)
        if container_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._tell(container_id))
            self._tasks[container_id] = task

    async def now(self, container_id: str) -> None:
        """What is left to tell of it; by whoever has the turn. Raises RuntimeCallError."""
        untold = self._untold.get(container_id)
        if untold is None:
            return
        try:
            await self._containers.set_cpu(container_id, untold.weight, untold.quota_us)
        except RuntimeCallError:
            with contextlib.suppress(RuntimeCallError):
                self._cgroups.write_cpu(untold.path, untold.weight, untold.quota_us)
            raise
        del self._untold[container_id]

    async def close(self) -> None:
        """What is under way is finished, if that takes no longer than a moment."""
        tasks = tuple(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _tell(self, container_id: str) -> None:
        failures = 0
        try:
            while container_id in self._untold:
                if failures:
                    delay = AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS)) - 1]
                    await self._clock.sleep(delay)
                failures += 1
                async with self.turn(container_id):
                    await self._tell_once(container_id)
        finally:
            del self._tasks[container_id]

    async def _tell_once(self, container_id: str) -> None:
        untold = self._untold.get(container_id)
        if untold is None:
            return
        try:
            if self._cgroups.exists(untold.path):
                await self.now(container_id)
            else:
                del self._untold[container_id]
        except GoneError:
            del self._untold[container_id]
        except RuntimeCallError as failure:
            log.warning("containerd not told", container=container_id, reason=str(failure))


class _Untold(msgspec.Struct, frozen=True):
    path: str
    weight: int
    quota_us: int | None
