"""A virtual machine made and resized through the API, against the bare libvirt calls beneath.

The product is a real `livesize up` (root); the yardstick (bench.raw_libvirt) runs a guest with
the same XML under a libvirtd of the same settings. Both take turns. Each sample begins when the
PATCH is sent, or the call made, and ends when the guest itself says on its console that it sees
the new size (bench.guest_eye). A guest is ready for the product when a watch tells the client
that its pod is; for the yardstick, at the guest's first word.

Under emulation a vCPU that was plugged in stays, and the way back and forth is the guest's agent:
that is what "off" and "on again" are, on either side.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from bench.guest_eye import Console, Seen, install_seeing_guest, watching_console
from bench.harness import Context, Function, Goal, Measured, Row, bench_rows
from bench.product_vm import ProductVm, Resizer
from bench.raw_libvirt import Definition, RawVm, raw_libvirt, read_definition
from bench.servers import whole_system
from livesize.client.http import HttpClient
from livesize.client.kubeconfig import connection_from
from livesize.machinery.clock import SystemClock
from livesize.runtime.libvirt.identity import domain_name

BOOTS = 5
ROUNDS = 9
"""Each plugs in three vCPUs. Going from one to two takes a guest twice as long as the next two
steps, so it has a row of its own: a median of both kinds would fall between them."""
MEMORY_ROUNDS = 4
MEMORY_CHANGES = 6
VCPUS = 4
"""Under emulation a QEMU can create so many in its life: one at boot, the others are samples."""
SWITCHES = 3
BOOT_MIB = 512
MORE_MIB = 512
PAUSE_SECONDS = 0.1
"""Between two samples, so that each finds the guests at rest."""
WAIT_SECONDS = 60.0
MEBIBYTE = 1 << 20

Call: TypeAlias = Callable[[], Awaitable[float]]
"""Asks for the new size; returns when that began."""

RESIZE_GOAL = Goal(ratio_at_most=1.25)
ROWS = (
    Row("vm: pod created → guest ready, p50", "s", Goal(ratio_at_most=1.15)),
    Row("vm: PATCH → guest sees a second vCPU plugged in, p50", "ms", RESIZE_GOAL),
    Row("vm: PATCH → guest sees a further vCPU plugged in, p50", "ms", RESIZE_GOAL),
    Row("vm: PATCH → guest sees a vCPU off, p50", "ms"),
    Row("vm: PATCH → guest sees a vCPU on again, p50", "ms"),
    Row(f"vm: PATCH → guest sees {MORE_MIB} MiB more, p50", "ms", RESIZE_GOAL),
    Row(f"vm: PATCH → guest sees {MORE_MIB} MiB less, p50", "ms", RESIZE_GOAL),
)


class Pair(msgspec.Struct, frozen=True):
    """The samples of one row."""

    product: list[float] = msgspec.field(default_factory=list)
    raw: list[float] = msgspec.field(default_factory=list)

    def measured(self, context: Context) -> Measured:
        return Measured(context.median(self.product), context.median(self.raw))


def what_is_missing() -> str:
    """Empty: virtual machines can be measured here."""
    for program in ("qemu-system-x86_64", "libvirtd"):
        if shutil.which(program) is None:
            return f"needs {program}"
    if importlib.util.find_spec("libvirt") is None:
        return "needs libvirt-python"
    return "" if os.geteuid() == 0 else "needs root"


def measured_if_possible(rows: tuple[Row, ...], missing: str) -> Callable[[Function], Function]:
    """Register it, or say for each row that it is not measured, and why."""
    if not missing:
        return bench_rows(*rows)
    for row in rows:
        print(f"not measured: {row.name} ({missing})", file=sys.stderr)
    return lambda function: function


@measured_if_possible(ROWS, what_is_missing())
async def boots_and_resizes(context: Context) -> list[Measured]:
    pairs = [Pair() for _ in ROWS]
    boot, second, further, off, on, more, less = pairs
    async with both_sides(context.folder) as (product, raw):
        await measure_boots(product, raw, boot)
        for number in range(ROUNDS):
            await product.boot()
            await raw.boot()
            async with contests(product, raw, first=number) as contest:
                if number < MEMORY_ROUNDS:
                    await measure_memory(contest, raw, more, less)
                await measure_plugs(contest, raw, second, further)
                await measure_switches(contest, raw, off, on)
            await product.end()
            await raw.end()
    return [pair.measured(context) for pair in pairs]


async def measure_boots(product: ProductVm, raw: RawVm, pair: Pair) -> None:
    """Each alone on the machine: a guest beside it slows whoever boots second by a third."""
    turns: list[tuple[ProductVm | RawVm, list[float]]]
    turns = [(product, pair.product), (raw, pair.raw)]
    for number in range(BOOTS):
        for side, samples in turns if number % 2 == 0 else reversed(turns):
            await asyncio.sleep(PAUSE_SECONDS)
            samples.append(await side.boot())
            await side.end()


async def measure_memory(contest: Contest, raw: RawVm, more: Pair, less: Pair) -> None:
    """Before there are more vCPUs: every one makes an emulated guest slower."""
    for _ in range(MEMORY_CHANGES):
        await contest.memory(more, MORE_MIB, raw)
        await contest.memory(less, 0, raw)


async def measure_plugs(contest: Contest, raw: RawVm, second: Pair, further: Pair) -> None:
    for count in range(2, VCPUS + 1):
        pair = second if count == 2 else further
        await contest.vcpus(pair, count, functools.partial(raw.plug, count))


async def measure_switches(contest: Contest, raw: RawVm, off: Pair, on: Pair) -> None:
    for _ in range(SWITCHES):
        await contest.vcpus(off, VCPUS - 1, lambda: raw.switch_last(VCPUS, on=False))
        await contest.vcpus(on, VCPUS, lambda: raw.switch_last(VCPUS, on=True))


class Contest:
    """Product and yardstick change the size of their guests in turn. An even ``first``: the
    product begins."""

    def __init__(self, resizer: Resizer, ours: Console, theirs: Console, first: int) -> None:
        self._resizer = resizer
        self._ours = ours
        self._theirs = theirs
        self._turn = first
        self._empty_kib: dict[Console, int] = {}

    async def begin(self) -> None:
        """Both guests have booted, and say how much memory they have without any added."""
        for console in (self._ours, self._theirs):
            await console.expect(lambda seen: seen.vcpus == 1)
            assert console.seen is not None
            self._empty_kib[console] = console.seen.memory_kib

    async def vcpus(self, pair: Pair, count: int, raw: Call) -> None:
        def wanted(_: Console) -> Callable[[Seen], bool]:
            return lambda seen: seen.vcpus == count

        await self._both(pair, wanted, lambda: self._resizer.resize(cpu=str(count)), raw)

    async def memory(self, pair: Pair, more_mib: int, raw: RawVm) -> None:
        def wanted(console: Console) -> Callable[[Seen], bool]:
            total_kib = self._empty_kib[console] + more_mib * 1024
            return lambda seen: seen.memory_kib == total_kib

        await self._both(
            pair,
            wanted,
            lambda: self._resizer.resize(memory=f"{BOOT_MIB + more_mib}Mi"),
            lambda: raw.request_memory(more_mib * MEBIBYTE),
        )

    async def _both(
        self,
        pair: Pair,
        wanted: Callable[[Console], Callable[[Seen], bool]],
        product: Call,
        raw: Call,
    ) -> None:
        turns = [(self._ours, product, pair.product), (self._theirs, raw, pair.raw)]
        self._turn += 1
        for console, call, samples in turns if self._turn % 2 else reversed(turns):
            await asyncio.sleep(PAUSE_SECONDS)
            async with asyncio.timeout(WAIT_SECONDS):
                seen = console.expect(wanted(console))
                began = await call()
                samples.append((await seen - began) * 1000)
                if call is product:
                    await self._resizer.done()


@asynccontextmanager
async def contests(product: ProductVm, raw: RawVm, first: int) -> AsyncIterator[Contest]:
    with watching_console(product.console) as ours, watching_console(raw.console) as theirs:
        async with product.followed() as resizer:
            contest = Contest(resizer, ours, theirs, first)
            async with asyncio.timeout(WAIT_SECONDS):
                await contest.begin()
            yield contest


@asynccontextmanager
async def both_sides(folder: Path) -> AsyncIterator[tuple[ProductVm, RawVm]]:
    """Each has booted a guest once, which is gone again: the first finds cold caches."""
    node = f"bench-vm-{os.getpid()}"
    async with whole_system(folder / "data", node) as system:
        images = system.directory.vm_images
        await asyncio.to_thread(install_seeing_guest, images)
        client = await HttpClient.open(connection_from(system.directory.kubeconfig), SystemClock())
        product = ProductVm(system, client, VCPUS, BOOT_MIB)
        try:
            await product.boot()
            uid, socket = product.uid, product.libvirt / "run" / "libvirt-sock"
            xml = await asyncio.to_thread(read_definition, socket, domain_name(uid))
            async with raw_libvirt(folder / "raw", images, node) as (daemon, connection, group):
                raw = RawVm(daemon, connection, group, Definition(uid, xml, product.libvirt))
                await product.end()
                await raw.boot()
                await raw.end()
                yield product, raw
        finally:
            await client.close()
