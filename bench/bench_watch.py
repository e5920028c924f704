"""Watches: one change told to 200 readers, against a bare server that tells them the same bytes.

The readers are in another process. 50 changes a second are made by resizing pods in turn. Two
things are measured of each change: how long after it was asked for half of the readers had it,
and how much CPU the server spent on it, the commit and all its deliveries together. The bare
server makes the same bytes durable and writes them to every connection in one loop.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.bench_api import Client, clients, make_pods
from bench.harness import Context, Goal, Measured, Row, bench_rows
from bench.pods import PODS_PATH
from bench.server_processes import child_with, cpu_seconds
from bench.servers import control_plane, raw_server
from bench.wire import Address, request_bytes

READERS = 200
CHANGES_PER_SECOND = 50
ROUNDS = 3
CHANGES = 150  # in each round
_WATCH = f"{PODS_PATH}?watch=true&resourceVersion="


class Watched(msgspec.Struct, frozen=True):
    """A server, who changes its pods, and who reads what it tells."""

    pid: int
    writers: Sequence[Client]
    readers: subprocess.Popen[bytes]


class Told(msgspec.Struct, frozen=True):
    """One round: milliseconds until each change was seen, and of CPU for one change."""

    seen: list[float]
    cpu: float


@bench_rows(
    Row(f"watch: a change seen by {READERS} readers, p50", "ms", Goal(ratio_at_most=2.0)),
    Row(f"watch: CPU of a change told to {READERS} readers", "ms", Goal(ratio_at_most=2.0)),
)
async def fan_out(context: Context) -> list[Measured]:
    async with (
        control_plane(context.folder / "data") as server,
        clients(server.address, server.admin_token) as ours,
    ):
        answer = await make_pods(server)
        for writer in ours:  # one pod had this size already, from here on each PATCH is a change
            answer = await writer.wire.ask(next(writer.patches))
        version = msgspec.json.decode(answer)["metadata"]["resourceVersion"]
        line = b'{"type":"MODIFIED","object":%b}' % answer
        async with (
            raw_server(context.folder, line, server.tls) as raw,
            clients(raw, server.admin_token) as bare,
            reading(server.address, server.admin_token, version) as our_readers,
            reading(raw, server.admin_token, version) as bare_readers,
        ):
            product = Watched(child_with("control_plane"), ours, our_readers)
            yardstick = Watched(child_with("raw_asgi"), bare, bare_readers)
            return await measure(context, product, yardstick)


async def measure(context: Context, product: Watched, yardstick: Watched) -> list[Measured]:
    told: list[tuple[Told, Told]] = []
    for number in range(ROUNDS + 1):
        pair = await change_often(product), await change_often(yardstick)
        if number:  # the first is to warm up
            told.append(pair)
    ours, bare = zip(*told, strict=True)
    return [
        Measured(
            context.median([one for told in ours for one in told.seen]),
            context.median([one for told in bare for one in told.seen]),
        ),
        Measured(
            context.median([told.cpu for told in ours]), context.median([told.cpu for told in bare])
        ),
    ]


async def change_often(watched: Watched) -> Told:
    readers, writers = watched.readers, itertools.cycle(watched.writers)
    assert readers.stdin is not None
    assert readers.stdout is not None
    readers.stdin.write(b"%d\n" % CHANGES)
    readers.stdin.flush()
    before = cpu_seconds(watched.pid)
    begun = time.monotonic()
    asked = []
    async with asyncio.TaskGroup() as group:
        for number in range(CHANGES):
            pause = begun + number / CHANGES_PER_SECOND - time.monotonic()
            await asyncio.sleep(max(0.0, pause))
            asked.append(time.monotonic())
            writer = next(writers)
            group.create_task(writer.wire.ask(next(writer.patches)))
    seen = msgspec.json.decode(await asyncio.to_thread(readers.stdout.readline), type=list[float])
    spent = cpu_seconds(watched.pid) - before
    delays = [(end - start) * 1000 for start, end in zip(asked, seen, strict=True)]
    return Told(delays, spent * 1000 / CHANGES)


@asynccontextmanager
async def reading(
    address: Address, token: str, version: str
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Readers of all changes after ``version``."""
    arguments = ["--port", str(address.port), "--ca", str(address.ca_cert)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.watch_readers", *arguments, "--readers", str(READERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(base64.b64encode(request_bytes("GET", _WATCH + version, token)) + b"\n")
        process.stdin.flush()
        assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
        yield process
    finally:
        process.stdin.close()
        await asyncio.to_thread(process.wait)
        process.stdout.close()
