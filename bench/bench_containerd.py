"""Resizes of a container that containerd runs, beside the bare CRI call that each of them needs.

The product is a real `livesize up --runtime containerd` (root). Each sample is one PATCH, sent
over TLS, on a system that is otherwise at rest, until the container's own files have their new
values (cgroup), and until a watch has told the client that the resize is Done (status).

The yardstick is the call underneath, UpdateContainerResources, to the same containerd for another
container: one call where only CPU changes, two, one after the other, where memory changes too. The
product makes the same calls, but reports CPU before it tells containerd (docs/adr/0062).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from bench.bench_resize import (
    PAUSE_SECONDS,
    WAIT_SECONDS,
    Sample,
    Told,
    expected_files,
    limit_files,
    ready_pod,
)
from bench.group_watch import FileWatch, watching
from bench.harness import Context, Goal, Measured, Row, bench_rows
from bench.pods import LARGE, PODS_PATH, SMALL, STRATEGIC, manifest, resize_patch
from bench.servers import System, whole_system
from bench.wire import Address, Wire, request_bytes
from livesize.api.kernel_units import KernelLimits, to_kernel
from livesize.api.objects import Object, generation_of, uid_of
from livesize.api.resources import parse_resources
from livesize.client.http import HttpClient
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.containerd.containers import Containers
from livesize.runtime.containerd.cri_client import CriClient
from livesize.runtime.containerd.daemon import ContainerdDaemon, find_programs
from livesize.runtime.containerd.group_layout import DirectoryLayout
from livesize.runtime.containerd.sandboxes import Sandboxes
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.oci import BUILT_IN_IMAGE

ROUNDS = 25
RESIZES = 6
WARM_UP_RESIZES = 6
BENCH_UID = "bench-raw"
PIDS = 1024

MORE_CPU: Object = {**SMALL, "cpu": LARGE["cpu"]}
CGROUP_GOAL = Goal(ratio_at_most=1.6)
STATUS_GOAL = Goal(ratio_at_most=2.2)


@bench_rows(
    Row("containerd: CPU, PATCH → cgroup file, p50", "ms", CGROUP_GOAL),
    Row("containerd: CPU, PATCH → status, p50", "ms", STATUS_GOAL),
    Row("containerd: CPU and memory, PATCH → cgroup file, p50", "ms", CGROUP_GOAL),
    Row("containerd: CPU and memory, PATCH → status, p50", "ms", STATUS_GOAL),
)
async def containerd_resizes(context: Context) -> list[Measured]:
    missing = find_programs().missing()
    if os.geteuid() != 0 or missing:
        raise SystemExit(f"the benchmark of containerd needs root and {', '.join(missing)}")
    node = f"bench-{os.getpid()}"
    options = ("--runtime", "containerd")
    async with whole_system(context.folder / "data", node, *options) as system:
        client = await HttpClient.open(connection_from(system.directory.kubeconfig), SystemClock())
        try:
            return await measure(context, client, system)
        finally:
            await client.close()


async def measure(context: Context, client: HttpClient, system: System) -> list[Measured]:
    cgroups = open_cgroups(SystemClock())
    wanted = manifest("bench-0", image=BUILT_IN_IMAGE, size=SMALL)
    pod = await ready_pod(client, {**wanted, "spec": {**wanted["spec"], "hostNetwork": True}})
    identity = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    path = f"{system.root_group}/pod-{uid_of(pod)}/{identity}"
    product = await Wire.open(Address(_port(client), system.directory.tls / "ca.crt"))
    token = connection_from(system.directory.kubeconfig).token
    results: list[Measured] = []
    async with asyncio.TaskGroup() as tasks, bare_container(context, system, cgroups) as bare:
        with watching(*limit_files(cgroups, path)) as watch:
            told = Told()
            follower = tasks.create_task(told.follow(client, pod))
            for larger in (MORE_CPU, LARGE):
                resizer = Resizer(product, token, cgroups, path, (larger, SMALL))
                raw = Raw(bare, cgroups, (larger, SMALL))
                await resizer.run(watch, told, WARM_UP_RESIZES)
                await raw.run(WARM_UP_RESIZES)
                samples: list[Sample] = []
                calls: list[float] = []
                for _ in range(ROUNDS):
                    samples += await resizer.run(watch, told, RESIZES)
                    calls += await raw.run(RESIZES)
                results += _summarize(context, samples, calls)
            follower.cancel()
            product.close()
    return results


def _summarize(context: Context, samples: list[Sample], calls: list[float]) -> list[Measured]:
    readers: tuple[Callable[[Sample], float], ...] = (
        lambda sample: sample.cgroup,
        lambda sample: sample.status,
    )
    raw = context.percentile(calls, 50)
    return [
        Measured(context.percentile([read(sample) for sample in samples], 50), raw)
        for read in readers
    ]


class Resizer:
    """Resizes the product's container between two sizes, one after the other."""

    def __init__(
        self,
        wire: Wire,
        token: str,
        cgroups: CgroupDriver,
        path: str,
        sizes: tuple[Object, Object],
    ) -> None:
        self._wire = wire
        resize = f"{PODS_PATH}/bench-0/resize"
        self._turns = itertools.cycle(
            [
                (
                    request_bytes("PATCH", resize, token, resize_patch(size), STRATEGIC),
                    expected_files(cgroups, path, _limits(cgroups, size)),
                )
                for size in sizes
            ]
        )

    async def run(self, watch: FileWatch, told: Told, resizes: int) -> list[Sample]:
        samples = []
        for _ in range(resizes):
            await asyncio.sleep(PAUSE_SECONDS)
            request, files = next(self._turns)
            async with asyncio.timeout(WAIT_SECONDS):
                samples.append(await self._resize(watch, told, request, files))
        return samples

    async def _resize(
        self, watch: FileWatch, told: Told, request: bytes, files: Mapping[Path, str]
    ) -> Sample:
        written = watch.expect(files)
        began = time.perf_counter()
        answer = await self._wire.ask(request)
        done_at = await told.done(generation_of(orjson.loads(answer)))
        written_at = await written
        return Sample((written_at - began) * 1000, (done_at - began) * 1000)


class Raw:
    """The bare calls, to a container that nobody else looks at."""

    def __init__(
        self,
        container: tuple[Containers, str],
        cgroups: CgroupDriver,
        sizes: tuple[Object, Object],
    ) -> None:
        self._containers, self._id = container
        self._limits = itertools.cycle([_limits(cgroups, size) for size in sizes])
        self._with_memory = sizes[0]["memory"] != sizes[1]["memory"]

    async def run(self, resizes: int) -> list[float]:
        """Milliseconds of each."""
        taken = []
        for _ in range(resizes):
            await asyncio.sleep(PAUSE_SECONDS)
            limits = next(self._limits)
            began = time.perf_counter()
            await self._containers.set_cpu(self._id, limits.cpu_weight, limits.cpu_quota_us)
            if self._with_memory:
                await self._containers.set_memory(self._id, limits.memory_limit_bytes)
            taken.append((time.perf_counter() - began) * 1000)
        return taken


@asynccontextmanager
async def bare_container(
    context: Context, system: System, cgroups: CgroupDriver
) -> AsyncIterator[tuple[Containers, str]]:
    """A container in the product's containerd that is not the product's, and how to reach it."""
    clock = SystemClock()
    root = system.directory.containerd / "containerd"
    client = CriClient(ContainerdDaemon(root, clock, sandbox_image=BUILT_IN_IMAGE).socket, clock)
    layout = DirectoryLayout(cgroups, f"livesize-bench-{os.getpid()}", clock)
    logs = context.folder / "logs"
    sandboxes = Sandboxes(client, "bench", logs, layout, clock)
    containers = Containers(client, "bench", logs, cgroups.version, clock)
    limits = KernelLimits(1024, None, None)
    await layout.make(BENCH_UID, limits, PIDS)
    try:
        sandbox = await sandboxes.run(PodConfig(BENCH_UID, "bench", "raw", limits), attempt=0)
        config = ContainerConfig(
            pod_uid=BENCH_UID,
            name="app",
            image=BUILT_IN_IMAGE,
            command=("/bin/sleep", "1000000"),
            args=(),
            env=(),
            working_dir="",
            hostname="raw",
            limits=_limits(cgroups, SMALL),
        )
        identity = await containers.create(config, sandbox, sandboxes, BUILT_IN_IMAGE)
        await containers.start(identity)
        yield containers, identity
    finally:
        await sandboxes.remove(BENCH_UID)
        await layout.remove(BENCH_UID)
        await layout.remove_root()
        layout.close()
        await client.close()


def _limits(cgroups: CgroupDriver, size: Object) -> KernelLimits:
    return to_kernel(parse_resources({"requests": size, "limits": size}), cgroups.version)


def _port(client: HttpClient) -> int:
    return int(client.server.rpartition(":")[2])
