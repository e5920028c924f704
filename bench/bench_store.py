"""Durable commits of the SQLite store, against bare apsw INSERT and COMMIT of the same bytes.

The goals are ratios only: the disk's own speed changes several times over with the machine's load.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from bench.harness import Context, Goal, Measured, Samples, bench
from bench.raw_sqlite import POD_BYTES, RawTable
from livesize.store.interface import Check, Put
from livesize.store.sqlite import SqliteStore

ALONE_ROUNDS = 100
ALONE_COMMITS = 8
"""Short turns: load comes in waves longer than these, so that both sides sit in the same one."""
ROUNDS = 8
TASKS = 64
TASK_COMMITS = 30


@contextlib.asynccontextmanager
async def both(context: Context) -> AsyncIterator[tuple[SqliteStore, RawTable]]:
    raw = RawTable(context.folder / "raw.db")
    store = await SqliteStore.open(context.folder / "store.db", epoch=1)
    try:
        yield store, raw
    finally:
        await store.close()
        raw.close()


def pod() -> bytes:
    """New bytes each time, so that nothing below can be clever about them."""
    return random.randbytes(POD_BYTES)


async def update(store: SqliteStore, key: str) -> None:
    """As the API server does it: read, then write if nobody else has."""
    entry = await store.get(key)
    revision = entry.mod_revision if entry is not None else 0
    await store.commit([Check(key, revision)], [Put(key, pod())])


async def one_by_one(act: Callable[[], Awaitable[None]]) -> list[float]:
    samples: list[float] = []
    for _ in range(ALONE_COMMITS):
        began = time.perf_counter()
        await act()
        samples.append((time.perf_counter() - began) * 1000)
    return samples


async def measure_alone(context: Context, percent: float) -> Measured:
    async with both(context) as (store, raw):

        async def commit() -> None:
            await update(store, "pods/default/web")

        async def insert() -> None:
            raw.insert([("pods/default/web", pod())])

        product, bare = await context.interleave(
            lambda: one_by_one(commit), lambda: one_by_one(insert), ALONE_ROUNDS
        )
    return Measured(context.percentile(product, percent), context.percentile(bare, percent))


@bench(
    "store: durable commit, 1 client, p50",
    unit="ms",
    goal=Goal(ratio_at_most=2.0),
)
async def alone_p50(context: Context) -> Measured:
    return await measure_alone(context, 50)


@bench("store: durable commit, 1 client, p99", unit="ms", goal=Goal(ratio_at_most=3.0))
async def alone_p99(context: Context) -> Measured:
    return await measure_alone(context, 99)


@bench(
    "store: durable commits, 64 tasks (raw: 64 INSERTs, one COMMIT)",
    unit="commits/s",
    goal=Goal(ratio_at_most=3.0),
    more_is_better=True,
)
async def together(context: Context) -> Measured:
    async with both(context) as (store, raw):

        async def work(task: int) -> None:
            for _ in range(TASK_COMMITS):
                await update(store, f"pods/default/web-{task}")

        async def commit() -> Samples:
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for task in range(TASKS):
                    group.create_task(work(task))
            return [TASKS * TASK_COMMITS / (time.perf_counter() - began)]

        async def insert() -> Samples:
            began = time.perf_counter()
            for _ in range(TASK_COMMITS):
                raw.insert([(f"pods/default/web-{task}", pod()) for task in range(TASKS)])
            return [TASKS * TASK_COMMITS / (time.perf_counter() - began)]

        product, bare = await context.interleave(commit, insert, ROUNDS)
    return Measured(context.median(product), context.median(bare))
