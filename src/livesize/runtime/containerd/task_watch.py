"""Hears what happens to containers: by containerd's events, and by looking from time to time.

Events say it at once. Looking again, seldom and after every lost connection, finds what happened
meanwhile. Nothing here decides anything: the listener hears which task to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from livesize.machinery.clock import Clock
from livesize.machinery.telemetry import get_logger
from livesize.runtime.containerd.cri_client import ContainerdUnreachableError, CriClient, TaskEvent
from livesize.runtime.containerd.daemon import ContainerdDaemon
from livesize.runtime.interface import RuntimeCallError

log = get_logger("runtime.containerd")

_SOON_SECONDS = 0.5
"""After a connection: containerd may have begun to listen a moment after it was asked."""
_AGAIN_SECONDS = 0.05
_RESTART_SECONDS = (0.0, 0.1, 0.5, 2.0, 5.0)
_STABLE_SECONDS = 0.5  # it takes less to start: one that lasts longer was killed, not broken


class TaskListener(Protocol):
    async def task_ended(self, container_id: str) -> None: ...

    async def task_out_of_memory(self, container_id: str) -> None: ...

    async def exec_started(self, container_id: str, pid: int) -> None: ...

    async def look_again(self) -> None:
        """At everything: something may have been missed."""
        ...


class TaskWatcher:
    """``daemon`` None: a containerd that somebody else keeps running."""

    def __init__(
        self,
        client: CriClient,
        daemon: ContainerdDaemon | None,
        listener: TaskListener,
        clock: Clock,
        relist_seconds: float,
    ) -> None:
        self._client = client
        self._daemon = daemon
        self._listener = listener
        self._clock = clock
        self._relist_seconds = relist_seconds
        self._connected = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(tasks))
            tasks.create_task(self._relist())
            if self._daemon is not None:
                tasks.create_task(self._keep_running(self._daemon))

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            with contextlib.suppress(ContainerdUnreachableError):
                async with contextlib.aclosing(self._client.events()) as events:
                    async for event in events:
                        if event is None:
                            self._connected.set()
                            continue
                        tasks.create_task(_guarded(self._tell, event))
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _tell(self, event: TaskEvent) -> None:
        if event.pid:
            await self._listener.exec_started(event.container_id, event.pid)
        elif event.oom:
            await self._listener.task_out_of_memory(event.container_id)
        else:
            await self._listener.task_ended(event.container_id)

    async def _relist(self) -> None:
        while True:
            await self._connected_within(self._relist_seconds)
            await _guarded(self._listener.look_again)
            if self._connected.is_set():
                self._connected.clear()
                await self._clock.sleep(_SOON_SECONDS)
                await _guarded(self._listener.look_again)

    async def _connected_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connected.wait()

    async def _keep_running(self, daemon: ContainerdDaemon) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            await daemon.wait_ended()
            stable = self._clock.monotonic() - began > _STABLE_SECONDS
            failures = 0 if stable else failures + 1
            pause_seconds = _RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)]
            log.warning("containerd ended", pause_seconds=pause_seconds, words=daemon.why_not())
            await self._clock.sleep(pause_seconds)
            try:
                daemon.start()
            except (RuntimeCallError, OSError) as failure:
                log.warning("containerd cannot be started", reason=str(failure))
                await self._clock.sleep(_RESTART_SECONDS[-1])


async def _guarded(tell: Callable[..., Awaitable[None]], *about: TaskEvent) -> None:
    """One failure must not end the watching: what was missed is found by looking again."""
    try:
        await tell(*about)
    except RuntimeCallError as failure:
        log.warning("cannot look at containers", reason=str(failure))
    except Exception:
        log.exception("looking at containers failed")
