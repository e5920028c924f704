"""A real JVM in a container of the process runtime goes by the container's size."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import ContainerGroup, Mount
from livesize.runtime.process.runtime import ProcessRuntime
from system.process_pod import MIB, UID, config, process_pod

pytestmark = [pytest.mark.containers, pytest.mark.matrix]


@pytest.fixture
def java(not_run: Callable[[str], NoReturn]) -> str:
    found = shutil.which("java")
    if found is None:
        not_run("needs java")
    return str(Path(found).resolve())


@pytest.fixture
async def runtime(tmp_path: Path, root_group: str) -> AsyncIterator[ProcessRuntime]:
    async with process_pod(tmp_path, root_group) as opened:
        yield opened


def programs(java: str) -> tuple[Mount, ...]:
    """The machine's JVM and its libraries, at the same places."""
    folders = ["/usr/lib", "/lib", "/lib64", str(Path(java).parents[1])]
    folders += [str(path) for path in Path("/etc").glob("java*")]
    found = sorted({one for one in folders if Path(one).is_dir()})
    return tuple(Mount(str(Path(one).resolve()), one, read_only=True) for one in found)


async def sizes(runtime: ProcessRuntime, java: str) -> tuple[str, str, int]:
    """Memory limit, quota, and the largest heap that follows from it, as the JVM says."""
    command = (java, "-XshowSettings:all", "-XX:-UsePerfData", "-version")
    result = await runtime.run_command(UID, "main", command, env=(), timeout_seconds=120)
    assert result.exit_code == 0, result.output
    words = (r"Memory Limit: (\S+)", r"CPU Quota: (\S+)", r"Max. Heap Size \(Estimated\): (\S+)M")
    found = [re.search(one, result.output) for one in words]
    memory, quota, heap = (one[1] if one else result.output for one in found)
    return memory, quota, round(float(heap))


async def test_it_sees_its_own_size_before_and_after_a_resize(
    runtime: ProcessRuntime, java: str
) -> None:
    limits = KernelLimits(1024, 100_000, 256 * MIB)
    await runtime.start_container(config("sleep 1000", limits=limits, mounts=programs(java)))
    memory, quota, heap_mib = await sizes(runtime, java)
    assert (memory, quota) == ("256.00M", "100000us")
    assert 110 < heap_mib <= 128  # half of a small size
    group = ContainerGroup(UID, "main")
    await runtime.write(group, SetCpu(1536, 150_000))
    await runtime.write(group, SetMemory(1024 * MIB))
    memory, quota, heap_mib = await sizes(runtime, java)
    assert (memory, quota) == ("1.00G", "150000us")
    assert 230 < heap_mib <= 256  # a quarter
