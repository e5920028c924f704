"""Workloads: two hundred pods resized by their StatefulSet, and a thousand Deployments at rest.

What a StatefulSet adds is measured against as many pods that are resized by one PATCH each, as many
of them under way at once. Both stand in one `livesize up` on the fake machine, and take turns. Of
the Deployments at rest every other one has a pod, which runs: one node takes five hundred.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator

from bench.following import Holds, has_come_to, is_ready
from bench.harness import Context, Goal, Measured, Samples, bench
from bench.many_resizes import Operator, operating
from bench.pods import LARGE, NAMESPACE, SMALL, TINY, manifest, resize_patch
from bench.server_processes import cpu_seconds
from bench.servers import whole_system
from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, generation_of, lookup
from livesize.api.patch import PatchType
from livesize.api.workload_resize import ANNOTATIONS, HELD, PARALLELISM
from livesize.runtime.oci import BUILT_IN_IMAGE

REPLICAS = 200
UNDER_WAY = 10
ROUNDS = 6
IDLE = 1_000
IDLE_SECONDS = 20.0
WAIT_SECONDS = 120.0
FAKE = ("--runtime", "fake", "--allocatable", "cpu=400,memory=400Gi")


@bench(
    f"workloads: {REPLICAS} pods by their StatefulSet against PATCHes, {UNDER_WAY} at once",
    unit="s",
    goal=Goal(ratio_at_most=2.0),
)
async def by_stateful_set(context: Context) -> Measured:
    async with (
        whole_system(context.folder / "data", f"bench-{os.getpid()}", *FAKE) as system,
        operating(system, UNDER_WAY) as operator,
    ):
        bare = [f"bare-{number}" for number in range(REPLICAS)]
        await operator.start_pods(manifest(name, image=BUILT_IN_IMAGE) for name in bare)
        await operator.client.create(STATEFUL_SETS, stateful_set())
        await all_come_to(operator, members(), is_ready)
        sizes, bare_sizes = (itertools.cycle((LARGE, SMALL)) for _ in range(2))

        async def product() -> Samples:
            return [await resize_set(operator, next(sizes))]

        async def raw() -> Samples:
            return [await resize_each(operator, bare, next(bare_sizes))]

        await product()
        await raw()
        taken, direct = await context.interleave(product, raw, ROUNDS)
    return Measured(context.median(taken), context.median(direct))


def members() -> list[str]:
    return [f"db-{ordinal}" for ordinal in range(REPLICAS)]


async def resize_set(operator: Operator, size: Object) -> float:
    """Seconds from the PATCH of its template until every pod is told to have the size."""
    patch = {"spec": {"template": resize_patch(size)}}
    began = time.perf_counter()
    await operator.client.patch(
        STATEFUL_SETS, "db", patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
    )
    done = await all_come_to(operator, members(), has_size(size))
    await released(operator)
    return done - began


async def resize_each(operator: Operator, names: list[str], size: Object) -> float:
    """The same for pods without a workload: each connection asks for the next when one is done."""
    await operator.reopen()
    left = iter(names)

    async def resize_some(wire: int) -> None:
        for name in left:
            generation = await operator.ask(name, size, wire=wire)
            await operator.told(name, has_come_to("Done", generation))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for wire in range(UNDER_WAY):
            tasks.create_task(resize_some(wire))
    return time.perf_counter() - began


async def released(operator: Operator) -> None:
    """Its own controller has it again; this is not measured."""
    async with asyncio.timeout(WAIT_SECONDS):
        while HELD in lookup(await read_set(operator), *ANNOTATIONS, default={}):
            await asyncio.sleep(0.05)


async def read_set(operator: Operator) -> Object:
    return await operator.client.get(STATEFUL_SETS, "db", NAMESPACE)


async def all_come_to(operator: Operator, names: list[str], holds: Holds) -> float:
    """The moment at which the last of them was told to."""
    async with asyncio.timeout(WAIT_SECONDS):
        return max([await operator.follower.until(name, holds) for name in names])


def has_size(size: Object) -> Holds:
    def holds(pod: Object) -> bool:
        limits = lookup(pod, "spec", "containers")[0]["resources"]["limits"]
        return limits == size and has_come_to("Done", generation_of(pod))(pod)

    return holds


@bench(
    f"workloads: CPU of the control plane, {IDLE:,} Deployments at rest",
    unit="% of a core",
    goal=Goal(value_at_most=1.0),
)
async def at_rest(context: Context) -> Measured:
    async with (
        whole_system(context.folder / "data", f"bench-{os.getpid()}", *FAKE) as system,
        operating(system) as operator,
    ):
        for made in deployments():
            await operator.client.create(DEPLOYMENTS, made)
        await are_available(operator)
        pid = system.control_plane_pid()
        before = cpu_seconds(pid)
        await asyncio.sleep(IDLE_SECONDS)
        spent = cpu_seconds(pid) - before
    return Measured(100 * spent / IDLE_SECONDS)


async def are_available(operator: Operator) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            listed = await operator.client.list(DEPLOYMENTS, Selection(NAMESPACE))
            ready = [lookup(one, "status", "availableReplicas", default=0) for one in listed.items]
            if sum(ready) == IDLE // 2:
                return
            await asyncio.sleep(1)


def deployments() -> Iterator[Object]:
    for number in range(IDLE):
        spec = workload_spec(f"web-{number}", TINY) | {"replicas": number % 2}
        yield {"metadata": {"name": f"web-{number}", "namespace": NAMESPACE}, "spec": spec}


def stateful_set() -> Object:
    annotations = {"resizeAction": "InPlaceResize", PARALLELISM: str(UNDER_WAY)}
    spec = workload_spec("db", SMALL) | {
        "replicas": REPLICAS,
        "serviceName": "db",
        "podManagementPolicy": "Parallel",
    }
    metadata = {"name": "db", "namespace": NAMESPACE, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def workload_spec(name: str, size: Object) -> Object:
    labels = {"app": name}
    pod = manifest(name, image=BUILT_IN_IMAGE, size=size)
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
    }
