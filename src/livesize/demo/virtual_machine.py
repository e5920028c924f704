"""The demo's second act: a virtual machine grows from 1 to 4 vCPUs and from 512 MiB to 2 GiB, and
back, as its guest runs. The guest is asked itself, and the kernel about its QEMU.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from livesize.api.objects import Object, lookup, uid_of
from livesize.api.quantity import memory_bytes
from livesize.api.resize_phase import ResizePhase
from livesize.api.resources import VM_NAME
from livesize.api.vm_identity import vm_uid_of
from livesize.demo.container import WIDTH, print_history
from livesize.demo.groups import (
    GroupProof,
    check_group,
    format_limit,
    format_quota,
    read_group,
)
from livesize.demo.guest_witness import GuestReading, GuestWitness
from livesize.demo.pods import Pods, check_settled
from livesize.demo.promises import BrokenPromiseError, promise
from livesize.demo.timeline import TimelineRow, heading, is_worth_a_row, moment_of, row
from livesize.guest_images.vm_guest import INITRD_NAME, KERNEL_NAME
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import CgroupDriver, group_path
from livesize.runtime.interface import ContainerGroup, RuntimeCallError
from livesize.runtime.libvirt.identity import domain_name

NAME = "vm1"
_MIB = 1 << 20
_BOOT_SECONDS = 120.0  # 3 s on an idle machine; under emulation on a busy one many more
_RESIZE_SECONDS = 120.0
_AGENT_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.2


class DemoVmSize(msgspec.Struct, frozen=True):
    vcpus: int
    memory_mib: int

    def resources(self) -> Object:
        amounts = {"cpu": str(self.vcpus), "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}

    def __str__(self) -> str:
        return f"{self.vcpus} vCPU{'s' if self.vcpus > 1 else ''} and {self.memory_mib} MiB"


class VmProof(msgspec.Struct, frozen=True):
    """What the guest says of itself, and the kernel of its QEMU."""

    guest: GuestReading
    group: GroupProof


SMALL = DemoVmSize(1, 512)
LARGE = DemoVmSize(4, 2048)
_SIZES = (("grow", LARGE), ("shrink", SMALL))


class VmAct:
    def __init__(self, pods: Pods, cgroups: CgroupDriver, root_group: str, clock: Clock) -> None:
        self._pods = pods
        self._cgroups = cgroups
        self._root_group = root_group
        self._clock = clock
        self._began = 0.0  # when the timeline begins
        self._shown_at = 0.0
        self._shown: TimelineRow = moment_of({})

    async def create(self) -> Object:
        machine = {
            "kernel": {"image": KERNEL_NAME, "initrd": INITRD_NAME},
            "cpu": {"max": str(LARGE.vcpus)},
            "memory": {"max": f"{LARGE.memory_mib}Mi", "boot": f"{SMALL.memory_mib}Mi"},
            "resources": SMALL.resources(),
        }
        spec = {"virtualMachine": machine, "terminationGracePeriodSeconds": 0}
        return await self._pods.create(NAME, spec)

    async def wait_ready(self, pod: Object) -> Object:
        return await self._pods.wait_ready(pod, _BOOT_SECONDS)

    async def run(self, libvirt_socket: Path) -> None:
        pod = await self._pods.get(NAME)
        witness = GuestWitness(libvirt_socket, domain_name(vm_uid_of(pod)))
        group = group_path(self._root_group, ContainerGroup(uid_of(pod), VM_NAME))
        overhead_bytes = memory_bytes(lookup(pod, "spec", "overhead", "memory", default="0"))

        first = await self._look(witness, group)
        proofs = [("start", SMALL, first)]
        for line in heading():
            click.echo(line)
        self._began = self._clock.monotonic()
        self._print(moment_of(pod))
        for word, size in _SIZES:
            pod = await self._resize(size)
            proof = await self._look(witness, group)
            proofs.append((word, size, proof))
            check_settled(pod)
        click.echo("\nAsked without Livesize, the guest and the kernel say:")
        _print_proofs(proofs)
        for word, size, proof in proofs:
            check_proof(word, size, proof, first, overhead_bytes)
        _print_verdict(pod, proofs, overhead_bytes)
        print_history(pod)

    async def _resize(self, size: DemoVmSize) -> Object:
        """With a row of the timeline whenever something moves."""

        def show(pod: Object) -> None:
            now, passed = moment_of(pod), self._clock.monotonic() - self._shown_at
            if now.phase != ResizePhase.DONE and is_worth_a_row(self._shown, now, passed):
                self._print(now)

        change = {"virtualMachine": {"resources": size.resources()}}
        resized = await self._pods.resize(NAME, change, _RESIZE_SECONDS, show)
        self._print(moment_of(resized.pod), f"{resized.seconds:.2f} s")
        return resized.pod

    def _print(self, moment: TimelineRow, took: str = "") -> None:
        self._shown, self._shown_at = moment, self._clock.monotonic()
        click.echo(row(self._shown_at - self._began, moment, took))

    async def _look(self, witness: GuestWitness, group: str) -> VmProof:
        return VmProof(await self._ask(witness.ask), read_group(self._cgroups, group))

    async def _ask(self, ask: Callable[[], GuestReading]) -> GuestReading:
        """Its agent starts a moment after the guest is ready."""
        deadline = self._clock.monotonic() + _AGENT_SECONDS
        while True:
            try:
                return await asyncio.to_thread(ask)
            except RuntimeCallError as failure:
                if self._clock.monotonic() > deadline:
                    raise BrokenPromiseError(str(failure)) from failure
            await self._clock.sleep(_ASK_AGAIN_SECONDS)


def _print_proofs(proofs: list[tuple[str, DemoVmSize, VmProof]]) -> None:
    click.echo(
        f"{'':8}{'CPUs online':>11} {'MemTotal':>10} {'uptime':>8}  {'boot id':8} │"
        f" {'QEMU pid':>8} {'cgroup CPU':>11} {'cgroup memory':>14}"
    )
    for word, _, proof in proofs:
        guest, group = proof.guest, proof.group
        total = f"{guest.memory_total_bytes // _MIB} MiB"
        click.echo(
            f"{word:8}{guest.vcpus_online:>11} {total:>10} {guest.uptime_seconds:>6.1f} s "
            f" {guest.boot_id[:8]} │ {group.pid:>8} {format_quota(group.quota_us):>11}"
            f" {format_limit(group.limit_bytes):>14}"
        )


def check_proof(
    word: str, size: DemoVmSize, proof: VmProof, first: VmProof, overhead_bytes: int
) -> None:
    guest, before = proof.guest, first.guest
    promise(
        guest.boot_id == before.boot_id and guest.uptime_seconds >= before.uptime_seconds,
        f"{word}: the guest has booted again: boot id {before.boot_id} became {guest.boot_id}",
    )
    promise(
        guest.vcpus_online == size.vcpus,
        f"{word}: the guest uses {guest.vcpus_online} vCPUs, not {size.vcpus}",
    )
    # Its kernel keeps some of the first memory for itself, and nothing of what comes and goes.
    added = guest.memory_total_bytes - before.memory_total_bytes
    wanted = (size.memory_mib - SMALL.memory_mib) * _MIB
    promise(
        added == wanted, f"{word}: the guest has {added} bytes more than at first, not {wanted}"
    )
    limit_bytes = size.memory_mib * _MIB + overhead_bytes
    check_group(word, proof.group, first.group, (size.vcpus * 1000, limit_bytes))


def _print_verdict(
    pod: Object, proofs: list[tuple[str, DemoVmSize, VmProof]], overhead_bytes: int
) -> None:
    first, last = proofs[0][2], proofs[-1][2]
    lived = last.guest.uptime_seconds - first.guest.uptime_seconds
    promise(lived > 0, "the guest's clock stands still")
    kept = SMALL.memory_mib - first.guest.memory_total_bytes // _MIB
    _say(
        f"Same guest all the way: up for {last.guest.uptime_seconds:.1f} s without a reboot, in the"
        f" same QEMU (pid {first.group.pid}, started at tick {first.group.start_ticks}); no"
        f" restart. The guest's kernel keeps {kept} MiB for itself; the cgroup holds the guest's"
        f" memory and {overhead_bytes // _MIB} MiB for QEMU."
    )
    moment = moment_of(pod)
    if (moment.vcpus_plugged or 0) > (moment.vcpus_online or 0):
        _say(
            "Under emulation QEMU cannot take vCPUs out: they stay plugged, and are switched off"
            " in the guest. Under KVM they are unplugged."
        )


def _say(paragraph: str) -> None:
    click.echo(textwrap.fill(paragraph, WIDTH))
