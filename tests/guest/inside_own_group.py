"""Inside the guest: a container of the process runtime finds its own size in /sys/fs/cgroup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.runtime.interface import ContainerGroup
from livesize.runtime.process.runtime import ProcessRuntime
from system.process_pod import MIB, UID, config, process_pod

pytestmark = pytest.mark.cgroup_v2


@pytest.fixture
async def runtime(tmp_path: Path, root_group: str) -> AsyncIterator[ProcessRuntime]:
    async with process_pod(tmp_path, root_group) as opened:
        yield opened


async def test_it_finds_its_own_size_where_programs_look_for_it(runtime: ProcessRuntime) -> None:
    limits = KernelLimits(50, 30_000, 64 * MIB)
    view = await runtime.start_container(config("sleep 100", limits=limits))
    top = Path(f"/proc/{view.pid}/root/sys/fs/cgroup")

    def sizes() -> tuple[str, ...]:
        return tuple((top / name).read_text().strip() for name in ("memory.max", "cpu.max"))

    assert sizes() == (str(64 * MIB), "30000 100000")
    group = ContainerGroup(UID, "main")
    await runtime.write(group, SetCpu(25, 50_000))
    await runtime.write(group, SetMemory(96 * MIB))
    assert sizes() == (str(96 * MIB), "50000 100000")


async def test_it_sees_no_other_groups_and_changes_none(runtime: ProcessRuntime) -> None:
    await runtime.start_container(config("sleep 100"))
    script = (
        "cat /proc/self/cgroup; grep cgroup2 /proc/self/mountinfo;"
        " (echo max > /sys/fs/cgroup/memory.max) && echo DONE IT;"
        " (mkdir /sys/fs/cgroup/x) && echo DONE IT; ls -d /sys/fs/cgroup/*/"
    )
    result = await runtime.run_command(
        UID, "main", ("sh", "-c", script), env=(), timeout_seconds=30
    )
    lines = result.output.splitlines()
    assert lines[0] == "0::/"
    assert lines[1].split()[3:5] == ["/", "/sys/fs/cgroup"]
    assert "DONE IT" not in result.output
    assert result.output.count("Read-only file system") == 2
    assert "ls: /sys/fs/cgroup/*/: No such file" in result.output
