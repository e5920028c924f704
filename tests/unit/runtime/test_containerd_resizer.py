"""Limits of containers that containerd runs: what is asked, and what a refusal leaves behind.

The kernel's part is played by files, containerd's by what it does to them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livesize.api.group_changes import GroupChange, SetCpu, SetMemory
from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.cgroups.v2 import CgroupsV2
from livesize.runtime.containerd.cri_client import ContainerdUnreachableError, CriRefusedError
from livesize.runtime.containerd.limits_notifier import (
    AGAIN_SECONDS,
    CLOSE_SECONDS,
    TOLD_AT_ONCE,
    LimitsNotifier,
)
from livesize.runtime.containerd.resizer import Resizer
from livesize.runtime.interface import GoneError, MemoryInUseError, RuntimeCallError
from virtual_time import CLOCK, virtual_time

pytestmark = virtual_time

MIB = 1 << 20
ID = "c0ffee"
PATH = "pod-u/c1"
LIMITS = KernelLimits(39, 50_000, 64 * MIB)


class Kernel:
    """The files of one group of version 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PATH
        self.folder.mkdir(parents=True)
        self.have(LIMITS)
        self.put("cpu.stat", "usage_usec 0")
        self.put("memory.events", "oom_kill 0")
        self.put("memory.reclaim", "")
        self.hold(10 * MIB)

    def have(self, limits: KernelLimits) -> None:
        quota_us, memory_bytes = limits.cpu_quota_us, limits.memory_limit_bytes
        self.put("cpu.weight", str(limits.cpu_weight))
        self.put("cpu.max", f"{'max' if quota_us is None else quota_us} 100000")
        self.put("memory.max", "max" if memory_bytes is None else str(memory_bytes))

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def hold(self, held_bytes: int) -> None:
        self.put("memory.current", str(held_bytes))
        self.put("memory.stat", f"active_anon {held_bytes}\nkernel 0")


class Containerd:
    """Sets all it knows with every update; or fails, having done a part of it or nothing."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.asked: list[object] = []
        self.refuses: Callable[[object], str] = lambda _: ""
        self.does_a_part = False
        self.recorded = LIMITS
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_away = False
        self.patience_ends = asyncio.Event()
        self.under_way = 0

    async def set_cpu(self, container_id: str, weight: int | None, quota_us: int | None) -> None:
        await self._update(SetCpu(weight, quota_us))

    async def set_memory(self, container_id: str, limit_bytes: int | None) -> None:
        assert container_id == ID
        await self._update(SetMemory(limit_bytes))

    async def tell_limits(
        self, container_id: str, limits: KernelLimits, *, memory: bool, patient: bool
    ) -> None:
        changes: tuple[GroupChange, ...] = (SetCpu(limits.cpu_weight, limits.cpu_quota_us),)
        if memory:
            changes += (SetMemory(limits.memory_limit_bytes),)
        await self._update(*changes, patient=patient)

    async def recorded_limits(self, container_id: str) -> KernelLimits:
        assert container_id == ID
        await self.may_go_on.wait()
        return self.recorded

    async def _update(self, *changes: GroupChange, patient: bool = True) -> None:
        self.asked.append(changes if len(changes) > 1 else changes[0])
        self.under_way += 1
        try:
            if self.is_away:
                if patient:
                    await self.patience_ends.wait()
                raise ContainerdUnreachableError("away")
            await self.may_go_on.wait()
            self._do(changes)
        finally:
            self.under_way -= 1

    def _do(self, changes: tuple[GroupChange, ...]) -> None:
        refusal = next(filter(None, map(self.refuses, changes)), "")
        known = functools.reduce(_with_change, changes, self.recorded)
        if self.does_a_part:
            self.kernel.put("cpu.weight", str(known.cpu_weight))
        if refusal:
            raise CriRefusedError(refusal)
        self.recorded = known
        self.kernel.have(known)


def _with_change(limits: KernelLimits, change: GroupChange) -> KernelLimits:
    match change:
        case SetCpu(weight=weight, quota_us=quota_us):
            weight = limits.cpu_weight if weight is None else weight
            return KernelLimits(weight, quota_us, limits.memory_limit_bytes)
        case SetMemory(limit_bytes=limit_bytes):
            return KernelLimits(limits.cpu_weight, limits.cpu_quota_us, limit_bytes)
        case _:
            return limits


async def settle() -> None:
    """Until everybody has done what can be done without waiting."""
    for _ in range(20):
        await asyncio.sleep(0)


async def at_once(call: Callable[..., None], *arguments: object) -> None:
    call(*arguments)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def containerd(kernel: Kernel) -> Containerd:
    return Containerd(kernel)


@pytest.fixture
def cgroups(tmp_path: Path, kernel: Kernel) -> CgroupsV2:
    no_cache = GroupFileCache(0)  # no kernel says which files are gone
    return CgroupsV2(str(tmp_path), SystemClock(), no_cache)


@pytest.fixture(params=list(CgroupVersion))
def each_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """containerd is asked for the same, whichever version the machine has."""
    monkeypatch.setattr(CgroupsV2, "version", request.param)


@pytest.fixture
async def notifier(containerd: Containerd, cgroups: CgroupsV2) -> AsyncIterator[LimitsNotifier]:
    stand_in: Any = containerd
    notifier = LimitsNotifier(stand_in, cgroups, CLOCK)
    yield notifier
    await notifier.close()


@pytest.fixture
def resizer(containerd: Containerd, cgroups: CgroupsV2, notifier: LimitsNotifier) -> Resizer:
    stand_in: Any = containerd
    return Resizer(stand_in, cgroups, at_once, notifier)


@pytest.fixture
def asking(containerd: Containerd, cgroups: CgroupsV2) -> Resizer:
    """As where systemd keeps the groups: it has to hear of everything."""
    stand_in: Any = containerd
    return Resizer(stand_in, cgroups, at_once, None)


async def test_a_change_is_asked_of_containerd_and_nobody_else(
    asking: Resizer, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    for change in (SetCpu(50, 20_000), SetMemory(128 * MIB), SetMemory(32 * MIB)):
        await asking.write(ID, PATH, change)
    assert containerd.asked == [SetCpu(50, 20_000), SetMemory(128 * MIB), SetMemory(32 * MIB)]
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 32 * MIB)


# CPU, which the kernel has before containerd hears of it


async def test_cpu_is_written_at_once_and_told_afterwards(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)
    assert containerd.asked == []
    await notifier.close()
    assert containerd.asked == [SetCpu(50, 20_000)]


async def test_nothing_is_written_that_an_update_under_way_would_set_back(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.may_go_on.clear()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await settle()
    assert containerd.asked == [SetCpu(50, 20_000)]
    second = asyncio.ensure_future(resizer.write(ID, PATH, SetCpu(60, 30_000)))
    await settle()
    assert not second.done()
    containerd.may_go_on.set()
    await second
    await notifier.close()
    assert containerd.asked == [SetCpu(50, 20_000), SetCpu(60, 30_000)]
    assert cgroups.read_limits(PATH) == KernelLimits(60, 30_000, 64 * MIB)


async def test_what_is_not_told_yet_is_told_before_anything_else_is_asked(
    resizer: Resizer, containerd: Containerd
) -> None:
    """containerd sets all it knows with every update: it would set the CPU back."""
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await resizer.write(ID, PATH, SetMemory(128 * MIB))
    await settle()
    assert containerd.asked == [SetCpu(50, 20_000), SetMemory(128 * MIB)]


async def test_what_could_not_be_told_is_told_again_and_only_as_it_is_by_then(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd
) -> None:
    containerd.refuses = lambda _: "no"
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    with pytest.raises(CriRefusedError):
        await resizer.write(ID, PATH, SetMemory(128 * MIB))
    assert set(containerd.asked) == {SetCpu(50, 20_000)}, "it would have set the CPU back"
    await resizer.write(ID, PATH, SetCpu(60, 30_000))
    containerd.refuses = lambda _: ""
    containerd.asked.clear()
    await notifier.close()
    assert containerd.asked == [SetCpu(60, 30_000)]


async def test_an_update_that_failed_and_set_the_cpu_back_changes_nothing(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    def set_back(_: object) -> str:
        containerd.kernel.have(LIMITS)
        containerd.refuses = lambda _: ""
        return "no"

    containerd.refuses = set_back
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await notifier.close()
    assert containerd.asked == [SetCpu(50, 20_000)] * 2
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)


async def test_of_a_container_that_is_gone_nothing_is_told(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, kernel: Kernel
) -> None:
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    kernel.folder.rename(kernel.folder.with_name("elsewhere"))
    await notifier.close()
    assert containerd.asked == []


async def test_while_containerd_is_away_cpu_is_written_at_once_each_time(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.is_away = True
    for quota_us in (20_000, 30_000, 40_000):
        written = asyncio.ensure_future(resizer.write(ID, PATH, SetCpu(50, quota_us)))
        await settle()
        assert written.done()
        assert cgroups.read_limits(PATH) == KernelLimits(50, quota_us, 64 * MIB)
        await CLOCK.sleep(max(AGAIN_SECONDS))
        assert SetCpu(50, quota_us) in containerd.asked, "it is tried each time"
    containerd.is_away = False
    containerd.asked.clear()
    await notifier.close()
    assert containerd.asked == [SetCpu(50, 40_000)]


async def test_no_more_are_told_at_once_than_there_are_places(
    notifier: LimitsNotifier, containerd: Containerd
) -> None:
    """After an absence of containerd's there may be hundreds."""
    containerd.may_go_on.clear()
    for number in range(2 * TOLD_AT_ONCE + 1):
        notifier.later(f"c{number}", PATH, LIMITS)
    await settle()
    assert containerd.under_way == TOLD_AT_ONCE
    containerd.may_go_on.set()
    await notifier.close()
    assert len(containerd.asked) == 2 * TOLD_AT_ONCE + 1


async def test_cpu_is_written_at_once_also_of_one_that_waits_for_a_place(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.may_go_on.clear()
    for number in range(TOLD_AT_ONCE):
        notifier.later(f"c{number}", PATH, LIMITS)
    for quota_us in (20_000, 30_000):
        written = asyncio.ensure_future(resizer.write(ID, PATH, SetCpu(50, quota_us)))
        await settle()
        assert written.done()
        assert cgroups.cpu_limit(PATH) == (50, quota_us)
    containerd.may_go_on.set()
    await notifier.close()
    assert containerd.asked[TOLD_AT_ONCE:] == [SetCpu(50, 30_000)]


async def test_a_bug_in_telling_is_no_end_of_it(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd
) -> None:
    def stumble(_: object) -> str:
        containerd.refuses = lambda _: ""
        raise ValueError("a bug")

    containerd.refuses = stumble
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await notifier.close()
    assert containerd.asked == [SetCpu(50, 20_000)] * 2


# The end of it


async def test_who_closes_does_not_wait_for_a_containerd_that_is_away(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd
) -> None:
    containerd.is_away = True
    before = asyncio.all_tasks()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    async with asyncio.timeout(CLOSE_SECONDS + 1):
        await notifier.close()
    assert asyncio.all_tasks() == before, "nothing is told any more"


async def test_an_update_that_is_cut_off_sets_nothing_back(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.may_go_on.clear()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    await settle()
    containerd.kernel.have(LIMITS)  # as runc does that fails
    async with asyncio.timeout(CLOSE_SECONDS + 1):
        await notifier.close()
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)


async def test_what_begins_while_it_closes_ends_with_it(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd
) -> None:
    containerd.may_go_on.clear()
    before = asyncio.all_tasks()
    notifier.later("c0", PATH, LIMITS)
    closing = asyncio.ensure_future(notifier.close())
    await settle()
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    async with asyncio.timeout(CLOSE_SECONDS + 1):
        await closing
    assert asyncio.all_tasks() == before


async def test_cpu_that_was_written_in_part_is_set_back(
    resizer: Resizer,
    containerd: Containerd,
    cgroups: CgroupsV2,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_files: GroupFileCache, path: str, text: str) -> None:
        if text == "50":
            raise RuntimeCallError(f"cannot write {path}")
        Path(path).write_text(text)

    monkeypatch.setattr(GroupFileCache, "write_text", refuse)
    with pytest.raises(RuntimeCallError):
        await resizer.write(ID, PATH, SetCpu(50, 20_000))
    assert cgroups.read_limits(PATH) == LIMITS
    await settle()
    assert containerd.asked == []


# What goes through containerd


@pytest.mark.usefixtures("each_version")
async def test_a_limit_that_would_kill_is_never_asked_for(
    resizer: Resizer,
    containerd: Containerd,
    kernel: Kernel,
    cgroups: CgroupsV2,
) -> None:
    """There the kernel kills, and the call says OK."""
    kernel.hold(40 * MIB)
    with pytest.raises(MemoryInUseError) as refused:
        await resizer.write(ID, PATH, SetMemory(32 * MIB))
    assert refused.value.usage_bytes >= 40 * MIB
    assert containerd.asked == []
    assert cgroups.read_limits(PATH) == LIMITS


@pytest.fixture
def given_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 MiB that are held, 30 come back when somebody asks for them."""
    kernel.hold(40 * MIB)
    narrow = CgroupsV2.write_memory

    def reclaim(cgroups: CgroupsV2, path: str, limit_bytes: int | None) -> None:
        kernel.hold(10 * MIB)
        narrow(cgroups, path, limit_bytes)

    monkeypatch.setattr(CgroupsV2, "write_memory", reclaim)


@pytest.mark.usefixtures("given_back")
async def test_memory_that_was_lowered_and_could_not_be_told_is_told_with_the_cpu(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    """Told of the CPU alone, containerd would raise it again."""
    containerd.is_away = True
    containerd.patience_ends.set()
    with pytest.raises(ContainerdUnreachableError):
        await resizer.write(ID, PATH, SetMemory(32 * MIB))
    assert cgroups.read_limits(PATH) == KernelLimits(39, 50_000, 32 * MIB)
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    containerd.is_away = False
    containerd.asked.clear()
    await notifier.close()
    assert containerd.asked == [(SetCpu(50, 20_000), SetMemory(32 * MIB))]
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 32 * MIB)


@pytest.mark.usefixtures("given_back")
async def test_memory_is_told_as_the_kernel_has_it_by_then(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, kernel: Kernel
) -> None:
    """The workload may have grown into what a failed update gave back: told what was wanted once,
    containerd would kill it."""
    containerd.is_away = True
    containerd.patience_ends.set()
    with pytest.raises(ContainerdUnreachableError):
        await resizer.write(ID, PATH, SetMemory(32 * MIB))

    def set_back(_: object) -> str:
        kernel.have(LIMITS)
        kernel.hold(50 * MIB)
        containerd.refuses = lambda _: ""
        return "no"

    containerd.refuses = set_back
    containerd.is_away = False
    await notifier.close()
    assert containerd.asked[-1] == (SetCpu(39, 50_000), SetMemory(64 * MIB))


async def test_a_limit_that_containerd_noted_and_did_not_set_is_not_set_later(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    """It is killed between the two: with the next change of CPU it would set that limit, though
    nobody may want it by then."""
    containerd.is_away = True
    writing = asyncio.ensure_future(resizer.write(ID, PATH, SetMemory(128 * MIB)))
    await settle()
    containerd.recorded = KernelLimits(39, 50_000, 128 * MIB)
    containerd.patience_ends.set()
    with pytest.raises(ContainerdUnreachableError):
        await writing
    await resizer.write(ID, PATH, SetCpu(50, 20_000))
    containerd.is_away = False
    await notifier.close()
    assert containerd.asked[-1] == (SetCpu(50, 20_000), SetMemory(64 * MIB))
    assert cgroups.read_limits(PATH) == KernelLimits(50, 20_000, 64 * MIB)


async def test_a_lower_limit_does_not_wait_for_a_containerd_that_is_away(
    resizer: Resizer, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    """It fits now; by the time containerd is back the workload may have grown, and would die."""
    containerd.is_away = True
    writing = asyncio.ensure_future(resizer.write(ID, PATH, SetMemory(48 * MIB)))
    async with asyncio.timeout(5):
        while not containerd.under_way:
            await asyncio.sleep(0.001)
    assert cgroups.read_limits(PATH) == KernelLimits(39, 50_000, 48 * MIB)
    containerd.patience_ends.set()
    with pytest.raises(ContainerdUnreachableError):
        await writing


async def test_what_was_done_in_part_is_set_back(
    asking: Resizer, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.refuses = lambda change: "no" if change == SetCpu(50, 900) else ""
    containerd.does_a_part = True
    with pytest.raises(CriRefusedError, match="no"):
        await asking.write(ID, PATH, SetCpu(50, 900))
    assert cgroups.read_limits(PATH) == LIMITS


@pytest.mark.parametrize(
    ("words", "held_bytes", "error"),
    [
        pytest.param("device or resource busy", 1 * MIB, MemoryInUseError, id="its words say so"),
        pytest.param("exit status 1", 200 * MIB, MemoryInUseError, id="the kernel says so"),
        pytest.param("exit status 1", 1 * MIB, CriRefusedError, id="something else"),
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
            [(SetCpu(39, 50_000), SetMemory(64 * MIB))],
            id="lowered, and not told",
        ),
        pytest.param(
            "67108864",
            KernelLimits(39, 50_000, None),
            [(SetCpu(39, 50_000), SetMemory(64 * MIB))],
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
            [(SetCpu(39, 50_000), SetMemory(64 * MIB))],
            id="it knows of nothing",
        ),
    ],
)
@pytest.mark.usefixtures("each_version")
async def test_containerd_is_told_what_a_killed_agent_did_not_tell(
    resizer: Resizer,
    notifier: LimitsNotifier,
    containerd: Containerd,
    limit: str,
    recorded: KernelLimits,
    told: list[object],
) -> None:
    containerd.kernel.put("memory.max", limit)
    containerd.recorded = recorded
    await resizer.tell_again(ID, PATH)
    await notifier.close()
    assert containerd.asked == told


async def test_what_is_written_while_somebody_compares_is_not_set_back(
    resizer: Resizer, notifier: LimitsNotifier, containerd: Containerd, cgroups: CgroupsV2
) -> None:
    containerd.recorded = KernelLimits(39, 40_000, 64 * MIB)
    containerd.may_go_on.clear()
    comparing = asyncio.ensure_future(resizer.tell_again(ID, PATH))
    await settle()
    writing = asyncio.ensure_future(resizer.write(ID, PATH, SetCpu(50, 20_000)))
    containerd.may_go_on.set()
    await comparing
    await writing
    await notifier.close()
    assert containerd.recorded == KernelLimits(50, 20_000, 64 * MIB)
    assert cgroups.read_limits(PATH) == containerd.recorded
