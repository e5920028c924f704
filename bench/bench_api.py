"""GET and PATCH of pods through the API server, against a bare server that does no thinking.

The product is `livesize apiserver` in its own process: TLS, tokens, validation, admission, watch
cache, durable commits. A PATCH is a resize through pods/resize, of a
pod that is bound and runs. The yardstick (bench.raw_asgi) answers the same bytes, after the same
kind of commit, to the same client.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.harness import Context, Goal, Measured, Row, Samples, bench_rows
from bench.pods import (
    LARGE,
    NODES_PATH,
    PODS_PATH,
    SMALL,
    STRATEGIC,
    manifest,
    node_manifest,
    resize_patch,
    running_status,
)
from bench.servers import BENCH_NODE, BenchServer, api_server, raw_server
from bench.wire import Address, Wire, request_bytes

CLIENTS = 32
ALONE_ROUNDS = 60
ALONE_REQUESTS = 8
ROUNDS = 14
GETS_EACH = 25
PATCHES_EACH = 12
WARM_UP_REQUESTS = 20


class Client(msgspec.Struct, frozen=True):
    """One connection, and the requests it repeats."""

    wire: Wire
    get: bytes
    patches: Iterator[bytes]


@bench_rows(
    Row("api: GET pod, 1 client, p50", "ms"),
    Row(f"api: GET pod, {CLIENTS} clients", "/s", Goal(ratio_at_most=1 / 0.5), more_is_better=True),
    Row("api: PATCH resize, 1 client, p50", "ms", Goal(ratio_at_most=2.0)),
    Row(
        f"api: PATCH resize, {CLIENTS} clients",
        "/s",
        Goal(ratio_at_most=round(1 / 0.3, 2)),
        more_is_better=True,
    ),
)
async def get_and_patch(context: Context) -> list[Measured]:
    async with api_server(context.folder / "data") as server:
        answer = await make_pods(server)
        async with (
            raw_server(context.folder, answer, server.tls) as raw,
            clients(server.address, server.admin_token) as ours,
            clients(raw, server.admin_token) as bare,
        ):
            for one in (*ours[:2], *bare[:2]):
                await get_alone(one, WARM_UP_REQUESTS)
                await patch_alone(one, WARM_UP_REQUESTS)
            return await measure(context, ours, bare)


async def measure(
    context: Context, ours: Sequence[Client], bare: Sequence[Client]
) -> list[Measured]:
    get_alone_both = await context.interleave(
        lambda: get_alone(ours[0]), lambda: get_alone(bare[0]), ALONE_ROUNDS
    )
    get_both = await context.interleave(
        lambda: get_together(ours), lambda: get_together(bare), ROUNDS
    )
    patch_alone_both = await context.interleave(
        lambda: patch_alone(ours[0]), lambda: patch_alone(bare[0]), ALONE_ROUNDS
    )
    patch_both = await context.interleave(
        lambda: patch_together(ours), lambda: patch_together(bare), ROUNDS
    )
    return [
        Measured(context.median(product), context.median(raw))
        for product, raw in (get_alone_both, get_both, patch_alone_both, patch_both)
    ]


async def make_pods(server: BenchServer) -> bytes:
    """One for each client, as if they ran on a node; returns the first as it is served."""
    wire, node = await Wire.open(server.address), await Wire.open(server.address)
    status = {"status": running_status()}
    await node.ask(request_bytes("POST", NODES_PATH, server.node_token, node_manifest(BENCH_NODE)))
    for number in range(CLIENTS):
        pod = manifest(pod_name(number), image="localhost/bench:1", node=BENCH_NODE)
        await wire.ask(request_bytes("POST", PODS_PATH, server.admin_token, pod))
        path = f"{PODS_PATH}/{pod_name(number)}/status"
        merge = "application/merge-patch+json"
        await node.ask(request_bytes("PATCH", path, server.node_token, status, merge))
    path = f"{PODS_PATH}/{pod_name(0)}/resize"
    patch = request_bytes("PATCH", path, server.admin_token, resize_patch(LARGE), STRATEGIC)
    answer = await wire.ask(patch)
    wire.close()
    node.close()
    return answer


def pod_name(number: int) -> str:
    return f"bench-{number}"


@asynccontextmanager
async def clients(address: Address, token: str) -> AsyncIterator[list[Client]]:
    made = []
    for number in range(CLIENTS):
        path = f"{PODS_PATH}/{pod_name(number)}"
        get = request_bytes("GET", path, token)
        patches = [
            request_bytes("PATCH", f"{path}/resize", token, resize_patch(size), STRATEGIC)
            for size in (LARGE, SMALL)
        ]
        made.append(Client(await Wire.open(address), get, itertools.cycle(patches)))
    try:
        yield made
    finally:
        for client in made:
            client.wire.close()


async def get_alone(client: Client, requests: int = ALONE_REQUESTS) -> Samples:
    return [await _timed(client.wire, client.get) for _ in range(requests)]


async def patch_alone(client: Client, requests: int = ALONE_REQUESTS) -> Samples:
    return [await _timed(client.wire, next(client.patches)) for _ in range(requests)]


async def get_together(all_clients: Sequence[Client]) -> Samples:
    async def work(client: Client) -> None:
        for _ in range(GETS_EACH):
            await client.wire.ask(client.get)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in all_clients:
            group.create_task(work(client))
    return [len(all_clients) * GETS_EACH / (time.perf_counter() - began)]


async def patch_together(all_clients: Sequence[Client]) -> Samples:
    async def work(client: Client) -> None:
        for _ in range(PATCHES_EACH):
            await client.wire.ask(next(client.patches))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in all_clients:
            group.create_task(work(client))
    return [len(all_clients) * PATCHES_EACH / (time.perf_counter() - began)]


async def _timed(wire: Wire, request: bytes) -> float:
    began = time.perf_counter()
    await wire.ask(request)
    return (time.perf_counter() - began) * 1000
