"""The version 1 driver on the real kernel: its rules, as callers must know them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups.detect import open_cgroups
from livesize.runtime.cgroups.interface import CgroupDriver
from livesize.runtime.interface import GoneError, MemoryInUseError, RuntimeCallError

pytestmark = pytest.mark.containers

MIB = 1024 * 1024
HOLD = "x = b'x' * ({} * 1024 * 1024); print('held', flush=True); input()"


@pytest.fixture
def cgroups(not_run: Callable[[str], NoReturn]) -> CgroupDriver:
    driver = open_cgroups(SystemClock())
    if driver.version is not CgroupVersion.V1:
        not_run("needs control groups of version 1")
    return driver


@pytest.fixture
def pod(cgroups: CgroupDriver, root_group: str) -> Iterator[str]:
    """A pod's group with one container's group below."""
    path = f"{root_group}/pod-u"
    cgroups.make(f"{path}/c-main")
    yield path
    for group in (f"{path}/c-main", path, root_group):
        deadline = time.monotonic() + 5
        while not cgroups.remove(group) and time.monotonic() < deadline:
            cgroups.kill(group)
            time.sleep(0.005)


def hold_memory(cgroups: CgroupDriver, group: str, mib: int) -> subprocess.Popen[str]:
    """A process that is a member of the group and holds so much anonymous memory."""
    joins = "".join(f"echo 0 > {file}; " for file in cgroups.join_files(group))
    process = subprocess.Popen(
        ["sh", "-c", f'{joins} exec python3 -I -S -c "$0"', HOLD.format(mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_limits_stand_in_the_kernels_files(cgroups: CgroupDriver, pod: str) -> None:
    group = f"{pod}/c-main"
    cgroups.write_cpu(group, 512, 25_000)
    cgroups.write_memory(group, 100_000_000)
    cgroups.write_pids(group, 77)
    for controller, name, value in (
        ("cpu", "cpu.shares", "512"),
        ("cpu", "cpu.cfs_quota_us", "25000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", "99999744"),
        ("pids", "pids.max", "77"),
    ):
        assert Path(f"/sys/fs/cgroup/{controller}/{group}/{name}").read_text().strip() == value
    assert cgroups.read(group).limits == KernelLimits(512, 25_000, 99_999_744)


def test_a_group_made_anew_is_not_taken_for_the_one_before(cgroups: CgroupDriver, pod: str) -> None:
    group, somebody_else = f"{pod}/c-main", open_cgroups(SystemClock())
    for weight, quota_us, limit_bytes in ((512, 25_000, 100 * MIB), (256, 50_000, 64 * MIB)):
        cgroups.write_cpu(group, weight, quota_us)
        cgroups.write_memory(group, limit_bytes)
        assert somebody_else.read_limits(group) == KernelLimits(weight, quota_us, limit_bytes)
        assert cgroups.read_limits(group) == KernelLimits(weight, quota_us, limit_bytes)
        assert somebody_else.remove(group)
        with pytest.raises(GoneError):
            cgroups.read_limits(group)
        with pytest.raises(GoneError):
            cgroups.write_cpu(group, 512, None)
        with pytest.raises(GoneError):
            cgroups.write_memory(group, MIB)
        somebody_else.make(group)
        assert cgroups.read_limits(group) == KernelLimits(1024, None, None)


def test_a_burst_stands_beside_the_quota(cgroups: CgroupDriver, pod: str) -> None:
    cgroups.write_cpu(pod, 1024, 100_000)
    cgroups.write_burst(pod, 20_000)
    file = Path(f"/sys/fs/cgroup/cpu/{pod}/cpu.cfs_burst_us")
    assert not file.exists() or file.read_text() == "20000\n", "kernels before 5.14 have none"
    cgroups.write_cpu(pod, 1024, 200_000)
    assert cgroups.read_limits(pod).cpu_quota_us == 200_000


def test_a_new_group_has_no_limits(cgroups: CgroupDriver, pod: str) -> None:
    assert cgroups.read(pod).limits == KernelLimits(1024, None, None)
    cgroups.make(pod)  # harmless again


def test_another_period_is_converted_to_ours(cgroups: CgroupDriver, pod: str) -> None:
    cgroups.write_cpu(pod, None, 40_000)
    Path(f"/sys/fs/cgroup/cpu/{pod}/cpu.cfs_period_us").write_text("200000")
    assert cgroups.read(pod).limits.cpu_quota_us == 20_000


def test_a_childs_quota_never_exceeds_its_parents(cgroups: CgroupDriver, pod: str) -> None:
    cgroups.write_cpu(pod, None, 50_000)
    with pytest.raises(RuntimeCallError, match="refused the value"):
        cgroups.write_cpu(f"{pod}/c-main", None, 60_000)
    cgroups.write_cpu(f"{pod}/c-main", None, 50_000)
    with pytest.raises(RuntimeCallError, match="refused the value"):
        cgroups.write_cpu(pod, None, 40_000)
    assert cgroups.read(pod).limits.cpu_quota_us == 50_000


def test_memory_below_usage_is_refused_and_nobody_dies(cgroups: CgroupDriver, pod: str) -> None:
    group = f"{pod}/c-main"
    cgroups.write_memory(group, 128 * MIB)
    process = hold_memory(cgroups, group, 40)
    with pytest.raises(MemoryInUseError) as refused:
        cgroups.write_memory(group, 20 * MIB)
    assert 40 * MIB <= refused.value.usage_bytes < 128 * MIB
    assert f"below current usage ({refused.value.usage_bytes})" in str(refused.value)
    reading = cgroups.read(group)
    assert reading.limits.memory_limit_bytes == 128 * MIB
    assert reading.memory_usage_bytes >= 40 * MIB
    assert process.poll() is None
    end(process)
    cgroups.write_memory(group, 20 * MIB)
    assert cgroups.memory_limit(group) == 20 * MIB


def test_a_limit_that_leaves_no_room_is_refused(cgroups: CgroupDriver, pod: str) -> None:
    """The kernel would take it, and kill with the next page."""
    group = f"{pod}/c-main"
    cgroups.write_memory(group, 128 * MIB)
    process = hold_memory(cgroups, group, 40)
    target = (cgroups.read(group).memory_usage_bytes // MIB + 2) * MIB
    assert cgroups.must_reclaim(group, target), "which belongs on a thread"
    with pytest.raises(MemoryInUseError) as refused:
        cgroups.write_memory(group, target)
    error = refused.value
    assert 40 * MIB <= error.usage_bytes <= target, "what it holds, not what it would need"
    margin = target // 8
    assert error.to_go_bytes == error.usage_bytes + margin - target > 0
    assert f"memory limit ({target}) less a margin of {margin} is below current" in str(error)
    assert str(refused.value).endswith(f"bytes to go; until then the limit stays at {128 * MIB}")
    assert cgroups.memory_limit(group) == 128 * MIB
    roomy = (cgroups.read(group).memory_usage_bytes // MIB + 16) * MIB
    cgroups.write_memory(group, roomy)
    assert cgroups.memory_limit(group) == roomy
    assert process.poll() is None
    end(process)


def test_a_limit_of_memory_and_swap_moves_along(cgroups: CgroupDriver, pod: str) -> None:
    group = f"{pod}/c-main"
    swap = Path(f"/sys/fs/cgroup/memory/{group}/memory.memsw.limit_in_bytes")
    cgroups.write_memory(group, 64 * MIB)
    swap.write_text(str(64 * MIB))
    for size in (128 * MIB, 32 * MIB):
        cgroups.write_memory(group, size)
        assert cgroups.memory_limit(group) == size
        assert int(swap.read_text()) == size
    cgroups.write_memory(group, None)
    assert cgroups.memory_limit(group) is None


def test_an_oom_kill_is_counted_in_the_group_and_above(cgroups: CgroupDriver, pod: str) -> None:
    group = f"{pod}/c-main"
    cgroups.write_memory(group, 16 * MIB)
    process = subprocess.Popen(
        [
            "sh",
            "-c",
            "".join(f"echo 0 > {file}; " for file in cgroups.join_files(group))
            + "exec dd if=/dev/zero of=/dev/null bs=64M count=1",
        ],
        stderr=subprocess.DEVNULL,
    )
    assert process.wait(30) == -signal.SIGKILL
    assert cgroups.oom_kills(group) == 1
    assert cgroups.oom_kills(pod) == 1


def test_members_are_listed_and_killed(cgroups: CgroupDriver, pod: str) -> None:
    group = f"{pod}/c-main"
    process = hold_memory(cgroups, group, 1)
    assert cgroups.processes(group) == (process.pid,)
    assert not cgroups.remove(group)
    assert cgroups.kill(group) == 1
    assert process.wait(10) == -signal.SIGKILL
    process.communicate()
    assert cgroups.processes(group) == ()


def test_a_group_that_is_gone_says_so(cgroups: CgroupDriver, pod: str) -> None:
    with pytest.raises(GoneError):
        cgroups.read(f"{pod}/c-other")
    with pytest.raises(GoneError):
        cgroups.write_cpu(f"{pod}/c-other", 2, None)
    assert cgroups.remove(f"{pod}/c-other")
    assert not cgroups.exists(f"{pod}/c-other")
    assert cgroups.children(pod) == ("c-main",)
    assert os.path.isdir(f"/sys/fs/cgroup/pids/{pod}/c-main")  # noqa: PTH112
