"""`livesize demo`: a busy container grows and shrinks while it runs; the kernel is the witness.

Everything shown as proof is read from /proc and the cgroup files, not from Livesize. It ends with
an error if a promise does not hold, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, cast

import click
import msgspec
import uvloop

from livesize.api.errors import StatusError
from livesize.api.kinds import PODS
from livesize.api.objects import Object, lookup, uid_of, version_of
from livesize.client.http import HttpClient
from livesize.client.interface import PatchType, Selection
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import Clock, SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver, group_path
from livesize.runtime.interface import ContainerGroup
from livesize.runtime.oci import BUILT_IN_IMAGE

NODE = f"demo-{os.getpid()}"
ROOT_GROUP = f"livesize/{NODE}"
HELD_MIB = 40
MEASURE_SECONDS = 2.0
WAIT_SECONDS = 20.0


class Size(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_mib: int

    def resources(self) -> Object:
        amounts = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}


class Proof(msgspec.Struct, frozen=True):
    """What the machine itself says about the container, just now."""

    pid: int
    start_ticks: int
    quota_us: int | None
    limit_bytes: int | None
    cores_used: float
    held_bytes: int


START = Size(200, 96)
SIZES = (("start", START), ("grow", Size(800, 256)), ("shrink", Size(300, 64)))


class BrokenPromiseError(Exception):
    """Something the demo shows did not happen."""


def run_demo() -> None:
    if os.geteuid() != 0:
        raise click.ClickException(
            "the demo starts a real container and needs root: run it with sudo"
        )
    with tempfile.TemporaryDirectory(prefix="livesize-demo-") as folder:
        with _system(Path(folder)) as kubeconfig:
            demo = _Demo(kubeconfig, SystemClock())
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    runner.run(demo.run())
                except (BrokenPromiseError, TimeoutError, ConnectionError, StatusError) as broken:
                    why = str(broken) or f"nothing happened for {WAIT_SECONDS:.0f} s"
                    raise click.ClickException(f"{why}\n{_last_log(Path(folder))}") from None
        _check_nothing_is_left()
    click.echo("Nothing is left behind: no process, no cgroup, no file.")


@contextmanager
def _system(folder: Path) -> Iterator[Path]:
    """A `livesize up` of our own, stopped at the end whatever happens."""
    click.echo("Starting Livesize (API server, scheduler, node agent) ...")
    ready_read, ready_write = os.pipe()
    arguments = ["--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "livesize.main", "up", *arguments, "--node-name", NODE],
            stdout=ready_write,
            stderr=log,
        )
    os.close(ready_write)
    try:
        with os.fdopen(ready_read) as lines:
            if not lines.readline():
                raise click.ClickException(f"Livesize did not start:\n{_last_log(folder)}")
            yield folder / "data" / "kubeconfig"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class _Demo:
    def __init__(self, kubeconfig: Path, clock: Clock) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._cgroups: CgroupDriver = open_cgroups()

    async def run(self) -> None:
        client = await HttpClient.open(connection_from(self._kubeconfig))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                pod = await self._start(client)
            group = group_path(ROOT_GROUP, ContainerGroup(uid_of(pod), "app"))
            self._heading()
            proofs = []
            for word, size in SIZES:
                took = 0.0 if word == "start" else await self._resize(client, size)
                proof = await self._look(group)
                proofs.append(proof)
                self._show(word, size, proof, took)
                _check(word, size, proof, proofs[0])
            await self._verdict(client, proofs)
        finally:
            await client.close()

    async def _start(self, client: HttpClient) -> Object:
        busy = f"head -c {HELD_MIB}m /dev/zero > /dev/shm/held; while :; do :; done"
        container = {
            "name": "app",
            "image": BUILT_IN_IMAGE,
            "command": ["/bin/sh", "-c", busy],
            "resources": START.resources(),
        }
        click.echo(f"Starting a container that spins on the CPU and holds {HELD_MIB} MiB ...\n")
        made = await client.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "demo", "namespace": "default"},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
        )
        return await self._follow(client, made, _is_ready)

    async def _resize(self, client: HttpClient, size: Size) -> float:
        """Ask, and wait for the status that says it was read back; seconds it took."""
        began = self._clock.monotonic()
        patch = {"spec": {"containers": [{"name": "app", "resources": size.resources()}]}}
        asked = await client.patch(
            PODS,
            "demo",
            patch,
            namespace="default",
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )
        generation = lookup(asked, "metadata", "generation")

        def done(pod: Object) -> bool:
            state = lookup(pod, "status", "resizeState", default={})
            return bool(state.get("generation") == generation and state.get("phase") == "Done")

        async with asyncio.timeout(WAIT_SECONDS):
            await self._follow(client, asked, done)
        return self._clock.monotonic() - began

    async def _follow(self, client: HttpClient, pod: Object, done: Any) -> Object:
        selection = Selection("default", fields="metadata.name=demo")
        stream = client.watch(PODS, selection, resource_version=version_of(pod))
        async with aclosing(cast("Any", stream)):
            async for event in stream:
                if done(event.object):
                    return event.object
        raise BrokenPromiseError("the API server ended the watch")

    async def _look(self, group: str) -> Proof:
        before, began = self._cgroups.read(group), self._clock.monotonic()
        await self._clock.sleep(MEASURE_SECONDS)
        after, ended = self._cgroups.read(group), self._clock.monotonic()
        started = {pid: _start_ticks(pid) for pid in self._cgroups.processes(group)}
        oldest = min(started, key=started.__getitem__)
        return Proof(
            pid=oldest,
            start_ticks=started[oldest],
            quota_us=after.limits.cpu_quota_us,
            limit_bytes=after.limits.memory_limit_bytes,
            cores_used=(after.cpu_usage_ns - before.cpu_usage_ns) / 1e9 / (ended - began),
            held_bytes=after.memory_usage_bytes,
        )

    def _heading(self) -> None:
        click.echo(
            f"{'':8}{'asked for':>14}  │ {'cgroup CPU':>11} {'measured':>9}"
            f" {'cgroup memory':>14} {'held':>8}  {'pid':>8}  {'took':>8}"
        )

    def _show(self, word: str, size: Size, proof: Proof, took: float) -> None:
        asked = f"{size.cpu_milli}m {size.memory_mib}Mi"
        quota = "none" if proof.quota_us is None else f"{proof.quota_us / 1000:.0f}/100 ms"
        limit = "none" if proof.limit_bytes is None else f"{proof.limit_bytes >> 20} MiB"
        duration = f"{took * 1000:.1f} ms" if took else ""
        click.echo(
            f"{word:8}{asked:>14}  │ {quota:>11} {proof.cores_used:>5.2f} CPU"
            f" {limit:>14} {proof.held_bytes >> 20:>4} MiB  {proof.pid:>8}  {duration:>8}"
        )

    async def _verdict(self, client: HttpClient, proofs: list[Proof]) -> None:
        pod = await client.get(PODS, "demo", "default")
        status = lookup(pod, "status", "containerStatuses", 0)
        _promise(status["restartCount"] == 0, "the container was restarted")
        _promise(
            status["resources"] == lookup(pod, "spec", "containers", 0, "resources"),
            f"status does not show the size that was asked for: {status['resources']}",
        )
        click.echo(
            f"\nSame process all the way (pid {proofs[0].pid}, started at tick"
            f" {proofs[0].start_ticks}), restarts: {status['restartCount']},"
            " desired = allocated = actual.\nHistory of the last resize:"
        )
        for step in lookup(pod, "status", "resizeState", "steps", default=[]):
            click.echo(f"  {step['name']:24}{step['seconds'] * 1000:8.2f} ms  {step['outcome']}")


def _is_ready(pod: Object) -> bool:
    conditions = lookup(pod, "status", "conditions", default=[])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _check(word: str, size: Size, proof: Proof, first: Proof) -> None:
    same = (proof.pid, proof.start_ticks) == (first.pid, first.start_ticks)
    _promise(same, f"{word}: pid {first.pid} became {proof.pid}")
    _promise(
        proof.quota_us == size.cpu_milli * 100,
        f"{word}: the CPU quota is {proof.quota_us} µs, not {size.cpu_milli * 100}",
    )
    _promise(
        proof.limit_bytes == size.memory_mib << 20,
        f"{word}: the memory limit is {proof.limit_bytes}, not {size.memory_mib << 20}",
    )
    allowed = size.cpu_milli / 1000
    _promise(
        proof.cores_used <= allowed * 1.15,
        f"{word}: {proof.cores_used:.2f} CPUs were used where {allowed:.2f} are allowed",
    )
    _promise(proof.held_bytes >= HELD_MIB << 20, f"{word}: the container lost its memory")


def _promise(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenPromiseError(otherwise)


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[19])


def _check_nothing_is_left() -> None:
    cgroups = open_cgroups()
    root = ROOT_GROUP
    if cgroups.exists(root):
        raise click.ClickException(f"the control group {root} is still there")


def _last_log(folder: Path) -> str:
    log = folder / "up.log"
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""
