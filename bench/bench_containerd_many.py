"""Many resizes through containerd: one pod back to back, and a hundred pods at once.

The product is a real `livesize up --runtime containerd` (root). The yardstick is the call
underneath, UpdateContainerResources, to the same containerd for the same containers, with the
limits they have at that moment, so that nothing drifts: one after the other, or all at once as the
product makes them. Only CPU changes, so that each resize has one call, made after it is reported.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from bench.bench_throughput import MEMORY_GOAL, PODS_FOR_MEMORY, RATE_GOAL, pss_mebibytes
from bench.harness import Context, Goal, Measured, Row, bench_rows
from bench.many_resizes import Operator, operating
from bench.pods import TINY, manifest
from bench.servers import System, whole_system
from livesize.api.kernel_units import CgroupVersion, KernelLimits, to_kernel
from livesize.api.objects import Object
from livesize.api.resources import parse_resources
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.cri_client import CriClient
from livesize.runtime.containerd.daemon import ContainerdDaemon, find_programs
from livesize.runtime.oci import BUILT_IN_IMAGE

PODS_AT_ONCE = 100
ROUNDS_AT_ONCE = 6
ROUNDS = 20
RESIZES = 10

MORE: Object = {**TINY, "cpu": "30m"}


@bench_rows(
    Row("containerd: one pod, resized back to back", "1/s", RATE_GOAL, more_is_better=True),
    Row(
        f"containerd: {PODS_AT_ONCE} pods resized at once, last status",
        "s",
        Goal(ratio_at_most=1.5),
    ),
    Row(f"containerd: PSS of up with {PODS_FOR_MEMORY} pods, without it", "MiB", MEMORY_GOAL),
)
async def many_in_containerd(context: Context) -> list[Measured]:
    missing = find_programs().missing()
    if os.geteuid() != 0 or missing:
        raise SystemExit(f"the benchmark of containerd needs root and {', '.join(missing)}")
    options = ("--runtime", "containerd", "--allocatable", "cpu=8,memory=8Gi")
    async with (
        whole_system(context.folder / "data", f"bench-{os.getpid()}", *options) as system,
        operating(system, PODS_AT_ONCE) as operator,
        bare_calls(context, system) as bare,
    ):
        names = [f"bench-{number}" for number in range(PODS_AT_ONCE)]
        pods = await start(operator, names[:1])
        rate = await back_to_back(context, operator, names[0], bare.only(identity(pods[0])))
        pods += await start(operator, names[1:PODS_FOR_MEMORY])
        memory = pss_mebibytes(system)
        pods += await start(operator, names[PODS_FOR_MEMORY:])
        ids = [identity(pod) for pod in pods]
        together = await at_once(context, operator, names, bare.only(*ids))
    return [rate, together, Measured(memory)]


async def start(operator: Operator, names: Sequence[str]) -> list[Object]:
    wanted = [manifest(name, image=BUILT_IN_IMAGE, size=TINY) for name in names]
    return await operator.start_pods(
        {**pod, "spec": {**pod["spec"], "hostNetwork": True}} for pod in wanted
    )


def identity(pod: Object) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2])


async def back_to_back(
    context: Context, operator: Operator, name: str, bare: BareCalls
) -> Measured:
    sizes = itertools.cycle((MORE, TINY))

    async def product() -> list[float]:
        began = time.perf_counter()
        for _ in range(RESIZES):
            await operator.resize(name, next(sizes))
        return [time.perf_counter() - began]

    async def raw() -> list[float]:
        began = time.perf_counter()
        for _ in range(RESIZES):
            await bare.at_once(TINY)
        return [time.perf_counter() - began]

    await product()
    taken, bare_taken = await context.interleave(product, raw, ROUNDS)
    return Measured(RESIZES / context.median(taken), RESIZES / context.median(bare_taken))


async def at_once(
    context: Context, operator: Operator, names: list[str], bare: BareCalls
) -> Measured:
    sizes = itertools.cycle((MORE, TINY))

    async def product() -> list[float]:
        """Up and down again, so that the bare calls find them as they were."""
        return [await operator.resize_all(names, next(sizes)) for _ in range(2)]

    async def raw() -> list[float]:
        return [await bare.at_once(TINY) for _ in range(2)]

    await product()
    taken, bare_taken = await context.interleave(product, raw, ROUNDS_AT_ONCE)
    return Measured(context.median(taken), context.median(bare_taken))


class BareCalls(msgspec.Struct, frozen=True):
    """UpdateContainerResources, and nothing else."""

    containers: Containers
    version: CgroupVersion
    ids: tuple[str, ...] = ()

    def only(self, *ids: str) -> BareCalls:
        return BareCalls(self.containers, self.version, ids)

    async def at_once(self, size: Object) -> float:
        """One call for each container, all together; seconds until the last is answered."""
        limits = self._limits(size)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for one in self.ids:
                tasks.create_task(
                    self.containers.set_cpu(one, limits.cpu_weight, limits.cpu_quota_us)
                )
        return time.perf_counter() - began

    def _limits(self, size: Object) -> KernelLimits:
        resources = parse_resources({"requests": size, "limits": size})
        return to_kernel(resources, self.version)


@asynccontextmanager
async def bare_calls(context: Context, system: System) -> AsyncIterator[BareCalls]:
    clock = SystemClock()
    root = system.directory.containerd / "containerd"
    client = CriClient(ContainerdDaemon(root, clock, sandbox_image=BUILT_IN_IMAGE).socket, clock)
    version = open_cgroups(SystemClock()).version
    try:
        yield BareCalls(Containers(client, "bench", context.folder, version, clock), version)
    finally:
        await client.close()
