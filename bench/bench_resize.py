"""One resize of a running container, from the client's PATCH to the kernel and back to the client.

The product is a real `livesize up` with the process runtime (root). Each sample is one PATCH of
CPU and memory of a container that runs, sent over TLS, on a system that is otherwise at rest:

    cgroup   until the container's own CPU quota and memory limit both have their new values
    status   until a watch, opened before, has told the client that the resize is Done

The yardstick is the least anybody could do: a PATCH of the same bytes to a bare server (see
bench.raw_asgi), then the two writes into a control group; for status, a second PATCH.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import orjson

from bench.group_watch import FileWatch, watching
from bench.harness import Context, Goal, Measured, Row, bench_rows
from bench.pods import (
    LARGE,
    NAMESPACE,
    PODS_PATH,
    SMALL,
    STRATEGIC,
    TINY,
    manifest,
    resize_patch,
)
from bench.process_memory import read_memory
from bench.servers import System, raw_server, whole_system
from bench.wire import Address, Wire, request_bytes
from livesize.api.kernel_units import CgroupVersion, KernelLimits, to_kernel
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, generation_of, lookup, uid_of, version_of
from livesize.api.resources import parse_resources
from livesize.apiserver.tls import TlsFiles
from livesize.client.http import HttpClient
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver, group_path
from livesize.runtime.interface import ContainerGroup
from livesize.runtime.oci import BUILT_IN_IMAGE

ROUNDS = 160
"""So that a dozen samples are above p99: of a few, one bad second of the machine is the half."""
RESIZES = 8
WARM_UP_RESIZES = 10
PAUSE_SECONDS = 0.02
"""Between two samples, so that each finds the system at rest."""
WAIT_SECONDS = 20.0
PODS_FOR_MEMORY = 20
MEBIBYTE = 1 << 20

CGROUP_GOAL = Goal(value_at_most=8.0)
STATUS_GOAL = Goal(value_at_most=12.0)


class Sample(msgspec.Struct, frozen=True):
    """Milliseconds since the PATCH was sent."""

    cgroup: float
    status: float


@bench_rows(
    Row("resize: PATCH → cgroup file, p50", "ms", CGROUP_GOAL),
    Row("resize: PATCH → cgroup file, p99", "ms", CGROUP_GOAL),
    Row("resize: PATCH → status, p50", "ms", STATUS_GOAL),
    Row("resize: PATCH → status, p99", "ms", STATUS_GOAL),
    Row(f"memory: RSS of up with {PODS_FOR_MEMORY} pods, both processes", "MiB"),
    Row(f"memory: PSS of up with {PODS_FOR_MEMORY} pods, both processes", "MiB"),
)
async def resize_and_memory(context: Context) -> list[Measured]:
    if os.geteuid() != 0:
        raise SystemExit("the benchmark of resizes starts real containers: run it as root")
    async with whole_system(context.folder / "data", f"bench-{os.getpid()}") as system:
        client = await HttpClient.open(connection_from(system.directory.kubeconfig), SystemClock())
        try:
            pod = await start_pod(client, "bench-0")
            samples, bare = await measure_resizes(context, client, system, pod)
            for number in range(1, PODS_FOR_MEMORY):
                await start_pod(client, f"bench-{number}", TINY)
            memory = measure_memory(system)
        finally:
            await client.close()
    return [*summarize(context, samples, bare), *memory]


def summarize(context: Context, samples: list[Sample], bare: list[Sample]) -> list[Measured]:
    def both(read: Callable[[Sample], float], percent: float) -> Measured:
        return Measured(
            context.percentile([read(sample) for sample in samples], percent),
            context.percentile([read(sample) for sample in bare], percent),
        )

    readers: tuple[Callable[[Sample], float], ...] = (
        lambda sample: sample.cgroup,
        lambda sample: sample.status,
    )
    return [both(read, percent) for read in readers for percent in (50, 99)]


def measure_memory(system: System) -> list[Measured]:
    both = [read_memory(pid) for pid in (system.pid, system.control_plane_pid())]
    return [
        Measured(sum(one.rss_bytes for one in both) / MEBIBYTE),
        Measured(sum(one.pss_bytes for one in both) / MEBIBYTE),
    ]


async def start_pod(client: HttpClient, name: str, size: Object = SMALL) -> Object:
    return await ready_pod(client, manifest(name, image=BUILT_IN_IMAGE, size=size))


async def ready_pod(client: HttpClient, wanted: Object) -> Object:
    """Make the pod; return it when it is ready."""
    made = await client.create(PODS, wanted)
    selection = Selection(NAMESPACE, fields=f"metadata.name={wanted['metadata']['name']}")
    stream = client.watch(PODS, selection, resource_version=version_of(made))
    async with asyncio.timeout(WAIT_SECONDS), aclosing(cast("Any", stream)):
        async for event in stream:
            conditions = lookup(event.object, "status", "conditions", default=[])
            if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
                return event.object
    raise AssertionError("the API server ended the watch")


async def measure_resizes(
    context: Context, client: HttpClient, system: System, pod: Object
) -> tuple[list[Sample], list[Sample]]:
    token = connection_from(system.directory.kubeconfig).token
    tls = system.directory.tls
    files = TlsFiles(tls / "ca.crt", tls / "apiserver.crt", tls / "apiserver.key")
    port = int(client.server.rpartition(":")[2])
    product = await Wire.open(Address(port, files.ca_cert))
    cgroups = open_cgroups(SystemClock())
    path = group_path(system.root_group, ContainerGroup(uid_of(pod), "app"))
    cpu_file, memory_file = limit_files(cgroups, path)
    answer = orjson.dumps(pod)
    async with raw_server(context.folder, answer, files) as address, asyncio.TaskGroup() as tasks:
        with watching(cpu_file, memory_file) as watch, scratch_group(cgroups) as scratch:
            told = Told()
            follower = tasks.create_task(told.follow(client, pod))
            resizer = Resizer(product, token, cgroups, path, watch, told)
            yardstick = Yardstick(await Wire.open(address), token, cgroups, scratch)
            await resizer.run(WARM_UP_RESIZES)
            await yardstick.run(WARM_UP_RESIZES)
            taken: tuple[list[Sample], list[Sample]] = ([], [])
            for _ in range(ROUNDS):
                taken[0].extend(await resizer.run(RESIZES))
                taken[1].extend(await yardstick.run(RESIZES))
            follower.cancel()
            product.close()
            yardstick.close()
    return taken


class Told:
    """What a watch has told: the newest generation whose resize is Done, and when."""

    def __init__(self) -> None:
        self._wanted = 0
        self._done: asyncio.Future[float] | None = None
        self._newest = 0
        self._newest_at = 0.0

    async def follow(self, client: HttpClient, pod: Object) -> None:
        selection = Selection(NAMESPACE, fields=f"metadata.name={pod['metadata']['name']}")
        stream = client.watch(PODS, selection, resource_version=version_of(pod))
        async with aclosing(cast("Any", stream)):
            async for event in stream:
                self._take(event.object)

    def done(self, generation: int) -> asyncio.Future[float]:
        self._wanted = generation
        self._done = asyncio.get_running_loop().create_future()
        self._settle()
        return self._done

    def _take(self, pod: Object) -> None:
        state = lookup(pod, "status", "resizeState", default={})
        if state.get("phase") == "Done" and state["generation"] > self._newest:
            self._newest, self._newest_at = state["generation"], time.perf_counter()
            self._settle()

    def _settle(self) -> None:
        if self._done is not None and not self._done.done() and self._newest >= self._wanted:
            self._done.set_result(self._newest_at)


class Resizer:
    """Resizes the container up and down, one after the other."""

    def __init__(
        self,
        wire: Wire,
        token: str,
        cgroups: CgroupDriver,
        path: str,
        watch: FileWatch,
        told: Told,
    ) -> None:
        self._wire = wire
        self._watch = watch
        self._told = told
        self._requests = itertools.cycle(patch_requests(token))
        self._wanted = itertools.cycle(
            expected_files(cgroups, path, limits) for limits in kernel_limits(cgroups.version)
        )

    async def run(self, resizes: int) -> list[Sample]:
        samples = []
        for _ in range(resizes):
            await asyncio.sleep(PAUSE_SECONDS)
            async with asyncio.timeout(WAIT_SECONDS):
                samples.append(await self._resize())
        return samples

    async def _resize(self) -> Sample:
        request = next(self._requests)
        written = self._watch.expect(next(self._wanted))
        began = time.perf_counter()
        answer = await self._wire.ask(request)
        done_at = await self._told.done(generation_of(orjson.loads(answer)))
        written_at = await written
        return Sample((written_at - began) * 1000, (done_at - began) * 1000)


class Yardstick:
    """The same bytes to a server that does not think, and the same writes into a group."""

    def __init__(self, wire: Wire, token: str, cgroups: CgroupDriver, path: str) -> None:
        self._wire = wire
        self._cgroups = cgroups
        self._path = path
        self._requests = itertools.cycle(patch_requests(token))
        self._limits = itertools.cycle(kernel_limits(cgroups.version))

    async def run(self, resizes: int) -> list[Sample]:
        samples = []
        for _ in range(resizes):
            await asyncio.sleep(PAUSE_SECONDS)
            samples.append(await self._resize())
        return samples

    async def _resize(self) -> Sample:
        request, limits = next(self._requests), next(self._limits)
        began = time.perf_counter()
        await self._wire.ask(request)
        self._cgroups.write_cpu(self._path, limits.cpu_weight, limits.cpu_quota_us)
        self._cgroups.write_memory(self._path, limits.memory_limit_bytes)
        written_at = time.perf_counter()
        await self._wire.ask(request)
        done_at = time.perf_counter()
        return Sample((written_at - began) * 1000, (done_at - began) * 1000)

    def close(self) -> None:
        self._wire.close()


def patch_requests(token: str) -> list[bytes]:
    path = f"{PODS_PATH}/bench-0/resize"
    return [
        request_bytes("PATCH", path, token, resize_patch(size), STRATEGIC)
        for size in (LARGE, SMALL)
    ]


def kernel_limits(version: CgroupVersion) -> list[KernelLimits]:
    """In the order of ``patch_requests``."""
    return [
        to_kernel(parse_resources({"requests": size, "limits": size}), version)
        for size in (LARGE, SMALL)
    ]


def limit_files(cgroups: CgroupDriver, path: str) -> tuple[Path, Path]:
    """CPU quota and memory limit of a group, found among the files its members join by."""
    folders = [Path(file).parent for file in cgroups.join_files(path)]
    names = (
        ("cpu.max", "memory.max")
        if cgroups.version is CgroupVersion.V2
        else ("cpu.cfs_quota_us", "memory.limit_in_bytes")
    )
    cpu, memory = (
        next(folder / name for folder in folders if (folder / name).exists()) for name in names
    )
    return cpu, memory


def expected_files(cgroups: CgroupDriver, path: str, limits: KernelLimits) -> dict[Path, str]:
    cpu, memory = limit_files(cgroups, path)
    quota = str(limits.cpu_quota_us)
    if cgroups.version is CgroupVersion.V2:
        quota += " 100000"
    return {cpu: quota, memory: str(limits.memory_limit_bytes)}


@contextmanager
def scratch_group(cgroups: CgroupDriver) -> Iterator[str]:
    """A group without members, for the bare writes."""
    path = f"livesize-bench-{os.getpid()}"
    cgroups.make(path)
    try:
        yield path
    finally:
        cgroups.remove(path)
