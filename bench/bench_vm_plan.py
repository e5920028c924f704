"""What deciding costs: the plan of a VM with 16 memory devices in 8 NUMA cells.

Each sample is one whole plan, from facts that were read to ordered steps, and every other one is of
a size that has to be refused with the nearest that can be had, or for which smaller devices have to
take the place of larger ones. What other processes take of the core meanwhile is not counted.
"""

from __future__ import annotations

import itertools
import time

from bench.harness import Context, Goal, Measured, bench
from livesize.agent.resize.plan import PodObservation
from livesize.agent.vm.memory.facts import MemoryFacts
from livesize.agent.vm.plan import VmFacts, VmTarget, plan_vm_resize
from livesize.api.kernel_units import CPU_PERIOD_US, KernelLimits
from livesize.api.vm_changes import DeviceKind, VmDevice
from livesize.api.vm_size import MEBIBYTE, CellSize

CELLS = 8
BOOT_BYTES = 1024 * MEBIBYTE
SIZES_BYTES = tuple(size * MEBIBYTE for size in (2048, 1024, 512, 128))
OVERHEAD_BYTES = 256 * MEBIBYTE
SAMPLES = 4000


def plan_once(moved_bytes: int, cell: int, spare_bytes: int) -> float:
    sizes = itertools.islice(itertools.cycle(SIZES_BYTES), 2 * CELLS - (moved_bytes > 0))
    devices = tuple(
        VmDevice(f"ua-dimm{number}", DeviceKind.DIMM, number % CELLS, size, size, size)
        for number, size in enumerate(sizes)
    )
    boot = tuple(CellSize(one, BOOT_BYTES) for one in range(CELLS))
    held = {one.id: one.memory_bytes for one in boot}
    for device in devices:
        held[device.node] += device.size_bytes
    total_bytes = sum(held.values())
    seen = tuple(held.values())
    facts = MemoryFacts(
        CELLS * BOOT_BYTES,
        devices,
        devices,
        total_bytes,
        total_bytes,
        cells=boot,
        seen_by_node=seen,
    )
    held[cell] += moved_bytes
    wanted_bytes = sum(held.values())
    limits = KernelLimits(1024, CPU_PERIOD_US, total_bytes + spare_bytes + OVERHEAD_BYTES)
    target = VmTarget(
        1,
        wanted_bytes,
        OVERHEAD_BYTES,
        limits,
        technology="dimm",
        cells=tuple(CellSize(*one) for one in held.items()),
        max_memory_bytes=128 * 1024 * MEBIBYTE,
    )
    groups = PodObservation(limits, {"vm": limits})
    view = VmFacts(False, 1, 1, 1, facts)
    began = time.thread_time()
    plan_vm_resize(view, groups, target)
    return (time.thread_time() - began) * 1000


@bench("vm: planner p99 with 16 devices and 8 cells", unit="ms", goal=Goal(value_at_most=1.0))
async def planner(context: Context) -> Measured:
    steps = itertools.cycle([128, -128, 512, -512, 2048, -384, -1, -640])
    samples = [
        plan_once(next(steps) * MEBIBYTE, number % CELLS, (number % 3) * 1024 * MEBIBYTE)
        for number in range(SAMPLES)
    ]
    return Measured(context.percentile(samples, 99))
