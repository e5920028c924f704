"""What a real container uses, read from its control group: as much as it burns and holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from livesize.agent.usage import UsageMeter
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.runtime.interface import ContainerConfig, PodConfig
from livesize.runtime.process.runtime import ProcessRuntime
from system.up import IMAGE

pytestmark = pytest.mark.containers

MIB = 2**20
UID = "0b6f0c5e-7b55-4a7f-9d53-0d2f0d6d7a77"
LIMITS = KernelLimits(cpu_weight=512, cpu_quota_us=30_000, memory_limit_bytes=64 * MIB)
BURNS = "dd if=/dev/zero of=/dev/shm/held bs=1M count=20 2>&1; while :; do :; done"


async def test_a_container_that_burns_a_third_of_a_cpu_is_seen_to(
    tmp_path: Path, root_group: str
) -> None:
    runtime = ProcessRuntime(tmp_path / "state", root_group, system_context())
    await runtime.open()
    try:
        await runtime.create_pod(PodConfig(UID, "default", "busy", LIMITS))
        await runtime.start_container(
            ContainerConfig(
                pod_uid=UID,
                name="app",
                image=IMAGE,
                command=("sh", "-c", BURNS),
                args=(),
                env=(),
                working_dir="",
                hostname="busy",
                limits=LIMITS,
            )
        )
        meter = UsageMeter(runtime, SystemClock())
        await asyncio.sleep(0.5)
        await meter.measure()
        await asyncio.sleep(1)
        measured = await meter.measure()
        usage = measured.pods[UID]["app"]
        # No more than its quota; less where the machine has others to serve.
        assert 50_000_000 < usage.cpu_nano < 360_000_000
        assert 20 * MIB <= usage.memory_bytes <= 64 * MIB
        assert measured.node is not None
        assert measured.node.cpu_nano >= usage.cpu_nano * 0.9
        assert measured.node.memory_bytes > usage.memory_bytes
    finally:
        await runtime.stop_container(UID, "app", 0)
        await runtime.remove_pod(UID)
        await runtime.close()
