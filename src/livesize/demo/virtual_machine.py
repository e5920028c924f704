"""The demo's acts with virtual machines: each grows and shrinks as its guest runs. The guest is
asked itself, libvirt about the DIMMs, and the kernel about its QEMU.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from livesize.api.objects import Object, lookup, uid_of
from livesize.api.quantity import memory_bytes
from livesize.api.resize_phase import ResizePhase
from livesize.api.resources import VM_NAME
from livesize.api.vm_identity import vm_uid_of
from livesize.demo.container import WIDTH, print_history
from livesize.demo.groups import read_group
from livesize.demo.guest_witness import GuestWitness
from livesize.demo.pods import Pods, check_settled
from livesize.demo.promises import BrokenPromiseError
from livesize.demo.timeline import TimelineRow, heading, is_worth_a_row, moment_of, row
from livesize.demo.vm_proof import VmProof, check_proof, proof_table, verdict
from livesize.demo.vm_scenes import DemoVm, DemoVmSize
from livesize.machinery.clock import Clock
from livesize.runtime.cgroups.interface import CgroupDriver, group_path
from livesize.runtime.interface import ContainerGroup, RuntimeCallError
from livesize.runtime.libvirt.identity import domain_name

T = TypeVar("T")

_BOOT_SECONDS = 120.0  # 3 s on an idle machine; under emulation on a busy one many more
_RESIZE_SECONDS = 120.0
_AGENT_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.2


class VmAct:
    def __init__(
        self, vm: DemoVm, pods: Pods, cgroups: CgroupDriver, root_group: str, clock: Clock
    ) -> None:
        self.vm = vm
        self._pods = pods
        self._cgroups = cgroups
        self._root_group = root_group
        self._clock = clock
        self._began = 0.0  # when the timeline begins
        self._shown_at = 0.0
        self._shown: TimelineRow = moment_of({})

    async def create(self) -> Object:
        return await self._pods.create(self.vm.name, self.vm.spec())

    async def wait_ready(self, pod: Object) -> Object:
        return await self._pods.wait_ready(pod, _BOOT_SECONDS)

    async def run(self, libvirt_socket: Path) -> None:
        pod = await self._pods.get(self.vm.name)
        witness = GuestWitness(libvirt_socket, domain_name(vm_uid_of(pod)))
        group = group_path(self._root_group, ContainerGroup(uid_of(pod), VM_NAME))
        overhead_bytes = memory_bytes(lookup(pod, "spec", "overhead", "memory", default="0"))

        (start_word, size), *changes = self.vm.sizes
        first = await self._look(witness, group)
        proofs = [(start_word, size, first)]
        for line in heading(moment_of(pod)):
            click.echo(line)
        self._began = self._clock.monotonic()
        self._print(moment_of(pod))
        for word, wanted in changes:
            pod = await self._resize(size, wanted)
            size = wanted
            proofs.append((word, size, await self._look(witness, group)))
            check_settled(pod)
        click.echo("\nAsked without Livesize, the guest, libvirt and the kernel say:")
        for line in proof_table(proofs):
            click.echo(line)
        for word, size, proof in proofs:
            check_proof(word, size, proof, first, self.vm, overhead_bytes)
        _say(verdict(proofs, overhead_bytes))
        _say_what_stays_plugged(pod)
        print_history(pod)

    async def _resize(self, before: DemoVmSize, size: DemoVmSize) -> Object:
        """With a row of the timeline whenever something moves."""

        def show(pod: Object) -> None:
            now, passed = moment_of(pod), self._clock.monotonic() - self._shown_at
            if now.phase != ResizePhase.DONE and is_worth_a_row(self._shown, now, passed):
                self._print(now)

        change = self.vm.change(before, size)
        resized = await self._pods.resize(self.vm.name, change, _RESIZE_SECONDS, show)
        self._print(moment_of(resized.pod), f"{resized.seconds:.2f} s")
        return resized.pod

    def _print(self, moment: TimelineRow, took: str = "") -> None:
        self._shown, self._shown_at = moment, self._clock.monotonic()
        click.echo(row(self._shown_at - self._began, moment, took))

    async def _look(self, witness: GuestWitness, group: str) -> VmProof:
        guest = await self._ask(witness.ask)
        dimms_bytes = await self._ask(witness.dimms_bytes)
        return VmProof(guest, read_group(self._cgroups, group), dimms_bytes)

    async def _ask(self, ask: Callable[[], T]) -> T:
        """Its agent starts a moment after the guest is ready."""
        deadline = self._clock.monotonic() + _AGENT_SECONDS
        while True:
            try:
                return await asyncio.to_thread(ask)
            except RuntimeCallError as failure:
                if self._clock.monotonic() > deadline:
                    raise BrokenPromiseError(str(failure)) from failure
            await self._clock.sleep(_ASK_AGAIN_SECONDS)


def _say_what_stays_plugged(pod: Object) -> None:
    vcpus = moment_of(pod).vcpus
    if (vcpus.plugged or 0) > (vcpus.seen or 0):
        _say(
            "Under emulation QEMU cannot take vCPUs out: they stay plugged, and are switched off"
            " in the guest. Under KVM they are unplugged."
        )


def _say(paragraph: str) -> None:
    click.echo(textwrap.fill(paragraph, WIDTH))
