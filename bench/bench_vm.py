"""A virtual machine made and resized through the API, against the bare libvirt calls beneath.

The product is a real `livesize up` (root); the yardstick (bench.raw_libvirt) runs a guest with
the same XML under a libvirtd of the same settings. Both take turns. Each sample begins when the
PATCH is sent, or the call made, and ends when the guest itself says on its console that it sees
the new size (bench.guest_eye). A guest is ready for the product when a watch tells the client
that its pod is; for the yardstick, at the guest's first word.

Under emulation a vCPU that was plugged in stays, and the way back and forth is the guest's agent:
that is what "off" and "on again" are, on either side.

Memory comes and goes by each technology that plugs, on a VM that was made with it. The guest has
let go of a DIMM before QEMU has taken it out: the way until then, which for the product ends when
a watch tells that the resize is Done, and for the yardstick with the event DEVICE_REMOVED, has a
row of its own.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
import sys
import time
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
from livesize.api.vm_size import Technology
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
Settled: TypeAlias = Callable[[], Awaitable[float]]
"""Returns when the side was at rest again."""

PLUGGED = (Technology.VIRTIO_MEM, Technology.DIMM)
RESIZE_GOAL = Goal(ratio_at_most=1.25)
ROWS = (
    Row("vm: pod created → guest ready, p50", "s", Goal(ratio_at_most=1.15)),
    Row("vm: PATCH → guest sees a second vCPU plugged in, p50", "ms", RESIZE_GOAL),
    Row("vm: PATCH → guest sees a further vCPU plugged in, p50", "ms", RESIZE_GOAL),
    Row("vm: PATCH → guest sees a vCPU off, p50", "ms"),
    Row("vm: PATCH → guest sees a vCPU on again, p50", "ms"),
    *(
        Row(f"vm: PATCH → guest sees {MORE_MIB} MiB {way} by {technology}, p50", "ms", RESIZE_GOAL)
        for technology in PLUGGED
        for way in ("more", "less")
    ),
    Row(f"vm: PATCH → {MORE_MIB} MiB less by dimm is Done, p50", "ms"),
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


class Turn(msgspec.Struct, frozen=True):
    """One side's part of a sample. ``settled`` times go to ``rests``."""

    console: Console
    call: Call
    settled: Settled
    samples: list[float]
    rests: list[float]


class MemoryPairs(msgspec.Struct, frozen=True):
    """Of one technology. ``gone``: until the memory that is less is out of the machine."""

    more: Pair = msgspec.field(default_factory=Pair)
    less: Pair = msgspec.field(default_factory=Pair)
    gone: Pair = msgspec.field(default_factory=Pair)


@measured_if_possible(ROWS, what_is_missing())
async def boots_and_resizes(context: Context) -> list[Measured]:
    boot, second, further, off, on = vcpus = [Pair() for _ in range(5)]
    virtio_mem, dimm = MemoryPairs(), MemoryPairs()
    async with both_sides(context.folder) as (product, raws):
        raw = raws[Technology.VIRTIO_MEM]
        await measure_boots(product, raw, boot)
        for number in range(ROUNDS):
            async with contests(product, raw, first=number) as contest:
                if number < MEMORY_ROUNDS:
                    await measure_memory(contest, raw, virtio_mem)
                await measure_plugs(contest, raw, second, further)
                await measure_switches(contest, raw, off, on)
        for number in range(MEMORY_ROUNDS):
            async with contests(product, raws[Technology.DIMM], first=number) as contest:
                await measure_memory(contest, raws[Technology.DIMM], dimm)
    memory = [virtio_mem.more, virtio_mem.less, dimm.more, dimm.less, dimm.gone]
    return [pair.measured(context) for pair in (*vcpus, *memory)]


async def measure_boots(product: ProductVm, raw: RawVm, pair: Pair) -> None:
    """Each alone on the machine: a guest beside it slows whoever boots second by a third."""
    ours = functools.partial(product.boot, raw.technology), product.end, pair.product
    theirs = raw.boot, raw.end, pair.raw
    for number in range(BOOTS):
        for boot, end, samples in (ours, theirs) if number % 2 == 0 else (theirs, ours):
            await asyncio.sleep(PAUSE_SECONDS)
            samples.append(await boot())
            await end()


async def measure_memory(contest: Contest, raw: RawVm, pairs: MemoryPairs) -> None:
    """Before there are more vCPUs: every one makes an emulated guest slower."""
    for _ in range(MEMORY_CHANGES):
        await contest.memory(pairs.more, MORE_MIB, raw)
        await contest.memory(pairs.less, 0, raw, pairs.gone)


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

        ours = self._our_turn(pair, Pair(), lambda: self._resizer.resize(cpu=str(count)))
        await self._both(wanted, ours, Turn(self._theirs, raw, _at_once, pair.raw, []))

    async def memory(
        self, pair: Pair, more_mib: int, raw: RawVm, settled: Pair | None = None
    ) -> None:
        def wanted(console: Console) -> Callable[[Seen], bool]:
            total_kib = self._empty_kib[console] + more_mib * 1024
            return lambda seen: seen.memory_kib == total_kib

        rests = settled or Pair()
        size = f"{BOOT_MIB + more_mib}Mi"
        ours = self._our_turn(pair, rests, lambda: self._resizer.resize(memory=size))
        call = functools.partial(raw.request_memory, more_mib * MEBIBYTE)
        await self._both(wanted, ours, Turn(self._theirs, call, raw.settled, pair.raw, rests.raw))

    def _our_turn(self, pair: Pair, rests: Pair, call: Call) -> Turn:
        return Turn(self._ours, call, self._resizer.done, pair.product, rests.product)

    async def _both(
        self, wanted: Callable[[Console], Callable[[Seen], bool]], ours: Turn, theirs: Turn
    ) -> None:
        turns = [ours, theirs]
        self._turn += 1
        for turn in turns if self._turn % 2 else reversed(turns):
            await asyncio.sleep(PAUSE_SECONDS)
            async with asyncio.timeout(WAIT_SECONDS):
                seen = turn.console.expect(wanted(turn.console))
                began = await turn.call()
                turn.samples.append((await seen - began) * 1000)
                turn.rests.append((await turn.settled() - began) * 1000)


async def _at_once() -> float:
    return time.perf_counter()


@asynccontextmanager
async def contests(product: ProductVm, raw: RawVm, first: int) -> AsyncIterator[Contest]:
    """Between two guests that were booted for it, and end with it."""
    await product.boot(raw.technology)
    await raw.boot()
    with watching_console(product.console) as ours, watching_console(raw.console) as theirs:
        async with product.followed() as resizer:
            contest = Contest(resizer, ours, theirs, first)
            async with asyncio.timeout(WAIT_SECONDS):
                await contest.begin()
            yield contest
    await product.end()
    await raw.end()


@asynccontextmanager
async def both_sides(folder: Path) -> AsyncIterator[tuple[ProductVm, dict[Technology, RawVm]]]:
    """Each has booted a guest of each technology once, which is gone again: the first finds cold
    caches."""
    node = f"bench-vm-{os.getpid()}"
    async with whole_system(folder / "data", node) as system:
        images = system.directory.vm_images
        await asyncio.to_thread(install_seeing_guest, images)
        client = await HttpClient.open(connection_from(system.directory.kubeconfig), SystemClock())
        product = ProductVm(system, client, VCPUS, BOOT_MIB)
        try:
            async with raw_libvirt(folder / "raw", images, node) as (daemon, connection, group):
                raws = {}
                for technology in PLUGGED:
                    definition = await defined_by(product, technology)
                    raw = RawVm(daemon, connection, group, definition)
                    await product.end()
                    await raw.boot()
                    await raw.end()
                    raws[technology] = raw
                yield product, raws
        finally:
            await client.close()


async def defined_by(product: ProductVm, technology: Technology) -> Definition:
    """What the product makes of a VM, which runs."""
    await product.boot(technology)
    uid, socket = product.uid, product.libvirt / "run" / "libvirt-sock"
    xml = await asyncio.to_thread(read_definition, socket, domain_name(uid))
    return Definition(uid, xml, product.libvirt, technology)
