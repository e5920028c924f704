"""Processes of a simulation: each is one task that is killed at once, wherever it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Process:
    """``failure``: why it ended, though nothing killed it."""

    def __init__(self, tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        self.failure: BaseException | None = None
        self._task = tasks.create_task(self._run(work))

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as failure:  # noqa: BLE001 - whoever started it asks for it
            self.failure = failure
        else:
            self.failure = RuntimeError("it ended by itself")
