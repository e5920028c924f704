"""Limits of containers that containerd runs: what is asked, and what a refusal leaves behind.

The kernel's part is played by files, containerd's by what it does to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.containerd.link import RefusedError
from livesize.runtime.containerd.resizing import Resizer
from livesize.runtime.containerd.telling import Telling
from livesize.runtime.interface import (
    GoneError,
    MemoryInUseError,
    RuntimeCallError,
    SetCpu,
    SetMemory,
)

MIB = 1 << 20
ID = "c0ffee"
PATH = "pod-u/c1"
LIMITS = KernelLimits(39, 50_000, 64 * MIB)


class Kernel:
    """The files of one group of version 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PATH
        self.folder.mkdir(parents=True)
        self.put("cpu.weight", "39")
        self.put("cpu.max", "50000 100000")
        self.put("cpu.stat", "usage_usec 0")
        self.put("memory.max", str(64 * MIB))
        self.put("memory.events", "oom_kill 0")
        self.put("memory.reclaim", "")
        self.hold(10 * MIB)

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def hold(self, held_bytes: int) -> None:
        self.put("memory.current", str(held_bytes))
        self.put("memory.stat", f"active_anon {held_bytes}\nkernel 0")


class Containerd:
    """Does what it is asked, or fails after having done a part of it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.asked: list[object] = []
        self.refuses: Callable[[object], str] = lambda _: ""
        self.does_a_part = False
        self.recorded = LIMITS
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def set_cpu(self, container_id: str, weight: int | None, quota_us: int | None) -> None:
        change = SetCpu(weight, quota_us)
        self.asked.append(change)
        await self.may_go_on.wait()
        refusal = self.refuses(change)
        if weight is not None and (not refusal or self.does_a_part):
            self.kernel.put("cpu.weight", str(weight))
        if refusal:
            raise RefusedError(refusal)
        self.kernel.put("cpu.max", f"{'max' if quota_us is None else quota_us} 100000")

    async def set_memory(self, container_id: str, limit_bytes: int | None) -> None:
        assert container_id == ID
        change = SetMemory(limit_bytes)
        self.asked.append(change)
        refusal = self.refuses(change)
        if refusal:
            raise RefusedError(refusal)
        self.kernel.put("memory.max", "max" if limit_bytes is None else str(limit_bytes))

    async def recorded_limits(self, container_id: str) -> KernelLimits:
        assert container_id == ID
        return self.recorded


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def containerd(kernel: Kernel) -> Containerd:
    return Containerd(kernel)


@pytest.fixture
def cgroups(tmp_path: Path, kernel: Kernel) -> CgroupsV2:
    return CgroupsV2(str(tmp_path))


@pytest.fixture
async def telling(
    containerd: Containerd, cgroups: CgroupsV2, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Telling]:
    monkeypatch.setattr("livesize.runtime.containerd.telling.AGAIN_SECONDS", (0.001,))
    monkeypatch.setattr("livesize.runtime.containerd.telling.CLOSE_SECONDS", 0.2)
    stand_in: Any = containerd
    telling = Telling(stand_in, cgroups, SystemClock())
    yield telling
    await telling.close()


@pytest.fixture
def resizer(containerd: Containerd, cgroups: CgroupsV2, telling: Telling) -> Resizer:
    stand_in: Any = containerd
    return Resizer(stand_in, cgroups, asyncio.to_thread, telling)


@pytest.fixture
def asking(containerd: Containerd, cgroups: CgroupsV2) -> Resizer:
    """As where systemd keeps the groups: it has to hear of everything."""
    stand_in: Any = containerd
    return Resizer(stand_in, cgroups, asyncio.to_thread, None)


async def test_a_change_is_asked_of_containerd_and_nobody_else(
    asking: Resizer, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    for change in (SetCpu(50, 20_000), SetMemory(128 * MIB), SetMemory(32 * MIB)):
        await asking.write(ID, PATH, change)
    assert containerd.asked == [SetCpu(50, 20_000), SetMemory(128 * MIB), SetMemory(32 * MIB)]
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 32 * MIB)


# CPU, which the kernel has before containerd hears of it


async def test_cpu_is_written_at_once_and_told_afterwards(
    resizer: Resizer, telling: Telling, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)
    assert containerd.asked == []
    await telling.close()
    assert containerd.asked == [SetCpu(50, 20_000)]


async def test_nothing_is_written_that_an_update_under_way_would_set_back(
    resizer: Resizer, telling: Telling, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.may_go_on.clear()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await asyncio.sleep(0.01)
    assert containerd.asked == [SetCpu(50, 20_000)]
    second = asyncio.ensure_future(resizer.write(ID, PATH, SetCpu(60, 30_000)))
    await asyncio.sleep(0.01)
    assert not second.done()
    containerd.may_go_on.set()
    await second
    await telling.close()
    assert containerd.asked == [SetCpu(50, 20_000), SetCpu(60, 30_000)]
    assert cgroups.read_limits(PATH) == KernelLimits(60, 30_000, 64 * MIB)


async def test_what_is_not_told_yet_is_told_before_anything_else_is_asked(
    resizer: Resizer, containerd: Containerd
) -> None:
    """containerd sets all it knows with every update: it would set the CPU back."""
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await resizer.write(ID, PATH, SetMemory(128 * MIB))
    await asyncio.sleep(0.01)
    assert containerd.asked == [SetCpu(50, 20_000), SetMemory(128 * MIB)]


async def test_what_could_not_be_told_is_told_again_and_only_as_it_is_by_then(
    resizer: Resizer, telling: Telling, containerd: Containerd
) -> None:
    containerd.refuses = lambda _: "no"
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    with pytest.raises(RefusedError):
        await resizer.write(ID, PATH, SetMemory(128 * MIB))
    assert set(containerd.asked) == {SetCpu(50, 20_000)}, "it would have set the CPU back"
    await resizer.write(ID, PATH, SetCpu(60, 30_000))
    containerd.refuses = lambda _: ""
    containerd.asked.clear()
    await telling.close()
    assert containerd.asked == [SetCpu(60, 30_000)]


async def test_an_update_that_failed_and_set_the_cpu_back_changes_nothing(
    resizer: Resizer, telling: Telling, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    def set_back(_: object) -> str:
        containerd.kernel.put("cpu.max", "50000 100000")
        containerd.kernel.put("cpu.weight", "39")
        containerd.refuses = lambda _: ""
        return "no"

    containerd.refuses = set_back
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await telling.close()
    assert containerd.asked == [SetCpu(50, 20_000)] * 2
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)


async def test_of_a_container_that_is_gone_nothing_is_told(
    resizer: Resizer, telling: Telling, containerd: Containerd, kernel: Kernel
) -> None:
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    kernel.folder.rename(kernel.folder.with_name("elsewhere"))
    await telling.close()
    assert containerd.asked == []


async def test_who_closes_does_not_wait_for_a_containerd_that_is_away(
    resizer: Resizer, telling: Telling, containerd: Containerd
) -> None:
    containerd.may_go_on.clear()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    async with asyncio.timeout(5):
        await telling.close()


async def test_cpu_that_was_written_in_part_is_set_back(
    resizer: Resizer,
    containerd: Containerd,
    cgroups: CgroupsV2,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str, text: str) -> None:
        if text == "50":
            raise RuntimeCallError(f"cannot write {path}")
        Path(path).write_text(text)

    monkeypatch.setattr("livesize.runtime.cgroups.v2.write_text", refuse)
    with pytest.raises(RuntimeCallError):
        await resizer.write(ID, PATH, SetCpu(50, 20_000))
    assert cgroups.read_limits(PATH) == LIMITS
    await asyncio.sleep(0.01)
    assert containerd.asked == []


# What goes through containerd


async def test_a_limit_that_would_kill_is_never_asked_for(
    resizer: Resizer, containerd: Containerd, kernel: Kernel, cgroups: CgroupsV2
) -> None:
    """There the kernel kills, and the call says OK."""
    kernel.hold(40 * MIB)
    with pytest.raises(MemoryInUseError) as refused:
        await resizer.write(ID, PATH, SetMemory(32 * MIB))
    assert refused.value.usage_bytes >= 40 * MIB
    assert containerd.asked == []
    assert cgroups.read_limits(PATH) == LIMITS


async def test_what_was_done_in_part_is_set_back(
    asking: Resizer, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.refuses = lambda change: "no" if change == SetCpu(50, 900) else ""
    containerd.does_a_part = True
    with pytest.raises(RefusedError, match="no"):
        await asking.write(ID, PATH, SetCpu(50, 900))
    assert cgroups.read_limits(PATH) == LIMITS


@pytest.mark.parametrize(
    ("words", "held_bytes", "error"),
    [
        pytest.param("device or resource busy", 1 * MIB, MemoryInUseError, id="its words say so"),
        pytest.param("exit status 1", 200 * MIB, MemoryInUseError, id="the kernel says so"),
        pytest.param("exit status 1", 1 * MIB, RefusedError, id="something else"),
    ],
)
async def test_memory_in_use_is_told_from_other_refusals(
    resizer: Resizer,
    containerd: Containerd,
    kernel: Kernel,
    words: str,
    held_bytes: int,
    error: type[RuntimeCallError],
) -> None:
    containerd.refuses = lambda _: words
    kernel.put("memory.max", str(100 * MIB))
    kernel.hold(held_bytes)
    with pytest.raises(error):
        await resizer.write(ID, PATH, SetMemory(128 * MIB))


async def test_a_container_that_is_gone_is_told_as_gone(
    resizer: Resizer, containerd: Containerd, kernel: Kernel
) -> None:
    kernel.folder.rename(kernel.folder.with_name("elsewhere"))
    with pytest.raises(GoneError):
        await resizer.write(ID, PATH, SetCpu(50, 20_000))
    assert containerd.asked == []


@pytest.mark.parametrize(
    ("limit", "recorded", "told"),
    [
        pytest.param(
            "67108864",
            KernelLimits(39, 50_000, 128 * MIB),
            [SetMemory(64 * MIB)],
            id="lowered, and not told",
        ),
        pytest.param(
            "67108864",
            KernelLimits(39, 50_000, None),
            [SetMemory(64 * MIB)],
            id="no limit is known to it",
        ),
        pytest.param("67108864", LIMITS, [], id="they agree"),
        pytest.param("max", LIMITS, [], id="somebody else took it away"),
        pytest.param(
            "67108864",
            KernelLimits(39, 20_000, 64 * MIB),
            [SetCpu(39, 50_000)],
            id="another quota",
        ),
        pytest.param(
            "67108864",
            KernelLimits(0, None, None),
            [SetCpu(39, 50_000), SetMemory(64 * MIB)],
            id="it knows of nothing",
        ),
    ],
)
async def test_containerd_is_told_what_a_killed_agent_did_not_tell(
    resizer: Resizer,
    telling: Telling,
    containerd: Containerd,
    limit: str,
    recorded: KernelLimits,
    told: list[SetCpu | SetMemory],
) -> None:
    containerd.kernel.put("memory.max", limit)
    containerd.recorded = recorded
    await resizer.tell_again(ID, PATH)
    await telling.close()
    assert containerd.asked == told
