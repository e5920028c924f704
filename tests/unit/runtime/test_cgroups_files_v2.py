"""The version 2 driver on plain files: what it reads, computes and writes where.

There is no kernel behind these files, so its refusals are tested elsewhere, in a guest.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.cgroups import narrow as narrowing
from livesize.runtime.cgroups.file_cache import GroupFileCache
from livesize.runtime.cgroups.interface import shrink_margin, unreclaimable_bytes
from livesize.runtime.cgroups.v2 import CgroupsV2, parse_cpu_max
from livesize.runtime.interface import GoneError, MemoryInUseError, RuntimeCallError

MIB = 1024 * 1024
GROUP = "livesize/node/pod-u/c-main"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A tree whose controllers are handed down everywhere already, with one filled group."""
    folder = tmp_path
    for part in ("", *GROUP.split("/")):
        folder = folder / part
        write(
            folder,
            cgroup__controllers="cpuset cpu io memory pids\n",
            cgroup__subtree_control="cpu memory pids\n",
        )
    write(
        folder,
        cpu__weight="39\n",
        cpu__max="50000 100000\n",
        cpu__stat="usage_usec 1234\nuser_usec 1000\n",
        memory__max="67108864\n",
        memory__current=f"{50 * MIB}\n",
        memory__stat=stat(anon=20 * MIB, file=25 * MIB, kernel=MIB),
        memory__events="low 0\nhigh 0\nmax 7\noom 4711\noom_kill 2\n",
        memory__reclaim="",
        pids__max="max\n",
        cgroup__procs="10\n11\n",
    )
    return tmp_path


def stat(*, anon: int = 0, file: int = 0, kernel: int = 0, locked: int = 0) -> str:
    return (
        f"anon {anon + locked}\nfile {file}\nkernel {kernel}\nslab_reclaimable 0\n"
        f"inactive_anon {anon}\nactive_anon 0\ninactive_file {file}\nunevictable {locked}\n"
    )


def test_a_burst_is_allowed_where_the_kernel_can_do_it(mount: Path) -> None:
    cgroups, file = CgroupsV2(str(mount), SystemClock()), mount / GROUP / "cpu.max.burst"
    cgroups.write_burst(GROUP, 20_000)
    assert not file.exists(), "before 5.14 it cannot, and that is no failure"
    file.write_text("0\n")
    cgroups.write_burst(GROUP, 20_000)
    assert file.read_text() == "20000"


def test_a_group_is_read_whole(mount: Path) -> None:
    reading = CgroupsV2(str(mount), SystemClock()).read(GROUP)
    assert reading.limits == KernelLimits(39, 50_000, 64 * MIB)
    assert reading.cpu_usage_ns == 1_234_000
    assert reading.memory_usage_bytes == 50 * MIB
    assert reading.memory_unreclaimable_bytes == 21 * MIB
    assert reading.oom_kills == 2  # not the 4711 tries
    assert CgroupsV2(str(mount), SystemClock()).version is CgroupVersion.V2


def test_limits_are_written_where_the_kernel_reads_them(mount: Path) -> None:
    no_cache = GroupFileCache(0)  # plain files keep what is not overwritten
    driver = CgroupsV2(str(mount), SystemClock(), no_cache)
    driver.write_cpu(GROUP, 100, 20_000)
    driver.write_pids(GROUP, 4096)
    driver.write_memory(GROUP, 128 * MIB)
    group = mount / GROUP
    assert (group / "cpu.max").read_text() == "20000 100000"
    assert (group / "cpu.weight").read_text() == "100"
    assert (group / "pids.max").read_text() == "4096"
    assert (group / "memory.max").read_text() == str(128 * MIB)
    driver.write_cpu(GROUP, None, None)
    driver.write_memory(GROUP, None)
    assert (group / "cpu.max").read_text() == "max 100000"
    assert (group / "cpu.weight").read_text() == "100"
    assert driver.memory_limit(GROUP) is None


def test_make_hands_the_missing_controllers_down_at_every_level(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="cpu memory pids\n", cgroup__subtree_control="memory\n")
    inner = tmp_path / "livesize"
    write(inner, cgroup__controllers="cpu memory pids\n", cgroup__subtree_control="\n")
    CgroupsV2(str(tmp_path), SystemClock()).make("livesize/pod-u")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +pids"
    assert (inner / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (inner / "pod-u").is_dir()


def test_make_says_which_controllers_are_not_delegated(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="memory pids\n", cgroup__subtree_control="\n")
    with pytest.raises(RuntimeCallError, match="cpu"):
        CgroupsV2(str(tmp_path), SystemClock()).make("livesize")


@pytest.mark.parametrize(
    ("content", "target", "refused"),
    [
        pytest.param(stat(anon=20 * MIB), 32 * MIB, False, id="room enough"),
        pytest.param(stat(anon=20 * MIB), 20 * MIB, True, id="no room for the margin"),
        pytest.param(stat(file=60 * MIB, anon=MIB), 16 * MIB, False, id="file pages can go"),
        pytest.param(stat(anon=MIB, kernel=20 * MIB), 16 * MIB, True, id="kernel memory counts"),
        pytest.param(stat(locked=20 * MIB), 16 * MIB, True, id="locked memory counts"),
        pytest.param(stat(locked=20 * MIB), 32 * MIB, False, id="locked memory counts once"),
    ],
)
def test_a_limit_is_lowered_only_where_nobody_would_be_killed(
    mount: Path, content: str, target: int, refused: bool
) -> None:
    (mount / GROUP / "memory.stat").write_text(content)
    (mount / GROUP / "memory.current").write_text(str(2 * MIB))  # no kernel frees anything here
    driver = CgroupsV2(str(mount), SystemClock())
    if not refused:
        driver.write_memory(GROUP, target)
        assert driver.memory_limit(GROUP) == target
        return
    with pytest.raises(MemoryInUseError) as error:
        driver.write_memory(GROUP, target)
    assert error.value.to_go_bytes > 0
    assert error.value.usage_bytes <= 21 * MIB, "what is held, without the margin"
    assert driver.memory_limit(GROUP) == 64 * MIB


def test_pages_are_given_back_first_and_where_they_stay_so_does_the_limit(mount: Path) -> None:
    driver = CgroupsV2(str(mount), SystemClock())
    with pytest.raises(MemoryInUseError, match=f"current usage .{50 * MIB}."):
        driver.write_memory(GROUP, 40 * MIB)
    asked = int((mount / GROUP / "memory.reclaim").read_text())
    assert asked == 50 * MIB + 5 * MIB - 40 * MIB  # down to the target less its margin
    assert driver.memory_limit(GROUP) == 64 * MIB


def test_a_group_that_somebody_slows_down_is_not_left_frozen(
    mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """memory.high stays as somebody else set it; an agent that is killed while the group is frozen
    has noted that it ran."""
    group = mount / GROUP
    write(group, memory__high=f"{35 * MIB}", cgroup__freeze="0", cgroup__events="frozen 1\n")
    write(group, memory__current=f"{38 * MIB}")

    def die(_: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(narrowing, "_wait_frozen", die)
        CgroupsV2(str(mount), SystemClock()).write_memory(GROUP, 40 * MIB)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert (group / "cgroup.freeze").read_text() == "1"
    assert CgroupsV2(str(mount), SystemClock()).restore_limits(GROUP)
    assert (group / "cgroup.freeze").read_text() == "0"
    assert (group / "memory.high").read_text() == str(35 * MIB)
    CgroupsV2(str(mount), SystemClock()).write_memory(GROUP, 40 * MIB)
    assert (group / "memory.max").read_text() == str(40 * MIB)
    assert (group / "memory.high").read_text() == str(35 * MIB)
    assert os.listxattr(group) == []


@pytest.mark.parametrize(
    ("target", "margin"),
    [
        pytest.param(16 * MIB, 2 * MIB, id="an eighth of a small one"),
        pytest.param(256 * MIB, 32 * MIB, id="32 MiB"),
        pytest.param(4096 * MIB, 4096 * MIB // 20, id="5 % of a large one"),
    ],
)
def test_room_that_a_lowered_limit_leaves(target: int, margin: int) -> None:
    assert shrink_margin(target) == margin


def test_raising_a_limit_looks_at_nothing(mount: Path) -> None:
    (mount / GROUP / "memory.stat").unlink()
    CgroupsV2(str(mount), SystemClock()).write_memory(GROUP, 65 * MIB)
    assert CgroupsV2(str(mount), SystemClock()).memory_limit(GROUP) == 65 * MIB


def test_a_missing_group_is_gone_and_has_no_members(mount: Path) -> None:
    driver = CgroupsV2(str(mount), SystemClock())
    with pytest.raises(GoneError, match="nowhere"):
        driver.read("nowhere")
    assert driver.processes("nowhere") == ()
    assert driver.remove("nowhere")
    assert not driver.exists("nowhere")


def test_members_and_children_are_listed(mount: Path) -> None:
    driver = CgroupsV2(str(mount), SystemClock())
    assert driver.processes(GROUP) == (10, 11)
    assert driver.children("livesize/node") == ("pod-u",)
    assert driver.join_files(GROUP) == (f"{mount}/{GROUP}/cgroup.procs",)


@pytest.mark.parametrize(
    ("text", "quota_us"),
    [
        pytest.param("max 100000", None, id="no limit"),
        pytest.param("50000 100000", 50_000, id="our period"),
        pytest.param("25000 50000", 50_000, id="another period is converted"),
        pytest.param("20000", 20_000, id="no period means ours"),
    ],
)
def test_cpu_max(text: str, quota_us: int | None) -> None:
    assert parse_cpu_max(text) == quota_us


def test_kernel_memory_is_summed_where_the_kernel_does_not() -> None:
    parts = {"kernel_stack": 1, "pagetables": 2, "percpu": 4, "slab": 24, "slab_reclaimable": 16}
    assert unreclaimable_bytes(parts) == 1 + 2 + 4 + 24 - 16
