"""The demo's first act: a busy container that holds memory grows and shrinks as it runs."""

from __future__ import annotations

import textwrap

import click
import msgspec

from livesize.api.objects import Object, lookup, uid_of
from livesize.demo.groups import (
    GroupProof,
    check_group,
    format_limit,
    format_quota,
    read_group,
)
from livesize.demo.pods import Pods, check_settled
from livesize.demo.promises import promise
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import CgroupDriver, group_path
from livesize.runtime.interface import ContainerGroup
from livesize.runtime.oci import BUILT_IN_IMAGE

NAME = "busy"
HELD_MIB = 40
WIDTH = 98
_GLUE = "\u00a0"  # a step and its time stay on one line
_CONTAINER = "app"
_MEASURE_SECONDS = 2.0
_WAIT_SECONDS = 30.0


class DemoContainerSize(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_mib: int

    def resources(self) -> Object:
        amounts = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}


class Proof(msgspec.Struct, frozen=True):
    """What the kernel says about the container, just now."""

    group: GroupProof
    cores_used: float
    held_bytes: int


_START = DemoContainerSize(200, 96)
_SIZES = (("grow", DemoContainerSize(800, 256)), ("shrink", DemoContainerSize(300, 64)))


class ContainerAct:
    def __init__(self, pods: Pods, cgroups: CgroupDriver, root_group: str, clock: Clock) -> None:
        self._pods = pods
        self._cgroups = cgroups
        self._root_group = root_group
        self._clock = clock

    async def create(self) -> Object:
        busy = f"head -c {HELD_MIB}m /dev/zero > /dev/shm/held; while :; do :; done"
        container = {
            "name": _CONTAINER,
            "image": BUILT_IN_IMAGE,
            "command": ["/bin/sh", "-c", busy],
            "resources": _START.resources(),
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        return await self._pods.create(NAME, spec)

    async def wait_ready(self, pod: Object) -> None:
        await self._pods.wait_ready(pod, _WAIT_SECONDS)

    async def run(self) -> None:
        pod = await self._pods.get(NAME)
        group = group_path(self._root_group, ContainerGroup(uid_of(pod), _CONTAINER))
        _print_heading()
        first = await self._look(group)
        _show("start", _START, first, "")
        _check("start", _START, first, first)
        for word, size in _SIZES:
            container = {"name": _CONTAINER, "resources": size.resources()}
            resized = await self._pods.resize(NAME, {"containers": [container]}, _WAIT_SECONDS)
            pod = resized.pod
            proof = await self._look(group)
            _show(word, size, proof, f"{resized.seconds * 1000:.1f} ms")
            _check(word, size, proof, first)
            check_settled(pod)
        click.echo(
            f"Same process all the way: pid {first.group.pid}, started at tick"
            f" {first.group.start_ticks}; no restart."
        )
        print_history(pod)

    async def _look(self, group: str) -> Proof:
        before, began = self._cgroups.read(group), self._clock.monotonic()
        await self._clock.sleep(_MEASURE_SECONDS)
        after, ended = self._cgroups.read(group), self._clock.monotonic()
        return Proof(
            group=read_group(self._cgroups, group),
            cores_used=(after.cpu_usage_ns - before.cpu_usage_ns) / 1e9 / (ended - began),
            held_bytes=after.memory_usage_bytes,
        )


def print_history(pod: Object) -> None:
    """The steps of the last resize as the pod's status tells them."""
    steps = lookup(pod, "status", "resizeState", "steps", default=[])
    told = ", ".join(_step(step) for step in steps)
    text = textwrap.fill(f"Steps of the last resize: {told}.", WIDTH, break_on_hyphens=False)
    click.echo(text.replace(_GLUE, " "))


def _step(step: Object) -> str:
    took = step["seconds"]
    amount = f"{took:.1f}{_GLUE}s" if took >= 1 else f"{took * 1000:.1f}{_GLUE}ms"
    return f"{step['name']}{_GLUE}{amount}"


def _print_heading() -> None:
    click.echo(
        f"{'':8}{'asked for':>11}  │ {'cgroup CPU':>11} {'measured':>9}"
        f" {'cgroup memory':>14} {'held':>8}  {'pid':>8}  {'took':>8}"
    )


def _show(word: str, size: DemoContainerSize, proof: Proof, took: str) -> None:
    asked = f"{size.cpu_milli}m {size.memory_mib}Mi"
    quota, limit = format_quota(proof.group.quota_us), format_limit(proof.group.limit_bytes)
    held = f"{proof.held_bytes >> 20} MiB"
    click.echo(
        f"{word:8}{asked:>11}  │ {quota:>11} {proof.cores_used:>5.2f} CPU"
        f" {limit:>14} {held:>8}  {proof.group.pid:>8}  {took:>8}".rstrip()
    )


def _check(word: str, size: DemoContainerSize, proof: Proof, first: Proof) -> None:
    check_group(word, proof.group, first.group, (size.cpu_milli, size.memory_mib << 20))
    allowed = size.cpu_milli / 1000
    promise(
        proof.cores_used <= allowed * 1.15,
        f"{word}: {proof.cores_used:.2f} CPUs were used where {allowed:.2f} are allowed",
    )
    promise(proof.held_bytes >= HELD_MIB << 20, f"{word}: the container lost its memory")
