"""The API server with many pods: LIST, memory, and what their number does to one PATCH.

Two control planes run side by side, one with 1,000 pods and one with 20,000. LIST is compared with
the bare server that answers the same bytes. For PATCH the yardstick is the product itself: a
resize among 20,000 pods against one among 1,000, so that anything which looks at every pod shows.
A served pod has about 2.2 KB.
"""

from __future__ import annotations

import time

from bench.bench_api import Client, clients, patch_alone, patch_together
from bench.harness import Context, Goal, Measured, Row, Samples, bench_rows
from bench.pods import PODS_PATH
from bench.process_memory import read_memory
from bench.seeding import seed
from bench.server_processes import child_with
from bench.servers import BenchServer, control_plane, raw_server
from bench.wire import Wire, request_bytes

FEW = 1_000
MANY = 20_000
ROUNDS = 20
LISTS = 3
PATCHES = 20
FILLING_ROUNDS = 3  # of 384: memory is read when as many changes are remembered as ever will be


@bench_rows(
    Row(f"api: LIST {FEW:,} pods, p50", "ms", Goal(ratio_at_most=2.0)),
    Row(f"api: PATCH resize among {MANY:,} pods against {FEW:,}", "ms", Goal(ratio_at_most=1.5)),
    Row(f"api: memory with {FEW:,} pods", "MiB", Goal(value_at_most=100.0)),
)
async def many_pods(context: Context) -> list[Measured]:
    few_folder, many_folder = context.folder / "few", context.folder / "many"
    await seed(few_folder, FEW)
    await seed(many_folder, MANY)
    async with control_plane(few_folder) as few, control_plane(many_folder) as many:
        listing = await measure_list(context, few)
        async with (
            clients(few.address, few.admin_token) as among_few,
            clients(many.address, many.admin_token) as among_many,
        ):
            patch = await measure_patch(context, among_many[0], among_few[0])
            for _ in range(FILLING_ROUNDS):
                await patch_together(among_few)
        memory = read_memory(child_with(str(few_folder)))
        return [listing, patch, Measured(memory.rss_bytes / 2**20)]


async def measure_list(context: Context, server: BenchServer) -> Measured:
    request = request_bytes("GET", PODS_PATH, server.admin_token)
    ours = await Wire.open(server.address)
    answer = await ours.ask(request)
    async with raw_server(context.folder, answer, server.tls) as address:
        bare = await Wire.open(address)
        product, raw = await context.interleave(
            lambda: ask_often(ours, request), lambda: ask_often(bare, request), ROUNDS
        )
        bare.close()
    ours.close()
    return Measured(context.median(product), context.median(raw))


async def ask_often(wire: Wire, request: bytes) -> Samples:
    taken = []
    for _ in range(LISTS):
        began = time.perf_counter()
        await wire.ask(request)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def measure_patch(context: Context, many: Client, few: Client) -> Measured:
    for one in (many, few):
        await patch_alone(one, PATCHES)
    among_many, among_few = await context.interleave(
        lambda: patch_alone(many, PATCHES), lambda: patch_alone(few, PATCHES), ROUNDS
    )
    return Measured(context.median(among_many), context.median(among_few))
