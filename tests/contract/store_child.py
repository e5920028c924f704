"""Commits for ever and prints each write once it was acknowledged, until somebody kills it.

    store_child.py FILE RUN [CRASH_POINT COUNT]

With a crash point, it kills itself the COUNT-th time that point is reached.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from livesize.machinery.steps import CrashPoints
from livesize.store.interface import Put
from livesize.store.sqlite import SqliteStore

TASKS = 8


class CrashLater(CrashPoints):
    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self._name = name
        self._count = count

    def reach(self, name: str) -> None:
        if name == self._name:
            self._count -= 1
            if self._count == 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def write(store: SqliteStore, run: int, task: int) -> None:
    number = 0
    while True:
        key = f"run/{run:03}/{task}/{number:06}"
        newest = Put(f"newest/{task}", key.encode())
        revision = await store.commit([], [Put(key, key.encode() * 50), newest])
        os.write(1, f"{key} {revision}\n".encode())
        number += 1


async def compact(store: SqliteStore) -> None:
    while True:
        await store.compact(max(0, await store.revision() - 200))
        await asyncio.sleep(0.005)


async def main(path: str, run: str, crash_point: str = "", count: str = "0") -> None:
    points = CrashLater(crash_point, int(count))
    store = await SqliteStore.open(Path(path), epoch=f"run-{run}", points=points)
    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            group.create_task(write(store, int(run), task))
        group.create_task(compact(store))


asyncio.run(main(*sys.argv[1:]))
