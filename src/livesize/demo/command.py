"""`livesize demo`: a container and two virtual machines, side by side, grow and shrink as they run.

Everything shown as proof is read from /proc, from the cgroup files and from the guest itself, not
from Livesize. It ends with an error if a promise does not hold, and leaves nothing behind. Where
virtual machines cannot run, it says what is missing and shows the container alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import click
import uvloop

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import lookup
from livesize.cli.output import Table, print_table
from livesize.cli.tables import table_of
from livesize.client.http import HttpClient
from livesize.client.interface import Client
from livesize.client.kubeconfig import connection_from
from livesize.demo.container import HELD_MIB, ContainerAct
from livesize.demo.interrupts import Interrupts
from livesize.demo.pods import Pods
from livesize.demo.promises import BrokenPromiseError
from livesize.demo.requirements import prepare_vms
from livesize.demo.system import DemoSystem
from livesize.demo.virtual_machine import VmAct
from livesize.demo.vm_scenes import CELLS, DIMMS
from livesize.machinery.clock import Clock, SystemClock
from livesize.runtime.cgroups.detect import open_cgroups

ONLY_THE_CONTAINER = 3
INTERRUPTED = 130
_SHOWN = ("NAME", "KIND", "RESTARTS", "DESIRED", "ALLOCATED", "ACTUAL", "GUEST CPU", "GUEST MEMORY")


def run_demo() -> None:
    if os.geteuid() != 0:
        raise click.ClickException(
            "the demo starts a real container and needs root: run it with sudo"
        )
    try:
        with (
            Interrupts() as interrupts,
            tempfile.TemporaryDirectory(prefix="livesize-demo-") as folder,
        ):
            missing = _run_in(DemoSystem(Path(folder)), interrupts)
    except KeyboardInterrupt:
        click.echo("\nInterrupted; everything was stopped and removed.", err=True)
        raise SystemExit(INTERRUPTED) from None
    click.echo("\nNothing is left behind: no process, no cgroup, no file.")
    if missing:
        _say_missing(missing)
        raise SystemExit(ONLY_THE_CONTAINER)


def _run_in(system: DemoSystem, interrupts: Interrupts) -> list[str]:
    """What was missing for the virtual machines."""
    missing = prepare_vms(system.directory.vm_images)
    if missing:
        _say_missing(missing)
    click.echo("Starting Livesize (API server, scheduler, node agent) ...")
    with system.running(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        demo = _Demo(system, SystemClock(), with_vms=not missing)
        try:
            runner.run(interrupts.run(demo.run()))
        except (BrokenPromiseError, TimeoutError, ConnectionError, StatusError) as broken:
            raise click.ClickException(f"{broken}\n{system.last_log()}") from None
    return missing


class _Demo:
    def __init__(self, system: DemoSystem, clock: Clock, *, with_vms: bool) -> None:
        self._system = system
        self._clock = clock
        self._with_vms = with_vms
        self._cgroups = open_cgroups(clock)

    async def run(self) -> None:
        connection = connection_from(self._system.directory.kubeconfig)
        client = await HttpClient.open(connection, self._clock)
        try:
            await self._show(client)
        finally:
            await client.close()

    async def _show(self, client: Client) -> None:
        pods = Pods(client, self._clock)
        groups = self._system.container_groups, self._system.vm_groups
        container = ContainerAct(pods, self._cgroups, groups[0], self._clock)
        scenes = (CELLS, DIMMS) if self._with_vms else ()
        machines = [VmAct(vm, pods, self._cgroups, groups[1], self._clock) for vm in scenes]

        click.echo(f"Starting a container that spins on the CPU and holds {HELD_MIB} MiB ...")
        await container.wait_ready(await container.create())
        if machines:
            await self._boot(machines)
        _print_title("What runs, as `livesize get pods -o wide` shows it")
        await self._print_table(client)

        _print_title("A container, from 200m 96Mi to 800m 256Mi, and down to 300m 64Mi")
        await container.run()
        for machine in machines:
            _print_title(machine.vm.title)
            await machine.run(self._system.directory.vms / "libvirt" / "run" / "libvirt-sock")
        _print_title("What runs now, and has not been restarted")
        await self._print_table(client)

    async def _boot(self, machines: list[VmAct]) -> None:
        """All at the same time."""
        sizes = ", and ".join(f"{one.vm.name} with {one.vm.start}" for one in machines)
        click.echo(f"Booting {sizes} ...")
        began = self._clock.monotonic()
        created = [await machine.create() for machine in machines]
        waits = zip(machines, created, strict=True)
        booted = [await machine.wait_ready(pod) for machine, pod in waits]
        how = lookup(booted[0], "status", "virtualMachineStatus", "accelerator", default="-")
        took = self._clock.monotonic() - began
        click.echo(f"Their guests answer after {took:.1f} s (QEMU with {str(how).upper()}).")

    async def _print_table(self, client: Client) -> None:
        listing = await client.list(PODS, Selection("default"))
        whole = table_of(PODS, listing.items, self._clock.now(), wide=True, all_namespaces=False)
        places = [whole.header.index(name) for name in _SHOWN]
        rows = tuple(tuple(line[place] for place in places) for line in whole.rows)
        print_table(Table(_SHOWN, rows))


def _print_title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _say_missing(missing: list[str]) -> None:
    click.echo("The virtual machines cannot be shown on this machine:", err=True)
    for sentence in missing:
        click.echo(f"  {sentence}", err=True)
