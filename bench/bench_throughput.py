"""Many resizes: one pod back to back, a neighbour that makes room, five hundred at once.

The product is a real `livesize up` (root), asked over TLS; a resize is done when a watch that was
opened before has told so. Process runtime, except where five hundred pods are resized at once:
there the machine is the fake one, because what is measured is how much one agent can take.
"""

from __future__ import annotations

import itertools
import os
import time

from bench.following import has_come_to
from bench.harness import Context, Goal, Measured, Row, bench_rows
from bench.many_resizes import Operator, operating
from bench.pods import LARGE, SMALL, TINY, manifest
from bench.process_memory import read_memory
from bench.servers import System, whole_system
from livesize.runtime.oci import BUILT_IN_IMAGE

BACK_TO_BACK = 200
WARM_UP = 20
ROUNDS_OF_ROOM = 60
PODS_FOR_MEMORY = 50
PODS_AT_ONCE = 500
ROUNDS_AT_ONCE = 5
CONNECTIONS = 50
MEBIBYTE = 1 << 20

RATE_GOAL = Goal(value_at_least=40.0)
MEMORY_GOAL = Goal(value_at_most=190.0)


@bench_rows(
    Row("process: one pod, resized back to back", "1/s", RATE_GOAL, more_is_better=True),
    Row("process: deferred, neighbour shrinks → done, p99", "ms", Goal(value_at_most=100.0)),
    Row(f"process: PSS of up with {PODS_FOR_MEMORY} pods", "MiB", MEMORY_GOAL),
)
async def one_by_one(context: Context) -> list[Measured]:
    if os.geteuid() != 0:
        raise SystemExit("the benchmark of resizes starts real containers: run it as root")
    room = ("--allocatable", "cpu=6,memory=8Gi")
    async with (
        whole_system(context.folder / "data", f"bench-{os.getpid()}", *room) as system,
        operating(system) as operator,
    ):
        await operator.start_pods([manifest("bench-0", image=BUILT_IN_IMAGE)])
        rate = await back_to_back(operator, "bench-0")
        waited = await wait_for_room(operator)
        await operator.start_pods(
            manifest(f"more-{number}", image=BUILT_IN_IMAGE, size=TINY)
            for number in range(PODS_FOR_MEMORY - 3)
        )
        memory = pss_mebibytes(system)
    return [Measured(rate), Measured(context.percentile(waited, 99)), Measured(memory)]


async def back_to_back(operator: Operator, name: str) -> float:
    """Resizes in a second, each asked when the one before was told to be done."""
    sizes = itertools.cycle((LARGE, SMALL))
    for _ in range(WARM_UP):
        await operator.resize(name, next(sizes))
    began = time.perf_counter()
    for _ in range(BACK_TO_BACK):
        await operator.resize(name, next(sizes))
    return BACK_TO_BACK / (time.perf_counter() - began)


async def wait_for_room(operator: Operator) -> list[float]:
    """Milliseconds from the PATCH that makes room until what waited for it is told to be done."""
    half, rest = ({"cpu": cpu, "memory": "32Mi"} for cpu in ("2", "4500m"))
    await operator.start_pods(
        manifest(name, image=BUILT_IN_IMAGE, size=half) for name in ("grows", "makes-room")
    )
    waited = []
    small = {"cpu": "900m", "memory": "32Mi"}
    for _ in range(ROUNDS_OF_ROOM):
        asked = await operator.ask("grows", rest)
        await operator.told("grows", has_come_to("Deferred", asked))
        began = time.perf_counter()
        await operator.ask("makes-room", small)
        done = await operator.told("grows", has_come_to("Done", asked))
        waited.append((done - began) * 1000)
        await operator.resize("grows", half)
        await operator.resize("makes-room", half)
    return waited


def pss_mebibytes(system: System) -> float:
    """Of both processes of `up`; what else it started is not counted."""
    pids = (system.pid, system.control_plane_pid())
    return sum(read_memory(pid).pss_bytes for pid in pids) / MEBIBYTE


@bench_rows(
    Row(f"fake: {PODS_AT_ONCE} pods resized at once, last status", "s", Goal(value_at_most=3.0)),
)
async def many_at_once(context: Context) -> list[Measured]:
    options = ("--runtime", "fake", "--allocatable", "cpu=400,memory=400Gi")
    async with (
        whole_system(context.folder / "data", f"bench-{os.getpid()}", *options) as system,
        operating(system, CONNECTIONS) as operator,
    ):
        names = [f"bench-{number}" for number in range(PODS_AT_ONCE)]
        await operator.start_pods(manifest(name, image=BUILT_IN_IMAGE) for name in names)
        sizes = itertools.cycle((LARGE, SMALL))
        await operator.resize_all(names, next(sizes))
        taken = [await operator.resize_all(names, next(sizes)) for _ in range(ROUNDS_AT_ONCE)]
    return [Measured(context.median(taken))]
