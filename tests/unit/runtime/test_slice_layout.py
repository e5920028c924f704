"""Pods as slices: what is told to systemd, what is written, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livesize.api.group_changes import SetCpu, SetMemory
from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.containerd.slice_layout import SliceLayout
from livesize.runtime.interface import MemoryInUseError

UID = "0-1"
UNIT = "livesize-n_1-pod0_1.slice"
PATH = f"livesize.slice/livesize-n_1.slice/{UNIT}"
MIB = 1024 * 1024
LIMITS = KernelLimits(10, 50_000, 64 * MIB)


class SystemdStandIn:
    """Makes groups as systemd does, and writes into them what it is told."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.units: dict[str, dict[str, Any]] = {}
        self.told: list[str] = []

    async def start_transient(self, unit: str, properties: list[Any]) -> bool:
        if unit in self.units:
            return False
        group = self.mount / PATH
        group.mkdir(parents=True)
        for name, text in (
            ("cpu.max", "max 100000"),
            ("cpu.weight", "100"),
            ("memory.max", "max"),
            ("memory.current", str(20 * MIB)),
            ("memory.stat", f"active_anon {20 * MIB}"),
        ):
            (group / name).write_text(text)
        self.units[unit] = {}
        await self.set_properties(unit, properties)
        return True

    async def set_properties(self, unit: str, properties: list[Any]) -> None:
        for name, (_, value) in properties:
            self.told.append(name)
            self.units[unit][name] = value
            if name == "CPUQuotaPerSecUSec":
                (self.mount / PATH / "cpu.max").write_text(f"{value // 10} 100000")
            elif name == "CPUWeight":
                (self.mount / PATH / "cpu.weight").write_text(str(value))
            elif name == "MemoryMax":
                (self.mount / PATH / "memory.max").write_text(str(value))

    async def stop(self, unit: str) -> bool:
        return self.units.pop(unit, None) is not None


@pytest.fixture
def systemd(tmp_path: Path) -> SystemdStandIn:
    return SystemdStandIn(tmp_path)


@pytest.fixture
def cgroups(tmp_path: Path) -> CgroupsV2:
    return CgroupsV2(str(tmp_path), SystemClock())


@pytest.fixture
def layout(systemd: SystemdStandIn, cgroups: CgroupsV2) -> SliceLayout:
    asked: Any = systemd
    return SliceLayout(cgroups, "livesize/n-1", SystemClock(), asked)


def test_containerd_is_told_the_slice_and_makes_a_scope_in_it(layout: SliceLayout) -> None:
    assert layout.parent(UID) == UNIT
    assert layout.container(UID, "abc") == f"{PATH}/cri-containerd-abc.scope"


async def test_a_new_pod_has_its_limits_in_systemd_and_in_its_files(
    layout: SliceLayout, systemd: SystemdStandIn, cgroups: CgroupsV2
) -> None:
    await layout.make(UID, KernelLimits(10, 50_500, 64 * MIB), pids_max=100)
    kept = systemd.units[UNIT]
    assert (kept["CPUQuotaPerSecUSec"], kept["MemoryMax"]) == (510_000, 64 * MIB)
    assert kept["TasksMax"] == 100
    assert cgroups.read_limits(layout.pod(UID)) == KernelLimits(10, 50_500, 64 * MIB)


async def test_a_slice_that_was_left_over_gets_the_new_limits(
    layout: SliceLayout, systemd: SystemdStandIn, cgroups: CgroupsV2
) -> None:
    await layout.make(UID, LIMITS, pids_max=100)
    await layout.make(UID, KernelLimits(20, 70_000, 128 * MIB), pids_max=100)
    assert systemd.units[UNIT]["MemoryMax"] == 128 * MIB
    assert cgroups.read_limits(layout.pod(UID)) == KernelLimits(20, 70_000, 128 * MIB)


async def test_changes_are_told_and_read_back(
    layout: SliceLayout, systemd: SystemdStandIn, cgroups: CgroupsV2
) -> None:
    await layout.make(UID, LIMITS, pids_max=100)
    await layout.write(UID, SetCpu(30, 25_500))
    await layout.write(UID, SetMemory(256 * MIB))
    assert cgroups.read_limits(layout.pod(UID)) == KernelLimits(30, 25_500, 256 * MIB)
    assert systemd.units[UNIT]["CPUQuotaPerSecUSec"] == 260_000
    assert systemd.units[UNIT]["MemoryMax"] == 256 * MIB


async def test_systemd_never_hears_of_a_limit_that_would_kill(
    layout: SliceLayout, systemd: SystemdStandIn, cgroups: CgroupsV2
) -> None:
    await layout.make(UID, LIMITS, pids_max=100)
    with pytest.raises(MemoryInUseError):
        await layout.write(UID, SetMemory(8 * MIB))
    assert systemd.units[UNIT]["MemoryMax"] == 64 * MIB
    assert cgroups.read_limits(layout.pod(UID)) == LIMITS


async def test_an_agent_that_comes_back_tells_systemd_what_the_files_say(
    layout: SliceLayout, systemd: SystemdStandIn, cgroups: CgroupsV2
) -> None:
    await layout.make(UID, LIMITS, pids_max=100)
    cgroups.write_cpu(layout.pod(UID), None, 33_300)  # killed before systemd was told
    await layout.find(UID)
    assert systemd.units[UNIT]["CPUQuotaPerSecUSec"] == 340_000
    assert cgroups.read_limits(layout.pod(UID)).cpu_quota_us == 33_300
