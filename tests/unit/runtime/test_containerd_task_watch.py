"""Whoever follows containers hears of every end: by events, or by looking again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from livesize.machinery.clock import SystemClock
from livesize.runtime.containerd.cri_client import ContainerdUnreachableError, TaskEvent
from livesize.runtime.containerd.task_watch import TaskWatcher
from livesize.runtime.interface import RuntimeCallError


class Connection:
    """Stands for a client: connections come one after the other, and each breaks when told to."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[TaskEvent | None] = asyncio.Queue()
        self.connections = 0

    async def events(self) -> AsyncGenerator[TaskEvent | None, None]:
        self.connections += 1
        yield None
        while (event := await self.queue.get()) is not None:
            yield event
        raise ContainerdUnreachableError("it broke")


class Followed:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.looks = 0
        self.fails: Callable[[], Exception | None] = lambda: None

    async def task_ended(self, container_id: str) -> None:
        failure = self.fails()
        if failure is not None:
            raise failure
        self.told.append(f"ended {container_id}")

    async def task_out_of_memory(self, container_id: str) -> None:
        self.told.append(f"out of memory {container_id}")

    async def exec_started(self, container_id: str, pid: int) -> None:
        self.told.append(f"started {pid} in {container_id}")

    async def look_again(self) -> None:
        self.looks += 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def listener() -> Followed:
    return Followed()


@pytest.fixture
def relist_seconds() -> float:
    return 1000.0


@pytest.fixture(autouse=True)
async def _watching(
    connection: Connection, listener: Followed, relist_seconds: float
) -> AsyncIterator[None]:
    client: Any = connection
    watcher = TaskWatcher(client, None, listener, SystemClock(), relist_seconds)
    task = asyncio.create_task(watcher.run())
    yield
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_events_are_told_at_once(connection: Connection, listener: Followed) -> None:
    connection.queue.put_nowait(TaskEvent("a", oom=True))
    connection.queue.put_nowait(TaskEvent("a", oom=False))
    connection.queue.put_nowait(TaskEvent("b", oom=False, pid=7))
    await until(lambda: listener.told == ["out of memory a", "ended a", "started 7 in b"])


async def test_after_a_lost_connection_everything_is_looked_at(
    connection: Connection, listener: Followed
) -> None:
    await until(lambda: listener.looks == 2)  # at once, and when containerd surely listens
    connection.queue.put_nowait(None)
    await until(lambda: connection.connections == 2 and listener.looks >= 3)
    connection.queue.put_nowait(TaskEvent("b", oom=False))
    await until(lambda: listener.told == ["ended b"])


@pytest.mark.parametrize("relist_seconds", [0.01])
async def test_what_no_event_told_is_found_by_looking(listener: Followed) -> None:
    await until(lambda: listener.looks > 5)


@pytest.mark.parametrize("failure", [RuntimeCallError("away"), ValueError("a bug")])
async def test_a_failure_ends_nothing(
    connection: Connection, listener: Followed, failure: Exception
) -> None:
    failures = iter([failure])
    listener.fails = lambda: next(failures, None)
    connection.queue.put_nowait(TaskEvent("a", oom=False))
    connection.queue.put_nowait(TaskEvent("b", oom=False))
    await until(lambda: listener.told == ["ended b"])
