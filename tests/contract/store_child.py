"""Commits for ever and tells each write once it was acknowledged, until somebody kills it.

As a program it is the nursery of such children: a line of JSON on its standard input,

    [FIFO, "sqlite", FILE, RUN, SEEN, (CRASH_POINT, COUNT)], or [FIFO, "etcd", ENDPOINTS, …]

makes it fork one that tells what it does into the FIFO, and print its pid. The next line ends that
child and prints its exit code. To fork is quick; to import everything takes half a second.

With a crash point, it kills itself the COUNT-th time that point is reached. History up to the
revision SEEN is compacted meanwhile, step by step, each of them said before it is asked for
("compacting REVISION"); what comes after SEEN is somebody's to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from livesize.machinery.clock import SystemClock
from livesize.machinery.steps import CrashPoints
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore
from livesize.store.interface import Put, Store, StoreUnavailableError
from livesize.store.sqlite import SqliteStore

TASKS = 8
COMPACT_STEP = 50
COMPACTING = "compacting"


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


async def open_store(kind: str, where: str, epoch: int, points: CrashPoints) -> Store:
    if kind == "sqlite":
        return await SqliteStore.open(Path(where), epoch=epoch, points=points)
    settings = EtcdSettings(tuple(where.split(",")))
    return await EtcdStore.open(settings, epoch=epoch, clock=SystemClock(), points=points)


def tell(words: str) -> None:
    """To standard output, so that each line is whole."""
    os.write(1, f"{words}\n".encode())


async def write(store: Store, run: int, task: int) -> None:
    number = 0
    while True:
        key = f"run/{run:03}/{task}/{number:06}"
        number += 1
        newest = Put(f"newest/{task}", key.encode())
        try:
            revision = await store.commit([], [Put(key, key.encode() * 50), newest])
        except StoreUnavailableError:
            continue  # it was not acknowledged
        tell(f"{key} {revision}")


async def compact(store: Store, seen: int) -> None:
    at = max(0, seen - 20 * COMPACT_STEP)
    while at < seen:
        at = min(seen, at + COMPACT_STEP)
        tell(f"{COMPACTING} {at}")
        with contextlib.suppress(StoreUnavailableError):
            await store.compact(at)
        await asyncio.sleep(0.005)


async def main(
    kind: str, where: str, run: str, seen: str, crash_point: str = "", count: str = "0"
) -> None:
    points = CrashLater(crash_point, int(count))
    store = await open_store(kind, where, int(run), points)
    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            group.create_task(write(store, int(run), task))
        group.create_task(compact(store, int(seen)))


def nurse() -> None:
    for line in sys.stdin:
        fifo, *words = json.loads(line)
        pid = os.fork()
        if not pid:
            os.dup2(os.open(fifo, os.O_WRONLY), 1)
            asyncio.run(main(*words))
        print(pid, flush=True)
        sys.stdin.readline()
        os.kill(pid, signal.SIGKILL)  # it is still ours, alive or not
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    nurse()
